"""A loop whose iterations are long, measured phase by phase.

A rollout of thousands of steps and the update after it take seconds together: an arm that lasts for
whole iterations has no rounds to speak of. Within such an iteration shorter periods repeat, such as
one step of the rollout, or one minibatch of the update. Each of these phases is a loop of its own:
arms switch at the boundaries of its period, and what a stage gains there counts with the part of
the time that the phase has.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hotloop.loop.conduct import Measurement
from hotloop.loop.control import SharedControl
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.loop import Loop
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.judge import gain_of, ties_of, unknown_in
from hotloop.simplify.record import Record
from hotloop.simplify.rest import sample_rest
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import Group, Rest, StageVerdict, decide

# Without a budget, each phase gets the time in which so many seconds of its own pass: the loop runs
# through the other ones meanwhile. A phase that is rare gets no more than the second; one with less
# of the time than the last gets no more at all, for nothing in it matters.
OWN_S, LONGEST_PHASE_S, WORTH_IT = 6.0, 75.0, 0.05
# A whole iteration is looked at where it takes no more than this share of the budget.
WHOLE_SHARE = 0.08
# A phase with less of the time may be refused, and the others still have a verdict.
SMALL = 0.2
_BY_PHASE = Unknown("the loop was measured phase by phase")


@dataclass(frozen=True)
class PhaseOfLoop:
    """One phase: its stages in words, its part of an iteration's time, and how often it repeats.

    times: how often its own period repeats in one iteration.
    """

    description: str
    share: float
    times: float


class PhasedExperiment:
    """An experiment for each phase, one after the other; `records` has what each has found.

    enter: called with a phase's number before its experiment, so that its periods count as
    iterations and whatever is not a part of it is left out.
    """

    def __init__(
        self,
        control: SharedControl,
        settings: SimplifySettings,
        phases: Sequence[PhaseOfLoop],
        enter: Callable[[int], None],
        iteration_s: float,
        may_take: float | None = None,
    ) -> None:
        """Prepare an experiment for each phase.

        iteration_s: how long a whole iteration takes.
        may_take: seconds that all of it may take in place of the budget, if phases are rare.
        """
        self.phases = list(phases)
        self._enter = enter
        self._iteration_s = iteration_s
        parts = budgets(self.phases, settings.budget, may_take)
        self.settings = replace(settings, budget=sum(parts))
        self.experiments = [
            Experiment(
                control,
                replace(settings, budget=part),
                time_share=phase.share,
                look_at_rest=False,
            )
            for phase, part in zip(self.phases, parts, strict=True)
        ]

    @property
    def record(self) -> Record:
        """What has been found in the phase that has the most of the time."""
        return max(zip(self.phases, self.records, strict=True), key=lambda each: each[0].share)[1]

    @property
    def records(self) -> list[Record]:
        """What has been found in each phase."""
        return [experiment.record for experiment in self.experiments]

    def run(self, loop: Loop) -> Measurement[None]:
        """Look at whole iterations, then measure one phase after the other."""
        if self._iteration_s <= WHOLE_SHARE * self.settings.budget:
            yield from sample_rest(self.records, self.settings.budget)
        for number, experiment in enumerate(self.experiments):
            self._enter(number)
            yield from experiment.run(loop)

    def explain(self, error: BaseException) -> str | None:
        """Say what to know of an exception that ended a script in an arm with a replaced stage."""
        said = (experiment.explain(error) for experiment in self.experiments)
        return next((each for each in said if each is not None), None)


def budgets(
    phases: Sequence[PhaseOfLoop], budget: float, may_take: float | None = None
) -> list[float]:
    """Return the seconds for each phase.

    A gain counts with its phase's share s of the time, and of t seconds for the phase st are its
    own: the error of the sum, Σ s²/(st), is least where t grows with √s.
    may_take: seconds for all phases, if some need more than the budget has for them.
    """
    roots = [math.sqrt(phase.share) for phase in phases]
    parts = [budget * root / sum(roots) for root in roots]
    if may_take is None:
        return parts
    wanted = [
        min(OWN_S / phase.share, LONGEST_PHASE_S) if phase.share >= WORTH_IT else 0.0
        for phase in phases
    ]
    parts = [max(part, least) for part, least in zip(parts, wanted, strict=True)]
    return [part * min(1.0, max(may_take, budget) / sum(parts)) for part in parts]


def combined(phases: Sequence[PhaseOfLoop], verdicts: Sequence[Verdict], worth: float) -> Verdict:
    """Return one verdict: every phase counts with its part of the time of an iteration."""
    both = list(zip(phases, verdicts, strict=True))
    main = max(both, key=lambda each: each[0].share)[1]
    names = dict.fromkeys(row.name for _, verdict in both for row in verdict.rows)
    rows = [_row(name, both, worth) for name in names]
    rows.sort(key=lambda row: (row.inside is not None, -gain_of(row), -row.share))
    candidates = [row for row in rows if row.verdict == "fix"]
    fix = max(candidates, key=gain_of, default=None)
    refused = next(
        (f"{p.description}: {v.refused}" for p, v in both if v.refused and p.share > SMALL), None
    )
    return replace(
        main,
        baseline_ns=_baseline(both),
        units_per_iteration=sum(p.times * v.units_per_iteration for p, v in both),
        rows=rows,
        pairs=[],
        groups=_groups(both),
        rest=_rest(both),
        ladder=_BY_PHASE,
        refused=refused,
        fix=None if refused else fix,
        ties=[] if refused or fix is None else ties_of(candidates, fix),
        unknown=unknown_in(rows),
        leave=[row.name for row in rows if row.verdict == "leave"],
        rounds=min(verdict.rounds for verdict in verdicts),
        seconds=sum(verdict.seconds for verdict in verdicts),
        warnings=[f"{p.description}: {warning}" for p, v in both for warning in v.warnings],
        contention=any(verdict.contention for verdict in verdicts),
        blocks="; ".join(
            f"{p.description}, {p.share:.0%} of the time: {v.rounds} rounds, {v.blocks}"
            for p, v in both
        ),
    )


def _row(name: str, both: Sequence[tuple[PhaseOfLoop, Verdict]], worth: float) -> StageVerdict:
    """One stage over all phases that have it."""
    seen = [(p, row) for p, v in both for row in v.rows if row.name == name]
    largest = max(seen, key=lambda each: each[0].share * max(gain_of(each[1]), 0.0))[1]
    gain = _sum((p.share, row.gain) for p, row in seen)
    known = [row.p_adjusted for _, row in seen if row.p_adjusted is not None]
    adjusted = min(known, default=None)
    return replace(
        largest,
        share=sum(p.share * row.share for p, row in seen),
        ns_per_iteration=sum(p.times * row.ns_per_iteration for p, row in seen),
        calls_per_iteration=sum(p.times * row.calls_per_iteration for p, row in seen),
        gain=gain,
        value_ns=_sum((p.times, row.value_ns) for p, row in seen),
        p_adjusted=adjusted,
        faster={k: _sum((p.share, row.faster[k]) for p, row in seen) for k in largest.faster},
        ceiling_ns=_BY_PHASE,
        interference_ns=_sum((p.times, row.interference_ns) for p, row in seen),
        latency_ns=_sum((p.times, row.latency_ns) for p, row in seen),
        slack=_BY_PHASE,
        verdict=decide(gain, adjusted, worth),
    )


def _groups(both: Sequence[tuple[PhaseOfLoop, Verdict]]) -> list[Group]:
    """The parts of the loop, over all phases that have them."""
    found: dict[str, list[tuple[float, Group]]] = {}
    for phase, verdict in both:
        for group in verdict.groups:
            found.setdefault(group.name, []).append((phase.share, group))
    groups = []
    for name, seen in found.items():
        gain = _sum((share, group.gain) for share, group in seen)
        stages = dict.fromkeys(stage for _, group in seen for stage in group.stages)
        if isinstance(gain, Interval):
            adjusted = min(group.p_adjusted for _, group in seen)
            groups.append(Group(name, tuple(stages), gain, adjusted))
    return groups


def _rest(both: Sequence[tuple[PhaseOfLoop, Verdict]]) -> Rest | None:
    """What is no stage in each phase, and what is between the phases."""
    rests = [(phase.share, verdict.rest) for phase, verdict in both if verdict.rest is not None]
    if len(rests) < len(both):
        return None
    between = 1 - sum(share for share, _ in rests)
    left = _sum([(share, rest.left) for share, rest in rests])
    if isinstance(left, Interval):
        left = Interval(left.value + between, left.low + between, left.high + between)
    return Rest(sum(share * rest.share for share, rest in rests) + between, left)


def _sum(parts: Iterable[tuple[float, Interval | Unknown]]) -> Interval | Unknown:
    """A weighted sum of independent figures; unknown if one of them is."""
    value = below = above = 0.0
    for weight, part in parts:
        if isinstance(part, Unknown):
            return part
        value += weight * part.value
        below += (weight * (part.value - part.low)) ** 2
        above += (weight * (part.high - part.value)) ** 2
    return Interval(value, value - math.sqrt(below), value + math.sqrt(above))


def _baseline(both: Sequence[tuple[PhaseOfLoop, Verdict]]) -> Interval | Unknown:
    """The time of a whole iteration: that of the phases, and of what is between them."""
    inside = _sum((p.times, v.baseline_ns) for p, v in both)
    covered = sum(phase.share for phase, _ in both)
    return inside if isinstance(inside, Unknown) else inside.scaled(1 / covered)
