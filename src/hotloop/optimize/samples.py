"""Samples of the stack: the share of the loop's time of every line and every function."""

import types
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown, mean_interval
from hotloop.optimize.advice import HotLine
from hotloop.optimize.places import Place, is_users

Level = tuple[types.CodeType, int]  # a function, and the line it is at
Stack = tuple[Level, ...]  # the innermost first

HOTTEST = 3


class Samples:
    """Stacks of the loop's thread, in the order in which they were taken."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        # By identity: hashing a code object takes about as long as walking the whole stack.
        self._same: dict[tuple[int, ...], Stack] = {}

    def take(self, stack: Sequence[types.FrameType]) -> None:
        """Keep the functions and lines of a stack, the innermost first."""
        levels: list[Level] = []
        key: list[int] = []
        for frame in stack:
            line = frame.f_lineno or 0  # some instructions belong to no line
            levels.append((frame.f_code, line))
            key += (id(frame.f_code), line)
        self.stacks.append(self._same.setdefault(tuple(key), tuple(levels)))

    def share(self, test: Callable[[Stack], bool]) -> Figure:
        """The share of the samples that pass a test, with its interval."""
        if not self.stacks:
            return Unknown("no sample of the stack was taken")
        verdicts = {id(stack): test(stack) for stack in self._same.values()}
        passed = np.array([verdicts[id(stack)] for stack in self.stacks], dtype=float)
        found = mean_interval(passed)
        if found.value == 0.0:
            # With none of n samples, less than 3/n of the time at 95%.
            return Interval(0.0, 0.0, min(1.0, 3.0 / len(passed)))
        return found.at_most(1.0)

    def value(self, test: Callable[[Stack], bool]) -> float:
        """The share of the samples that pass a test, without an interval; 0 without samples."""
        count = Counter(map(id, self.stacks))
        passed = sum(count[id(stack)] for stack in self._same.values() if test(stack))
        return passed / max(len(self.stacks), 1)

    def share_of_lines(self, file: str, first: int, last: int, function: str) -> Figure:
        """The share of the time in which a line from `first` to `last` was on the stack."""
        return self.share(lambda stack: _at_lines(stack, file, first, last, function))

    def share_at(self, *places: Place) -> Figure:
        """The share of the time in which one of the lines, or what it calls, was running."""
        return self.share(
            lambda stack: any(
                _at_lines(stack, at.file, at.line, at.line, at.function) for at in places
            )
        )

    def hottest(self, function: str, file: str) -> tuple[HotLine, ...]:
        """The lines of a function with the largest shares, the largest first."""
        count: Counter[int] = Counter()
        for stack in self.stacks:
            count.update(
                {
                    line
                    for code, line in stack
                    if code.co_filename == file and code.co_qualname == function
                }
            )
        return tuple(
            HotLine(file, line, function, self.share_at(Place(file, line, function)))
            for line, _ in count.most_common(HOTTEST)
        )

    def user_lines(self) -> Counter[Place]:
        """How many samples have each line of the user's code innermost, nothing of theirs below."""
        count: Counter[Place] = Counter()
        for stack in self.stacks:
            for code, line in stack:
                if is_users(code.co_filename):
                    count[Place(code.co_filename, line, code.co_qualname)] += 1
                    break
        return count

    def user_codes(self) -> Counter[types.CodeType]:
        """In how many samples each function of the user was on the stack."""
        count: Counter[types.CodeType] = Counter()
        for stack in self.stacks:
            count.update({code for code, _ in stack if is_users(code.co_filename)})
        return count


def _at_lines(stack: Stack, file: str, first: int, last: int, function: str) -> bool:
    return any(
        first <= line <= last and code.co_filename == file and code.co_qualname == function
        for code, line in stack
    )
