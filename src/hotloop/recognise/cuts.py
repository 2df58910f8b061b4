"""Where a course can be cut into iterations, and how good a cut is.

A boundary is a call of one stage directly after a call of another one; stages that are skipped do
not come between. A cut is good if its segments are alike in the calls they hold, weighed by the
time of the stages, and are short.
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hotloop.recognise.calls import (
    COUNTED_SOURCES,
    SIDE_WORK,
    TOO_MANY_OF_A_SOURCE,
    Course,
    Floats,
    Ints,
)

ANY = ""  # stands for whatever stage
# A segment that holds so many times the calls of the middle one, by time, is no iteration:
# it also holds a warm-up or an evaluation.
UNUSUAL = 10
HELD = 0.9  # of the segments hold what an iteration must hold
MOSTLY = 0.5  # of the segments hold what is not rare
# An iteration twice as short is worth this much likeness; a cut through twice the time this much.
SHORTER, LONGER_COURSE = 0.04, 0.1


@dataclass(frozen=True)
class Rule:
    """Where an iteration starts: a call of `start` that follows one of `after`, either may be ANY.

    skipped: stages that do not come between the two.
    """

    after: str
    start: str
    skipped: frozenset[str] = frozenset()

    @property
    def named(self) -> bool:
        """Whether both stages are named."""
        return ANY not in (self.after, self.start)


@dataclass(frozen=True)
class Cut:
    """A course cut at the places of a rule, (M + 1,), into M segments and two open ends."""

    course: Course
    rule: Rule
    places: Ints

    @cached_property
    def counts(self) -> Floats:
        """Calls of each stage in each segment, (M, K)."""
        return np.diff(self.course.before[self.places], axis=0).astype(np.float64)

    @cached_property
    def held_ns(self) -> Floats:
        """The time that the calls of each segment usually take, (M,): free of the clock's noise."""
        return self.counts @ self.course.weight_ns

    @cached_property
    def usual(self) -> NDArray[np.bool_]:
        """Which segments are iterations and nothing besides, (M,)."""
        if not len(self.held_ns):
            return np.zeros(0, np.bool_)
        usual: NDArray[np.bool_] = self.held_ns <= UNUSUAL * np.median(self.held_ns)
        update = self.counts[:, self.course.codes([self.course.update])]
        no_more_updates = (update <= np.median(update, axis=0)).all(axis=1)
        for code, number in self._steady():
            usual &= (self.counts[:, code] <= TOO_MANY_OF_A_SOURCE * number) | ~no_more_updates
        return usual

    @property
    def steady_sources(self) -> dict[str, int]:
        """The calls of each source that nearly all segments have equally many of."""
        return {self.course.names[code]: number for code, number in self._steady()}

    def _steady(self) -> list[tuple[int, int]]:
        found = []
        for code in self.course.codes(COUNTED_SOURCES):
            calls = self.counts[:, code]
            number = int(np.median(calls))
            if number and (calls == number).mean() >= HELD:
                found.append((code, number))
        return found

    @cached_property
    def iterations(self) -> Floats:
        """Calls of each stage in each usual segment, (m, K)."""
        return self.counts if self.usual.all() else self.counts[self.usual]

    @cached_property
    def duration_ns(self) -> Ints:
        """From the start of each usual segment to the start of the next segment, (m,)."""
        durations: Ints = np.diff(self.course.start_ns[self.places])[self.usual]
        return durations

    @property
    def count(self) -> int:
        """m: the usual segments."""
        return len(self.iterations)

    @cached_property
    def presence(self) -> Floats:
        """The share of the usual segments that hold a call of each stage, (K,)."""
        share: Floats = (self.iterations > 0).mean(axis=0)
        return share

    @cached_property
    def stage_likeness(self) -> Floats:
        """How alike the usual segments are in the calls of each stage: (Σn)²/(m Σn²), (K,).

        One if all hold the same number; p if a share p of them does and the others none.
        """
        square = self.count * (self.iterations**2).sum(axis=0)
        likeness: Floats = self.iterations.sum(axis=0) ** 2 / np.maximum(square, 1)
        return likeness

    @cached_property
    def likeness(self) -> float:
        """How alike the segments are, 0 to 1: of each stage by its time, unusual segments none.

        An unusual segment says nothing if no more is learned by it than in an iteration: it also
        holds an evaluation, which may take most of the time.
        """
        times = self.iterations.sum(axis=0) * self.course.weight_ns
        held_ns = float(self.held_ns.sum()) - self._evaluated_ns()
        return float(times @ self.stage_likeness) / max(held_ns, 1e-9)

    def _evaluated_ns(self) -> float:
        """The time in unusual segments that update no more than an iteration."""
        update = self.course.codes([self.course.update])
        if self.usual.all() or not update or not self.iterations[:, update].all():
            return 0.0
        unusual, most = self.counts[~self.usual], self.iterations[:, update].max()
        beside = unusual[:, update[0]] <= most
        return float(self.held_ns[~self.usual][beside].sum())

    @cached_property
    def score(self) -> float:
        """What is compared between cuts of one course."""
        begin, end = self.course.start_ns[self.places[[0, -1]]]
        share = max((end - begin) / max(self.course.length_ns, 1), 1e-6)
        longer = LONGER_COURSE * float(np.log2(share))
        return self.likeness + SHORTER * float(np.log2(self.count)) + longer

    def holds(self, stages: Set[str]) -> bool:
        """Whether nearly every usual segment holds each of these stages."""
        return all(self.presence[code] >= HELD for code in self.course.codes(sorted(stages)))

    def rare(self) -> tuple[str, ...]:
        """The stages between the first and the last place that are not in most iterations."""
        called = self.course.before[self.places[-1]] > self.course.before[self.places[0]]
        rare = np.flatnonzero(called & (self.presence < MOSTLY))
        return tuple(self.course.names[code] for code in rare)

    def gap_ns(self) -> float:
        """The mean time between the end of a segment's last call and the start of the next."""
        places = self.places[self.places > 0]
        return float((self.course.start_ns[places] - self.course.end_ns[places - 1]).mean())


def cut(course: Course, rule: Rule) -> Cut:
    """Cut a course by one rule."""
    kept = kept_calls(course, rule.skipped)
    code = course.code[kept]
    starts = np.ones(len(code), np.bool_)
    if rule.start != ANY:
        starts = np.isin(code, course.codes([rule.start]))
    if rule.after != ANY:
        starts[1:] &= np.isin(code[:-1], course.codes([rule.after]))
        starts[:1] = False
    return Cut(course, rule, kept[starts])


def order(course: Course) -> float:
    """How well a call tells the next one, 0 to 1: the share of calls that are the usual next."""
    code = course.code[kept_calls(course, frozenset(SIDE_WORK))]
    if len(code) < 2:
        return 1.0
    size = len(course.names)
    pairs = np.bincount(code[:-1] * size + code[1:], minlength=size * size).reshape(size, size)
    return float(pairs.max(axis=1).sum() / pairs.sum())


def kept_calls(course: Course, skipped: Set[str]) -> Ints:
    """The places of the calls that are not skipped."""
    leave = np.isin(course.code, course.codes(sorted(skipped)))
    return np.flatnonzero(~leave)
