"""The calls of a course as arrays: which stage, when, and how many of each up to any place.

The names of stages that mean something to the search for iterations are written here alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UPDATE = "optimiser step"
ACT = "act"
RESET = "env reset"
# Where a loop gets what it works on. The first that a course calls is its source.
SOURCES = ("data", "wait", "env step")
# Sources of which iterations have equally many calls, or else they hold something more: how often a
# script asks whether something has come is chance.
COUNTED_SOURCES = ("data", "env step")
# An iteration with more than so many times the usual calls of such a source holds an evaluation.
TOO_MANY_OF_A_SOURCE = 2
# Work beside the loop: it marks no iteration, and its time counts for a quarter.
SIDE_WORK = (RESET, "log", "checkpoint")
SIDE_WEIGHT = 0.25
# A first call that compiles takes seconds; a call counts for at most so many medians of its stage.
MOST_MEDIANS = 20


class Call(NamedTuple):
    """One outermost call of a stage on the main thread. start_ns, end_ns: of one clock.

    turn: which optimiser steps, by its number, if the call is its step.
    """

    name: str
    start_ns: int
    end_ns: int
    turn: int = 0


@dataclass(frozen=True)
class Course:
    """Calls in order, as arrays. names: the K stages. Shapes (N,), before is (N + 1, K).

    code: the stage of each call, an index into names. turn: see `Call`. before: the calls of each
    stage before a place, so that the calls between two places are a difference of two rows. update:
    the stage that changes what is learned.
    """

    names: tuple[str, ...]
    code: Ints
    turn: Ints
    start_ns: Ints
    end_ns: Ints
    before: NDArray[np.int32]
    update: str = UPDATE

    def __len__(self) -> int:
        return len(self.code)

    def part(self, begin: int, end: int) -> "Course":
        """The calls from one place up to another; the names stay."""
        within = slice(begin, end)
        before = self.before[begin : end + 1] - self.before[begin]
        start_ns, end_ns = self.start_ns[within], self.end_ns[within]
        code, turn = self.code[within], self.turn[within]
        return Course(self.names, code, turn, start_ns, end_ns, before, self.update)

    def codes(self, names: Sequence[str]) -> list[int]:
        """The codes of those of the names that the course has."""
        return [self.names.index(name) for name in names if name in self.names]

    @cached_property
    def has(self) -> frozenset[str]:
        """The stages that are called at least once."""
        return frozenset(name for name, n in zip(self.names, self.before[-1], strict=True) if n)

    @cached_property
    def call_ns(self) -> Floats:
        """What a call of each stage takes: a mean, without the excess of the longest calls (K,)."""
        duration = (self.end_ns - self.start_ns).astype(np.float64)
        means = np.zeros(len(self.names))
        for code in range(len(self.names)):
            own = duration[self.code == code]
            if len(own):
                most = MOST_MEDIANS * np.median(own)
                means[code] = np.minimum(own, most).mean() if most > 0 else own.mean()
        return means if means.any() else np.ones(len(self.names))

    @cached_property
    def weight_ns(self) -> Floats:
        """What a call of each stage counts for: its time, a quarter of it for side work (K,)."""
        weights = self.call_ns.copy()
        weights[self.codes(SIDE_WORK)] *= SIDE_WEIGHT
        return weights if weights.any() else np.ones(len(self.names))

    @cached_property
    def length_ns(self) -> int:
        """From the start of the first call to the end of the last."""
        return int(self.end_ns[-1] - self.start_ns[0]) if len(self) else 0

    def first(self, name: str) -> int:
        """The place of the first call of a stage; the number of calls if there is none."""
        if name not in self.has:
            return len(self)
        return int(np.argmax(self.code == self.names.index(name)))


def course_of(calls: Sequence[Call], update: str = UPDATE) -> Course:
    """The arrays of calls that are in order; update: the stage that changes what is learned."""
    numbers: dict[str, int] = {}
    code = np.array([numbers.setdefault(c[0], len(numbers)) for c in calls], np.int64)
    before = np.zeros((len(code) + 1, len(numbers)), np.int32)
    for number in range(len(numbers)):
        np.cumsum(code == number, out=before[1:, number])
    turn = np.fromiter((c[3] for c in calls), np.int64, len(code))
    start_ns = np.fromiter((c[1] for c in calls), np.int64, len(code))
    end_ns = np.fromiter((c[2] for c in calls), np.int64, len(code))
    return Course(tuple(numbers), code, turn, start_ns, end_ns, before, update)
