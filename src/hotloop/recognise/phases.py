"""The phases of a course: warm-up, steady training, evaluation; and those within one iteration.

A phase is described by its stages alone: what it is for, only the user knows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotloop.recognise.calls import Call, Course, course_of
from hotloop.recognise.cuts import Rule, cut
from hotloop.recognise.period import Iteration, iteration_of
from hotloop.recognise.stretches import Stretch, stretches

# A stage with less of the time is not named where nothing repeats.
NAMED = 0.02
# Periods within one iteration that make a phase of their own, and how alike they are.
FEWEST_PERIODS, ALIKE = 4, 0.8
# Iterations whose inner phases are looked at: enough for a mean.
LOOKED_AT = 9


@dataclass(frozen=True)
class Phase:
    """A stretch of a course whose calls are alike.

    description: its stages, in order. begin, end: its first call and the call after its last, as
    places in the course. start_ns, end_ns: of the clock of the calls. share_of_time: of the course.
    iteration: what repeats in it; the mean over all phases with the same description that follow
    from one loop. None where nothing repeats.
    """

    description: str
    begin: int
    end: int
    start_ns: int
    end_ns: int
    share_of_time: float
    iteration: Iteration | None


@dataclass(frozen=True)
class InnerPhase:
    """A part of every iteration in which a shorter period repeats.

    description: its stages, in order. period: what repeats. share_of_time: of the iteration.
    """

    description: str
    period: Iteration
    share_of_time: float


def phases(calls: Sequence[Call]) -> list[Phase]:
    """Divide a course into its phases, in order. Together they hold every call."""
    course = course_of(calls)
    found = stretches(course)
    periods = {id(s.cut): iteration_of(s.cut) for s in found if s.cut is not None}
    return [_phase(course, s, periods.get(id(s.cut))) for s in found]


def inner_phases(calls: Sequence[Call], iteration: Iteration) -> list[InnerPhase]:
    """The phases within an iteration that repeat something shorter, in the order they come in.

    Empty if there is none, or if one alone is the whole iteration.
    """
    course = course_of(calls)
    whole = cut(course, Rule(iteration.after, iteration.start, iteration.skipped))
    usual = np.flatnonzero(whole.usual)
    if not len(usual):
        return []
    looked_at = usual[np.unique(np.linspace(0, len(usual) - 1, LOOKED_AT).round().astype(int))]
    seen: dict[str, list[tuple[Iteration, float]]] = {}
    total_ns = 0
    for k in looked_at:
        begin, end = whole.places[k], whole.places[k + 1]
        total_ns += int(course.start_ns[end] - course.start_ns[begin])
        for name, period, length_ns in _repeated(course.part(int(begin), int(end))):
            seen.setdefault(name, []).append((period, length_ns))
    return [
        InnerPhase(name, _mean(p for p, _ in own), sum(ns for _, ns in own) / total_ns)
        for name, own in seen.items()
        if 2 * len(own) > len(looked_at)
    ]


def _phase(course: Course, stretch: Stretch, period: Iteration | None) -> Phase:
    start_ns, end_ns = int(course.start_ns[stretch.begin]), int(course.end_ns[stretch.end - 1])
    part = course.part(stretch.begin, stretch.end)
    share = (end_ns - start_ns) / max(course.length_ns, 1)
    name = _stages(period) if period else _most_of(part)
    return Phase(name, stretch.begin, stretch.end, start_ns, end_ns, share, period)


def _stages(period: Iteration) -> str:
    return ", ".join(name for name in period.calls if name not in period.rare)


def _most_of(part: Course) -> str:
    """The stages that have most of the time, in the order of their first calls."""
    times = part.before[-1] * part.call_ns
    named = [part.names[k] for k in np.flatnonzero(times >= NAMED * times.sum())]
    return ", ".join(sorted(named, key=part.first))


def _repeated(part: Course) -> Iterable[tuple[str, Iteration, float]]:
    """What repeats within one iteration: description, period, ns."""
    for stretch in stretches(part, lambda _: frozenset()):
        if stretch.cut is None or stretch.cut.count < FEWEST_PERIODS:
            continue
        if stretch.cut.likeness < ALIKE:
            continue
        period = iteration_of(stretch.cut)
        length_ns = part.end_ns[stretch.end - 1] - part.start_ns[stretch.begin]
        yield _stages(period), period, float(length_ns)


def _mean(periods: Iterable[Iteration]) -> Iteration:
    """The mean of the periods of one inner phase, each by how often it was seen."""
    own = list(periods)
    counts = np.array([p.count for p in own])
    names = dict.fromkeys(name for p in own for name in p.calls)

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=counts))

    return replace(
        max(own, key=lambda p: p.count),
        calls={name: mean([p.calls.get(name, 0.0) for p in own]) for name in names},
        duration_s=mean([p.duration_s for p in own]),
        confidence=mean([p.confidence for p in own]),
        count=int(counts.sum()),
        rare=tuple(dict.fromkeys(name for p in own for name in p.rare)),
    )
