"""The iterations of a loop, found from the order of its calls, and recognised while it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hotloop.errors import SettingError, nearest
from hotloop.loop.figures import Unknown
from hotloop.recognise.calls import ACT, SIDE_WORK, UPDATE, Call, Course, course_of
from hotloop.recognise.cuts import ANY, Cut, Rule, cut, order
from hotloop.recognise.search import FEWEST
from hotloop.recognise.stretches import steady
from hotloop.recognise.turns import Steps, Turns, in_turns

__all__ = ["ANY", "Call", "Iteration", "Matcher", "find_iteration"]

# A call tells the next one in this share of the cases where an order can be seen.
REPEATS_IN_ORDER = 0.6
# The durations that are compared, between these quantiles. Where other programs want the cores too,
# one iteration in seven may be interrupted, for tens of times its own length.
MIDDLE = (0.05, 0.75)
# Stages of which an iteration has as many calls, within this share, stand in one bracket.
EQUALLY_OFTEN = 0.02
# What a loop of something else calls now and then, or several times in each iteration.
_BESIDE = {*SIDE_WORK, ACT, "communication", "transfer", "sync"}


@dataclass(frozen=True)
class Iteration:
    """The iteration of a loop, in the course's steady phase.

    after, start: an iteration starts where a call of `start` directly follows one of `after`; ANY
    stands for whatever stage. calls: the mean calls of each stage in one iteration, in the order of
    their first calls. duration_s: the mean. confidence: how alike the iterations are, in their
    calls and in their time, over how many; 0 to 1. count: the iterations that were seen. rare:
    stages that are not in most iterations. skipped: stages that do not come between `after` and
    `start`. begin_ns: the start of the first of them. last: where updates take turns, those that
    come before an iteration starts. steady: the calls of each source that nearly all iterations
    have equally many of.
    """

    after: str
    start: str
    calls: Mapping[str, float]
    duration_s: float
    confidence: float
    count: int
    rare: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()
    begin_ns: int = 0
    last: tuple[Steps, ...] = ()
    steady: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        groups: list[tuple[float, list[str]]] = []
        for name, calls in self.calls.items():
            if name in self.rare:
                continue
            if groups and abs(calls - groups[-1][0]) <= EQUALLY_OFTEN * calls:
                fewest, names = groups.pop()
                groups.append((min(fewest, calls), [*names, name]))
            else:
                groups.append((calls, [name]))
        return f"{', '.join(_group(*each) for each in groups)}: {_seconds(self.duration_s)}"


class Matcher:
    """Says of each outermost call of the main thread whether an iteration starts with it.

    Stages that the iterations did not have when they were found do not come between.
    """

    __slots__ = ("_after", "_any_after", "_any_start", "_last", "_regarded", "_start", "_turns")

    def __init__(self, iteration: Iteration) -> None:
        self._after = iteration.after
        self._start = iteration.start
        self._any_after = iteration.after == ANY
        self._any_start = iteration.start == ANY
        self._regarded = frozenset(iteration.calls) - iteration.skipped
        self._last = ANY
        self._turns = Turns(iteration.last)

    def marking(self, update: str) -> frozenset[str] | None:
        """The stages whose calls say where iterations begin; None if those of all do.

        update: the stage whose calls take turns, where any do.
        """
        if self._any_start:
            return None
        marking = {self._start} | ({self._after} - {ANY})
        return frozenset(marking | ({update} if self._turns.has_turns else set()))

    def starts(self, name: str, turn: int = 0) -> bool:
        """Whether an iteration starts with this call. To be asked for every call, in order.

        turn: see `Call`.
        """
        if name not in self._regarded:
            return False
        last = self._last
        self._last = name
        begins = (self._any_start or name == self._start) and (
            self._any_after or last == self._after
        )
        if begins:
            begins = self._turns.begins()
        if turn:
            self._turns.step(turn)
        return begins


def find_iteration(
    calls: Sequence[Call], *, stage: str | None = None, update: str = UPDATE
) -> Iteration | Unknown:
    """Find the iteration of the loop that made these calls.

    stage: the user's choice: an iteration starts at each call of it. Otherwise the shortest period
    that repeats and holds the whole course of the loop's last long phase; with an update in the
    course, the last long phase that updates. update: the stage that changes what is learned.
    Raises: SettingError for a stage that is not called.
    """
    course = course_of(calls, update)
    if stage is not None:
        return _chosen(course, stage)
    why = _too_little(course)
    if why:
        return Unknown(why)
    found = steady(course)
    if found is None:
        return Unknown(_nothing_repeats(course))
    turns = in_turns(found)
    if turns is None:
        return iteration_of(found)
    if turns[0].count < FEWEST:
        return Unknown(_nothing_repeats(course))
    return replace(iteration_of(turns[0]), last=turns[1])


def iteration_of(found: Cut) -> Iteration:
    """The figures of the iterations of a cut."""
    means = found.iterations.mean(axis=0)
    durations = found.duration_ns.astype(np.float64)
    # An iteration that the machine interrupted says nothing against the others.
    inner = np.clip(durations, *np.quantile(durations, MIDDLE))
    alike_in_time = inner.mean() ** 2 / max((inner**2).mean(), 1e-9)
    names = found.course.names
    return Iteration(
        found.rule.after,
        found.rule.start,
        {names[k]: float(means[k]) for k in _by_first_call(found) if means[k] > 0},
        float(durations.mean()) * 1e-9,
        float(found.likeness * np.sqrt(alike_in_time) * (1 - 1 / found.count)),
        found.count,
        found.rare(),
        found.rule.skipped,
        int(found.course.start_ns[found.places[0]]),
        steady=found.steady_sources,
    )


def _chosen(course: Course, stage: str) -> Iteration | Unknown:
    if stage not in course.has:
        raise SettingError(f"stage: no stage {stage!r} was called{nearest(stage, course.names)}")
    found = cut(course, Rule(ANY, stage))
    if found.count < FEWEST:
        return Unknown(
            f"{stage} was called {len(found.places)} times: {FEWEST + 1} calls show whether "
            "iterations are alike; measure for longer, or choose a stage that is called more often"
        )
    return iteration_of(found)


def _too_little(course: Course) -> str:
    """Why a course cannot show an iteration, whatever its order; empty if it can."""
    if len(course) < FEWEST + 1:
        return (
            f"{len(course)} calls of stages were seen, at least {FEWEST + 1} show a repetition: "
            "measure for longer, or name the stages of the loop"
        )
    if course.has == {"communication"}:
        return (
            "the script itself only waits for others (communication): its loop runs in other "
            "processes; watch it there, by hotloop.watch() in the function that they run"
        )
    if len(course.has) == 1 and course.has <= _BESIDE:
        return (
            f"only {_listed(course)} was called: no data, no env step, no update; "
            "choose it as the stage if each call of it is an iteration"
        )
    return ""


def _nothing_repeats(course: Course) -> str:
    """Why no iteration was found, and what would help."""
    choose = "choose the stage that starts an iteration"
    if order(course) < REPEATS_IN_ORDER:
        return f"the calls of {_listed(course)} come in no order that repeats; {choose}"
    updates = int(course.before[-1][course.codes([course.update])].sum())
    seen = f"{updates} calls of {course.update}" if updates else f"calls of {_listed(course)}"
    return (
        f"{len(course)} calls, with {seen}, hold fewer than {FEWEST} whole iterations that are "
        f"alike: measure for longer, or {choose}"
    )


def _listed(course: Course) -> str:
    return ", ".join(name for name in course.names if name in course.has)


def _by_first_call(found: Cut) -> list[int]:
    """The stages in the order of their first calls in the middle one of the iterations."""
    places = np.flatnonzero(found.usual)
    middle = places[len(places) // 2]
    code = found.course.code[found.places[middle] : found.places[middle + 1]]
    seen = list(dict.fromkeys(code.tolist()))
    return seen + [k for k in range(len(found.course.names)) if k not in seen]


def _group(calls: float, names: Sequence[str]) -> str:
    text = ", ".join(names)
    number = f"{calls:.1f}".removesuffix(".0")
    if number == "1":
        return text
    return f"{number} x ({text})" if len(names) > 1 else f"{number} x {text}"


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size / 10:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
