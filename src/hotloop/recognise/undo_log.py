"""Large buffers as a part of the state: only the rows that were written are put back."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

_NUMBERS = (bool, int, float, np.generic, np.random.RandomState)
Rows = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class BufferKind:
    """How the buffers of a library are written.

    classes: their names. writes: the methods that write. rows: those that a call of one will write,
    of the buffer and the arguments. arrays: what holds the rows, along the first axis.
    numbers: what else a buffer of so many rows holds, copied; put_numbers: puts that back.
    known: whether all that this buffer consists of is known here.
    """

    classes: tuple[str, ...]
    writes: tuple[str, ...]
    rows: Callable[[Any, tuple[Any, ...], dict[str, Any]], Iterable[int]]
    arrays: Callable[[Any], Mapping[str, Any]]
    numbers: Callable[[Any, set[int]], Any] = field(default=lambda *given: _numbers(*given))
    put_numbers: Callable[[Any, Any], None] = field(default=lambda *given: _put_numbers(*given))
    known: Callable[[Any], bool] = lambda _buffer: True


class _Mark:
    """A moment to which a log can go back.

    next: the next moment on the way to the present, None for the last one. rows: what this moment
    holds where that is something else than the next one, or the present, holds.
    """

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers
        self.next: _Mark | None = None
        self.rows: Rows = {}


class UndoLog:
    """A buffer whose writes are taken back row by row, instead of copying all of it.

    A snapshot of the loop's state calls `get_state`, and `set_state` as often as it is restored;
    of several snapshots any may be restored, in any order. Between them `before_write` keeps what
    a row held, the first time that it is written.
    """

    def __init__(self, buffer: Any, kind: BufferKind) -> None:
        self._buffer, self._kind = buffer, kind
        # Moments lead to later ones, so that one that nobody goes back to is forgotten.
        self._last: _Mark | None = None

    def before_write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what the rows hold that a call with these arguments will write."""
        if self._last is None:
            return
        arrays = self._kind.arrays(self._buffer)
        for row in self._kind.rows(self._buffer, args, kwargs):
            if row not in self._last.rows:
                self._last.rows[row] = _held(arrays, row)

    def get_state(self) -> _Mark:
        """Begin to keep what is overwritten; returns the moment to go back to."""
        rows = {len(array) for array in self._kind.arrays(self._buffer).values()}
        mark = _Mark(self._kind.numbers(self._buffer, rows))
        if self._last is not None:
            self._last.next = mark
        self._last = mark
        return mark

    def set_state(self, mark: _Mark) -> None:
        """Put back what the buffer held at a moment."""
        arrays = self._kind.arrays(self._buffer)
        path = [mark]
        while path[-1].next is not None:
            path.append(path[-1].next)
        _write(arrays, path[-1].rows)
        # Each step back leaves what leads forward again.
        for earlier, later in reversed(list(pairwise(path))):
            forward = {row: _held(arrays, row) for row in earlier.rows}
            _write(arrays, earlier.rows)
            later.next, later.rows = earlier, forward
        mark.next, mark.rows = None, {}
        self._last = mark
        self._kind.put_numbers(self._buffer, mark.numbers)


def _held(arrays: Mapping[str, Any], row: int) -> dict[str, Any]:
    return {name: _copy(array[row]) for name, array in arrays.items()}


def _write(arrays: Mapping[str, Any], rows: Rows) -> None:
    for row, contents in rows.items():
        for name, content in contents.items():
            arrays[name][row] = content


def _parts(buffer: Any) -> list[Any]:
    """The buffer, and those that it consists of where it has one for each env."""
    return [buffer, *getattr(buffer, "buffers", ())]


def _numbers(buffer: Any, rows: set[int]) -> list[dict[str, Any]]:
    """Copies of what is neither a row nor an object: counters, generators, arrays of one axis."""
    return [
        {
            name: copy.deepcopy(value)
            for name, value in vars(part).items()
            if isinstance(value, _NUMBERS)
            or (isinstance(value, np.ndarray) and value.ndim == 1 and _is_small(value, rows))
        }
        for part in _parts(buffer)
    ]


def _put_numbers(buffer: Any, numbers: list[dict[str, Any]]) -> None:
    for part, held in zip(_parts(buffer), numbers, strict=True):
        vars(part).update(copy.deepcopy(held))


def _is_small(array: np.ndarray, rows: set[int]) -> bool:
    return array.dtype != object and len(array) not in rows


def _copy(row: Any) -> Any:
    return row.clone() if hasattr(row, "clone") else row.copy() if hasattr(row, "copy") else row
