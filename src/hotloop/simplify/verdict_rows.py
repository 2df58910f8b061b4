"""The rows of a verdict: the cost of one stage, its kind, and the possible gain.

Pure functions of the saved record and its samples.
"""

from dataclasses import dataclass, replace
from typing import Literal

from hotloop.loop.figures import Interval, Unknown
from hotloop.simplify.arm_names import (
    ALL_FREE,
    BASELINE,
    delay_name,
    free_name,
    pad_name,
    pair_name,
)
from hotloop.simplify.ceilings import Ladder
from hotloop.simplify.estimate import Samples
from hotloop.simplify.faster import gain_if_faster
from hotloop.simplify.record import Record
from hotloop.simplify.slack import Slack, fit_slack
from hotloop.simplify.stage_facts import Place, StageFacts

SIGNIFICANT = 0.05
CostKind = Literal["waiting", "contention", "own work", "unknown"]


@dataclass(frozen=True)
class StageVerdict:
    """One row of the table."""

    name: str
    kind: str
    effect: str
    inside: str | None
    share: float
    ns_per_iteration: float
    calls_per_iteration: float
    gain: Interval | Unknown
    value_ns: Interval | Unknown
    p_adjusted: float | None
    faster: dict[float, Interval | Unknown]  # the gain if it were so many times faster
    ceiling_ns: Interval | Unknown
    interference_ns: Interval | Unknown
    latency_ns: Interval | Unknown
    slack: Slack | Unknown
    cost: CostKind
    verdict: Literal["fix", "leave", "unclear", "not replaced"]
    not_replaced: str | None

    @property
    def gain_if_faster(self) -> Interval | Unknown:
        """The gain for the first number of times that was asked for."""
        return next(iter(self.faster.values()), Unknown("no number of times was asked for"))


@dataclass(frozen=True)
class Pair:
    """Two stages that gain little alone, free together."""

    stages: tuple[str, str]
    gain: Interval
    p_adjusted: float


@dataclass(frozen=True)
class Group:
    """Stages that are one part of the loop, free together."""

    name: str
    stages: tuple[str, ...]
    gain: Interval
    p_adjusted: float


@dataclass(frozen=True)
class Rest:
    """What is between the stages: its share of the time, and what is left when all are free.

    The latter has in it what cannot be replaced.
    """

    share: float
    left: Interval | Unknown


@dataclass(frozen=True)
class Rows:
    """Makes the rows of a verdict: `row` for a stage, `pairs` for two at once, `groups` for parts.

    shift: the known difference of equal arms; worth: the smallest gain that counts, as a share.
    """

    record: Record
    samples: Samples
    ladder: Ladder | Unknown
    p_values: dict[str, float]
    shift: float
    worth: float

    def row(self, stage: StageFacts) -> StageVerdict:
        """Return the row of one stage."""
        record, samples = self.record, self.samples
        free = free_name(stage.name)
        gain: Interval | Unknown = Unknown(stage.not_replaced or "too few rounds")
        value: Interval | Unknown = gain
        faster = {k: self._if_faster(stage, k) for k in record.faster}
        if stage.replaceable and samples.has(free, BASELINE):
            means = samples.means([BASELINE, free])
            gain = self._widened(means.gain(free, BASELINE))
            value = means.difference(BASELINE, free)
        interference, latency = _padded(record, samples, stage)
        adjusted = self.p_values.get(free)
        found = self.ladder
        ceiling: Interval | Unknown = Unknown(
            found.why
            if isinstance(found, Unknown)
            else stage.not_replaced or "it is inside another"
        )
        if isinstance(found, Ladder) and stage.name in found.ceilings_ns:
            ceiling = found.ceilings_ns[stage.name]
        return StageVerdict(
            name=stage.name,
            kind=stage.kind,
            effect=stage.effect,
            inside=stage.inside,
            share=stage.share,
            ns_per_iteration=stage.ns_per_iteration,
            calls_per_iteration=stage.calls_per_iteration,
            gain=gain,
            value_ns=value,
            p_adjusted=adjusted,
            faster=faster,
            ceiling_ns=ceiling,
            interference_ns=interference,
            latency_ns=latency,
            slack=_slack(record, samples, stage),
            cost=_cost(record, stage, value, interference),
            verdict=decide(gain, adjusted, self.worth),
            not_replaced=stage.not_replaced,
        )

    def pairs(self) -> list[Pair]:
        """Return the pairs of stages that were free together."""
        found = []
        names = [stage.name for stage in self.record.stages]
        for first in names:
            for second in names:
                arm = pair_name(first, second)
                # A stage may have the name of two that are within it.
                if f"{first} + {second}" not in names and self.samples.has(arm, BASELINE):
                    found.append(Pair((first, second), self._gain(arm), self.p_values[arm]))
        return found

    def groups(self) -> list[Group]:
        """Return the parts of the loop whose stages were free together."""
        return [
            Group(name, tuple(stages), self._gain(arm), self.p_values[arm])
            for name, stages in self.record.groups.items()
            if self.samples.has(arm := free_name(name), BASELINE)
        ]

    def rest(self) -> Rest | None:
        """Return what is no stage; None where stages run beside others, or some are left out."""
        if self.record.concurrent or self.record.focus or not self.record.stages:
            return None
        outer = [stage for stage in self.record.stages if stage.inside is None]
        free = [stage.name for stage in outer if stage.replaceable]
        arm = free_name(free[0]) if len(free) == 1 else ALL_FREE
        left: Interval | Unknown = Unknown("the stages were not free together")
        if self.samples.has(arm, BASELINE):
            gain = self._gain(arm)
            left = Interval(1 - gain.value, 1 - gain.high, 1 - gain.low)
        return Rest(self.record.rest_share, left)

    def places(self) -> list[Place]:
        """Return what runs between the stages, by its share of the time as the rounds have it.

        It was sampled before them, when the stages could have another share.
        """
        places, sampled_of = self.record.rest_places, self.record.rest_share_when_sampled
        if not sampled_of:
            return places
        scale = self.record.rest_share / sampled_of
        return [replace(place, share=place.share * scale) for place in places]

    def _gain(self, arm: str) -> Interval:
        return self._widened(self.samples.means([BASELINE, arm]).gain(arm, BASELINE))

    def _widened(self, gain: Interval) -> Interval:
        """A gain whose interval contains the known difference of equal arms."""
        return Interval(gain.value, gain.low - self.shift, gain.high + self.shift)

    def _if_faster(self, stage: StageFacts, k: float) -> Interval | Unknown:
        samples, free = self.samples, free_name(stage.name)
        if not (stage.replaceable and samples.has(free, BASELINE)):
            return Unknown(stage.not_replaced or _too_few_rounds(samples, stage))
        gain = samples.means([BASELINE, free]).gain(free, BASELINE)
        found = gain_if_faster(self.record, samples, stage, gain, k)
        if found is None and gain.high < self.worth:
            # What gains nothing when it is free gains nothing when it is faster.
            found = Interval(gain.value * (1 - 1 / k), min(gain.low, 0.0), gain.high)
        return Unknown(_too_few_rounds(samples, stage)) if found is None else self._widened(found)


def decide(
    gain: Interval | Unknown, p_adjusted: float | None, worth: float
) -> Literal["fix", "leave", "unclear", "not replaced"]:
    """What to do about a stage. worth: the smallest gain that counts, as a share."""
    if isinstance(gain, Unknown):
        return "not replaced"
    if p_adjusted is not None and p_adjusted < SIGNIFICANT and gain.value >= worth:
        return "fix"
    return "leave" if gain.high < 2 * worth else "unclear"


def _padded(
    record: Record, samples: Samples, stage: StageFacts
) -> tuple[Interval | Unknown, Interval | Unknown]:
    pad, free = pad_name(stage.name), free_name(stage.name)
    if samples.has(BASELINE, pad, free):
        means = samples.means([BASELINE, pad, free])
        return means.difference(BASELINE, pad), means.difference(pad, free)
    why = stage.not_replaced or (
        f"a call takes {stage.ns_per_call / 1e3:.0f} µs, and waits under "
        f"{record.shortest_wait_ns / 1e3:.0f} µs are not measurable here"
        if stage.ns_per_call < record.shortest_wait_ns
        else _too_few_rounds(samples, stage)
    )
    return Unknown(why), Unknown(why)


def _too_few_rounds(samples: Samples, stage: StageFacts) -> str:
    """Why the later arms of a replaceable stage have too few rounds."""
    free = free_name(stage.name)
    rounds = len(samples.rounds([BASELINE])) if BASELINE in samples.arms else 0
    if free in samples.arms and len(samples.rounds([free])) < rounds:
        return "its gain was too small to go on"
    return "the budget was used up before; give a larger --budget"


def _slack(record: Record, samples: Samples, stage: StageFacts) -> Slack | Unknown:
    names = [
        name
        for number in (1, 2, 3)
        if samples.has(name := delay_name(stage.name, number), BASELINE)
    ]
    if not names:
        return Unknown("no delay was tried")
    means = samples.means([BASELINE, *names])
    delayed = [(name, record.mean_delay_ns(name)) for name in names]
    if max(delay for _, delay in delayed) <= 0:
        return Unknown("no delay happened")
    return fit_slack(means, BASELINE, delayed)


def _cost(
    record: Record,
    stage: StageFacts,
    value: Interval | Unknown,
    interference: Interval | Unknown,
) -> CostKind:
    """Whether the stage costs by waiting, by contention with others, or by its own work."""
    if record.concurrent and _is_contention(value, interference):
        return "contention"
    if stage.kind in ("io", "network"):
        return "waiting"
    if record.concurrent and stage.beside_main and not _is_no_contention(value, interference):
        return "unknown"
    if stage.kind == "gpu":
        return "own work"
    if stage.cpu_share is None:
        return "unknown"
    return "own work" if stage.cpu_share >= 0.5 else "waiting"


def _is_contention(value: Interval | Unknown, interference: Interval | Unknown) -> bool:
    """Whether half of a stage's cost or more is contention with the others."""
    if isinstance(value, Unknown) or isinstance(interference, Unknown):
        return False
    return interference.low > 0 and interference.value >= 0.5 * max(value.value, 1e-9)


def _is_no_contention(value: Interval | Unknown, interference: Interval | Unknown) -> bool:
    """Whether the interval rules out that half of the cost is contention with the others."""
    if isinstance(interference, Unknown):
        return False
    return isinstance(value, Unknown) or interference.high < 0.5 * max(value.value, 1e-9)
