"""Finds Python loops over an axis of an array that could be one operation on the whole array.

The samples say which loops take time, the source says whether their passes need each other, and
their arrays are looked at while they run.
"""

import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.values import is_tensor
from hotloop.optimize.advice import Advice
from hotloop.optimize.loops import PythonLoopSource, loops_of
from hotloop.optimize.names import value_of
from hotloop.optimize.places import Place, function_at
from hotloop.optimize.watched import Instrument, Phase, Watched

LEAST_SHARE = 0.05
LEAST_PASSES = 8
# Of the axis: a loop over a smaller part of it is over something else, such as minibatches.
LEAST_COVERED = 0.5


@dataclass
class Seen:
    """What a loop was seen to go over."""

    array: str
    axis: int
    shape: tuple[int, ...]
    dtype: str
    lowest: float = float("inf")
    highest: float = float("-inf")

    @property
    def passes(self) -> int:
        """How many positions of the axis it came to."""
        whole = self.lowest > self.highest
        return self.shape[self.axis] if whole else int(self.highest - self.lowest) + 1


class PythonLoop:
    """Looks at the arrays of the loops that take time and whose passes do not need each other."""

    def __init__(self) -> None:
        self._loops: dict[tuple[str, int], PythonLoopSource] = {}  # by file and line of the body
        self._seen: dict[PythonLoopSource, Seen] = {}

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It follows lines."""
        return {Phase.LINES: self._watch}

    def _watch(self, watched: Watched) -> Any:
        for file in {place.file for place in watched.samples.user_lines()}:
            for loop in loops_of(file):
                if not loop.dependent and _share(watched, loop) >= LEAST_SHARE:
                    self._loops[file, loop.body] = loop
        return self._following(watched) if self._loops else None

    @contextmanager
    def _following(self, watched: Watched) -> Iterator[None]:
        watched.tracer.followers.append(self)
        yield

    def wants_lines(self, code: types.CodeType) -> bool:
        """Whether one of the loops is in this function."""
        lines = {line for _, _, line in code.co_lines() if line is not None}
        return any(file == code.co_filename and line in lines for file, line in self._loops)

    def wants_call(self, _frame: types.FrameType) -> bool:
        """Whether it follows calls: no."""
        return False

    def line(self, frame: types.FrameType) -> None:
        """Look at the arrays of a loop at the beginning of a pass."""
        loop = self._loops.get((frame.f_code.co_filename, frame.f_lineno))
        if loop is None:
            return
        seen = self._seen.get(loop) or _look(loop, frame)
        if seen is None:
            return
        self._seen[loop] = seen
        for name, axis, variable in loop.indexed:
            if (name, axis) == (seen.array, seen.axis):
                position = value_of(variable, frame)
                if isinstance(position, int | np.integer):
                    seen.lowest = min(seen.lowest, int(position))
                    seen.highest = max(seen.highest, int(position))

    def returned(self, _frame: types.FrameType, _value: Any) -> None:
        """Take no note of returns."""

    def advice(self, watched: Watched) -> list[Advice]:
        """The outermost of the loops that go over most of an axis."""
        found: list[Advice] = []
        done: list[PythonLoopSource] = []
        for loop, seen in sorted(self._seen.items(), key=lambda pair: pair[0].first):
            covered = seen.passes / seen.shape[seen.axis]
            if seen.passes < LEAST_PASSES or covered < LEAST_COVERED or _inside(loop, done):
                continue
            done.append(loop)
            found.append(self._advice(watched, loop, seen))
        return found

    @staticmethod
    def _advice(watched: Watched, loop: PythonLoopSource, seen: Seen) -> Advice:
        place = Place(loop.file, loop.first, function_at(loop.file, loop.first))
        shape = " × ".join(map(str, seen.shape))
        return watched.advice(
            "python loop",
            place,
            f"a Python loop goes over axis {seen.axis} of {seen.array} ({shape}, {seen.dtype}), "
            "one element a pass",
            "write its body for the whole array, as operations of numpy or torch, or as "
            "torch.func.vmap of the function of one element; where that cannot be, compile it "
            "(numba.njit)",
            watched.samples.share(lambda stack: _on_stack(stack, loop)),
            ("passes", float(seen.passes), ""),
        )


def _share(watched: Watched, loop: PythonLoopSource) -> float:
    return watched.samples.value(lambda stack: _on_stack(stack, loop))


def _on_stack(stack: Any, loop: PythonLoopSource) -> bool:
    return any(
        code.co_filename == loop.file and loop.first <= line <= loop.last for code, line in stack
    )


def _inside(loop: PythonLoopSource, others: list[PythonLoopSource]) -> bool:
    return any(
        other.file == loop.file and other.first <= loop.first and loop.last <= other.last
        for other in others
    )


def _look(loop: PythonLoopSource, frame: types.FrameType) -> Seen | None:
    """The first array that a loop goes over or indexes, and that has an axis of some length."""
    candidates = [(name, 0) for name in loop.over]
    candidates += [(name, axis) for name, axis, _ in loop.indexed]
    for name, axis in candidates:
        array = value_of(name, frame)
        if not (isinstance(array, np.ndarray) and array.dtype != object) and not is_tensor(array):
            continue
        if name in loop.over and _only_chooses(array, loop, frame):
            continue
        shape = tuple(int(size) for size in array.shape)
        if axis < len(shape) and shape[axis] >= LEAST_PASSES:
            return Seen(name, axis, shape, str(array.dtype).removeprefix("torch."))
    return None


def _only_chooses(array: Any, loop: PythonLoopSource, frame: types.FrameType) -> bool:
    """Whether an array says which entries of something are taken that is no array itself."""
    if array.ndim != 1 or "int" not in str(array.dtype):
        return False
    sources = [value_of(name, frame) for name in loop.looked_up]
    return any(isinstance(each, list | tuple | dict) for each in sources)
