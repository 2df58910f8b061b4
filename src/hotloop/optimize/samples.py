"""Samples of the stack: the share of the loop's time of every line and every function."""

import itertools
import types
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown, rate_interval
from hotloop.optimize.advice import HotLine
from hotloop.optimize.places import Place, is_users

Level = tuple[types.CodeType, int]  # a function, and the line it is at
Stack = tuple[Level, ...]  # the innermost first

HOTTEST = 3

Key = TypeVar("Key", bound=Hashable)


class Samples:
    """Stacks of the loop's thread, and the time that each stands for, in the order of taking."""

    def __init__(self) -> None:
        self._stacks: list[Stack] = []
        self._seconds: list[float] = []
        # By identity: hashing a code object takes about as long as walking the whole stack.
        self._same: dict[tuple[int, ...], Stack] = {}

    def take(self, stack: Sequence[types.FrameType], seconds: float) -> None:
        """Keep the functions and lines of a stack, the innermost first, for so much time."""
        levels: list[Level] = []
        key: list[int] = []
        for frame in stack:
            line = frame.f_lineno or 0  # some instructions belong to no line
            levels.append((frame.f_code, line))
            key += (id(frame.f_code), line)
        self._stacks.append(self._same.setdefault(tuple(key), tuple(levels)))
        self._seconds.append(seconds)

    def shares(self) -> list[tuple[Stack, float]]:
        """Each stack that was seen, once, with its share of the time."""
        spent: Counter[int] = Counter()
        for stack, seconds in zip(self._stacks, self._seconds, strict=True):
            spent[id(stack)] += round(seconds * 1e9)
        return [(stack, spent[id(stack)] / spent.total()) for stack in self._same.values()]

    def share(self, test: Callable[[Stack], bool]) -> Figure:
        """The share of the time of the stacks that pass a test, with its interval."""
        if not self._stacks:
            return Unknown("no sample of the stack was taken")
        verdicts = {id(stack): test(stack) for stack in self._same.values()}
        passed = np.array([verdicts[id(stack)] for stack in self._stacks], dtype=float)
        seconds = np.array(self._seconds)
        found = rate_interval(passed * seconds, seconds * 1e9)
        if found.value == 0.0:
            # With none of n samples, less than 3/n of the time at 95%.
            return Interval(0.0, 0.0, min(1.0, 3.0 / len(passed)))
        return found.at_most(1.0)

    def value(self, test: Callable[[Stack], bool]) -> float:
        """The share of the time of the stacks that pass a test; 0 without samples."""
        return sum(share for stack, share in self.shares() if test(stack))

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

        def of_function(stack: Stack) -> Iterable[int]:
            return {
                line
                for code, line in stack
                if code.co_filename == file and code.co_qualname == function
            }

        shares = self._shares_of(of_function)
        return tuple(
            HotLine(file, line, function, self.share_at(Place(file, line, function)))
            for line in sorted(shares, key=lambda line: -shares[line])[:HOTTEST]
        )

    def user_lines(self) -> dict[Place, float]:
        """The share of the time of each line of the user's code with nothing of theirs below."""

        def innermost(stack: Stack) -> Iterable[Place]:
            users = (level for level in stack if is_users(level[0].co_filename))
            return [Place(c.co_filename, n, c.co_qualname) for c, n in itertools.islice(users, 1)]

        return self._shares_of(innermost)

    def user_codes(self) -> dict[types.CodeType, float]:
        """The share of the time in which each function of the user was on the stack."""
        return self._shares_of(
            lambda stack: {code for code, _ in stack if is_users(code.co_filename)}
        )

    def _shares_of(self, keys_of: Callable[[Stack], Iterable[Key]]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for stack, share in self.shares():
            for key in keys_of(stack):
                found[key] = found.get(key, 0.0) + share
        return found


def _at_lines(stack: Stack, file: str, first: int, last: int, function: str) -> bool:
    return any(
        first <= line <= last and code.co_filename == file and code.co_qualname == function
        for code, line in stack
    )
