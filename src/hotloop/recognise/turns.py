"""Updates that take turns: a loop with several optimisers, such as that of a GAN.

Where such a loop has no source, nothing but the update marks an iteration, and one network's update
looks like the other's. Whose step it is shows that only all of them together repeat.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hotloop.recognise.calls import SOURCES
from hotloop.recognise.cuts import MOSTLY, Cut

# So many updates take turns at most, and so many of them are as the order says.
MOST_TURNS, IN_ORDER = 16, 0.9

# The numbers of the optimisers that step between two boundaries, in order.
Steps = tuple[int, ...]


class Turns:
    """Says of each boundary whether the turns begin again there.

    last: what comes at the end of each round of turns, and nowhere else in it; empty: every
    boundary begins a round.
    """

    __slots__ = ("_last", "_seen", "_steps")

    def __init__(self, last: Sequence[Steps]) -> None:
        self._last = tuple(last)
        self._seen: deque[Steps] = deque(maxlen=len(self._last))
        self._steps: list[int] = []

    @property
    def has_turns(self) -> bool:
        """Whether not every boundary begins a round."""
        return bool(self._last)

    def step(self, optimiser: int) -> None:
        """Note that an optimiser steps, by its number."""
        if self._last:
            self._steps.append(optimiser)

    def begins(self) -> bool:
        """Whether a round begins with this boundary. To be asked at every one."""
        if not self._last:
            return True
        self._seen.append(tuple(self._steps))
        self._steps.clear()
        return tuple(self._seen) == self._last


def in_turns(found: Cut) -> tuple[Cut, tuple[Steps, ...]] | None:
    """The cut at the first of each round of turns, and what comes last in one.

    None where every iteration steps the same optimisers, or has a source of its own.
    """
    sources = found.course.codes(SOURCES)
    if found.rule.start in SOURCES or (found.presence[sources] >= MOSTLY).any():
        return None
    before, *steps = _steps(found)
    number = _round_of(steps)
    if number is None:
        return None
    again = (
        k for k in range(len(steps)) if steps[k : k + number] == steps[k + number : k + 2 * number]
    )
    first = next(again, None)
    if first is None:
        return None
    if not first and before == steps[number - 1]:
        first = number - 1  # the first iteration of all began where no boundary was seen
    last = _last_of([steps[first + k] for k in range(number)])
    turns = Turns(last)
    begins = np.array([_passed(turns, each) for each in steps], np.bool_)
    apart = np.diff(np.flatnonzero(begins))
    if not len(apart) or (apart == number).mean() < IN_ORDER:
        return None
    return replace(found, places=found.places[1:][begins]), last


def _last_of(round_: Sequence[Steps]) -> tuple[Steps, ...]:
    """The fewest steps that come once in a round; where that may be, those that end it."""
    number = len(round_)
    return next(
        last
        for length in range(1, number + 1)
        for turned in range(number)
        if _times_in(round_, last := _cyclic(round_, turned - length, length)) == 1
    )


def _cyclic(round_: Sequence[Steps], first: int, length: int) -> tuple[Steps, ...]:
    return tuple(round_[(first + k) % len(round_)] for k in range(length))


def _passed(turns: Turns, steps: Steps) -> bool:
    """Whether a round begins after a segment with these steps."""
    for each in steps:
        turns.step(each)
    return turns.begins()


def _steps(found: Cut) -> list[Steps]:
    """The numbers of the optimisers that step before the first place, and in each segment."""
    course = found.course
    code = course.codes([course.update])
    updates = np.flatnonzero(np.isin(course.code, code))
    edges = [0, *np.searchsorted(updates, found.places).tolist()]
    turn = course.turn[updates].tolist()
    return [tuple(turn[a:b]) for a, b in pairwise(edges)]


def _round_of(steps: Sequence[Steps]) -> int | None:
    """After how many segments the optimisers step in the same order again; None: always, or never.

    At least two rounds are seen.
    """
    for number in range(1, min(MOST_TURNS, len(steps) // 2) + 1):
        same = sum(a == b for a, b in zip(steps, steps[number:], strict=False))
        if same >= IN_ORDER * (len(steps) - number):
            return number if number > 1 else None
    return None


def _times_in(round_: Sequence[Steps], last: Sequence[Steps]) -> int:
    """How often steps follow each other so in a round that is repeated."""
    return sum(_cyclic(round_, first, len(last)) == last for first in range(len(round_)))
