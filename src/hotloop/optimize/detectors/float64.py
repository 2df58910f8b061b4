"""Finds float64 where float32 goes in: results that became wider, and copies that are narrowed.

Operations of torch are watched as they run; of numpy, the statements of the user are looked at,
with the arrays that they compute with before, and what they set after.
"""

import types
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.loop.values import arrays_in, is_tensor
from hotloop.optimize.advice import Advice
from hotloop.optimize.names import ABSENT, value_of
from hotloop.optimize.operations import Operation
from hotloop.optimize.places import Place, user_place
from hotloop.optimize.statements import Statement, statements_of
from hotloop.optimize.watched import Instrument, Phase, Watched

LEAST_ELEMENTS = 1024
LEAST_SHARE = 0.02
LEAST_PER_ITERATION = 0.2

_WIDER = "float32 goes in here and float64 comes out"
_NARROWED = "a float64 array is converted to float32 here in every iteration"
_ACTIONS = {
    _WIDER: "find the operand that is float64 or int64 (numpy's default for new arrays and random "
    "numbers, and np.float64 numbers) and make it float32",
    _NARROWED: "make it float32 where it is made, or convert it once, before the loop",
}


@dataclass
class Seen:
    """How often a line did it, and with how many bytes of float64."""

    calls: int = 0
    held_bytes: int = 0
    phase: Phase = Phase.LINES


@dataclass
class _Pending:
    """A statement that is about to run, with the types of its large arrays.

    widened: whether one of them is float64 because of a statement that was noted before.
    """

    statement: Statement
    dtypes: set[str]
    widened: bool


class Float64:
    """Watches types: of operations of torch, and of numpy by the statements of the user."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Place, str], Seen] = {}
        self._wide: set[Place] = set()  # lines that compute in float64
        self._pending: dict[int, _Pending] = {}
        self._widened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._hot: dict[types.CodeType, float] = {}  # by its share of the time

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It watches operations, and follows lines."""
        return {Phase.OPERATIONS: self._watch_torch, Phase.LINES: self._watch_numpy}

    @contextmanager
    def _watch_torch(self, watched: Watched) -> Iterator[None]:
        watched.operations.listeners.append(self._note_operation)
        yield

    @contextmanager
    def _watch_numpy(self, watched: Watched) -> Iterator[None]:
        self._hot = watched.samples.user_codes()
        watched.tracer.followers.append(self)
        yield
        self._pending.clear()

    # --- torch -------------------------------------------------------------------------------

    def _note_operation(self, operation: Operation) -> None:
        if not is_tensor(operation.result) or operation.result.numel() < LEAST_ELEMENTS:
            return
        result = str(operation.result.dtype)
        given = {str(each.dtype) for each in arrays_in(operation.args, 2) if is_tensor(each)}
        copies = operation.name == "aten._to_copy"
        if result == "torch.float64" and not copies:
            place = user_place(operation.frame)
            if place is not None:
                self._wide.add(place)
                if "torch.float32" in given:
                    self._note(place, _WIDER, operation.result.nbytes, Phase.OPERATIONS)
        elif copies and result == "torch.float32" and "torch.float64" in given:
            place = user_place(operation.frame)
            if place is not None:
                self._note(place, _NARROWED, 2 * operation.result.nbytes, Phase.OPERATIONS)

    def _note(self, place: Place, what: str, held: int, phase: Phase) -> None:
        seen = self._seen.setdefault((place, what), Seen(phase=phase))
        seen.calls += 1
        seen.held_bytes += int(held)

    # --- numpy -------------------------------------------------------------------------------

    def wants_lines(self, code: types.CodeType) -> bool:
        """Whether a function takes any time."""
        return self._hot.get(code, 0.0) >= LEAST_SHARE and code.co_name != "<lambda>"

    def wants_call(self, _frame: types.FrameType) -> bool:
        """Whether it follows calls: no."""
        return False

    def line(self, frame: types.FrameType) -> None:
        """Look at what the statement before this line has set, and at what this one starts from."""
        statement = statements_of(frame.f_code.co_filename).get(frame.f_lineno)
        before = self._pending.get(id(frame))
        if before is not None and before.statement is statement:
            return  # another line of it
        if before is not None:
            self._compare(before, frame, value_of(before.statement.target or "", frame))
            del self._pending[id(frame)]
        if statement is not None:
            arrays = _large_arrays(statement, frame)
            if arrays:
                dtypes = {str(each.dtype) for each in arrays}
                widened = any(self._widened.get(id(each)) is each for each in arrays)
                self._pending[id(frame)] = _Pending(statement, dtypes, widened)

    def returned(self, frame: types.FrameType, value: Any) -> None:
        """Look at what the last statement of a function has returned, or set."""
        before = self._pending.pop(id(frame), None)
        if before is not None:
            target = before.statement.target
            self._compare(before, frame, value if target == "" else value_of(target or "", frame))

    def _compare(self, before: _Pending, frame: types.FrameType, result: Any) -> None:
        line = before.statement.line
        place = Place(frame.f_code.co_filename, line, frame.f_code.co_qualname)
        if before.widened:
            self._wide.add(place)
        if not isinstance(result, np.ndarray) or result.size < LEAST_ELEMENTS:
            return
        if result.dtype == np.float64:
            self._wide.add(place)
            begins = "float32" in before.dtypes and not before.statement.asks_for_double
            if begins and not before.widened:
                self._note(place, _WIDER, result.nbytes, Phase.LINES)
            if begins or before.widened:
                self._widened[id(result)] = result
        elif result.dtype == np.float32 and "float64" in before.dtypes:
            self._note(place, _NARROWED, 2 * result.nbytes, Phase.LINES)

    # --- what was found ----------------------------------------------------------------------

    def advice(self, watched: Watched) -> list[Advice]:
        """The lines where float64 begins or ends, with the share of all lines that use it."""
        found = []
        for (place, what), seen in self._seen.items():
            rate = watched.per_iteration(seen.calls, seen.phase)
            share = watched.samples.share_at(place, *self._wide)
            if rate < LEAST_PER_ITERATION or not isinstance(share, Interval):
                continue
            if share.value >= LEAST_SHARE:
                held = watched.per_iteration(seen.held_bytes, seen.phase)
                found.append(
                    watched.advice(
                        "float64",
                        place,
                        what,
                        _ACTIONS[what],
                        share,
                        ("times an iteration", rate, ""),
                        ("float64 an iteration", held, "bytes"),
                    )
                )
        return found


def _large_arrays(statement: Statement, frame: types.FrameType) -> list[np.ndarray]:
    """The large arrays that a statement computes with; none if it calls a function of the user."""
    values = [value_of(name, frame) for name in statement.reads]
    large = [
        each for each in values if isinstance(each, np.ndarray) and each.size >= LEAST_ELEMENTS
    ]
    if not any(each.dtype in (np.float32, np.float64) for each in large):
        return []
    return large if all(_is_numpys(call, frame) for call in statement.calls) else []


def _is_numpys(call: str, frame: types.FrameType) -> bool:
    """Whether a call is of numpy's functions, a method of an array, or a built-in function."""
    owner, _, name = call.rpartition(".")
    if not owner:
        function = value_of(name, frame)
        return function is ABSENT or str(getattr(function, "__module__", "")).startswith("numpy")
    value = value_of(owner, frame)
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0] in ("numpy", "math")
    return isinstance(value, np.ndarray | np.generic | np.random.Generator)
