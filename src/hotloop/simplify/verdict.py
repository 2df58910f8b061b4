"""What an experiment's record says: which stage to fix, what it is worth, what to leave alone.

Pure functions of the saved record. The verdict is refused where the arms that are the same as the
baseline came out different from it: then the machine, not the loop, was measured.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Figure, Unknown
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.simplify.ceilings import Ladder, PipelineModel, Rung, ladder
from hotloop.simplify.estimate import FEW_EVENTS, MIN_ROUNDS, Samples, Slack, fit_slack, holm
from hotloop.simplify.names import (
    BASELINE,
    delay_name,
    faster_name,
    free_name,
    is_aa,
    is_free,
    pad_name,
    pair_name,
)
from hotloop.simplify.record import Record, StageFacts

SIGNIFICANT = 0.05
# Arms that are the same may differ by this share of the smallest gain worth knowing.
EQUIVALENCE = 1 / 3
CostKind = Literal["waiting", "contention", "own work", "unknown"]


@dataclass(frozen=True)
class AaTest:
    """The arms in which nothing is changed, each against the others of its kind.

    holds: no interval lies wholly outside the margin of equivalence; their confidence is that of
    all of them together. shift: by how much they are known to differ all the same; every interval
    is widened by it.
    """

    holds: bool
    gains: dict[str, Interval]
    margin: float
    shift: float
    needed_s: float | None  # how much more time a verdict would take, if it is refused


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
    faster_by: str
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
class Verdict:
    """The answer of an experiment."""

    target: str
    unit: str
    baseline_ns: Interval | Unknown
    units_per_iteration: float
    faster: list[float]  # how many times faster, that were tried
    rows: list[StageVerdict]
    pairs: list[Pair]
    ladder: Ladder | Unknown
    aa: AaTest
    refused: str | None
    fix: StageVerdict | Pair | None
    ties: list[str]  # other stages to fix that gain as much, as far as can be told
    unknown: list[str]  # stages of which no gain is known: they were not replaced
    leave: list[str]
    rounds: int
    seconds: float
    warnings: list[str]
    contention: bool
    blocks: str  # how long they were, and what a switch of arms leaves behind
    price_per_hour: float | None


def judge_run(run: Run) -> tuple[Verdict, Record]:
    """The verdict of a saved run. Raises: RunError if it is no experiment's, or not whole."""
    if run.verb != "simplify":
        raise RunError(f"a {run.verb} run of {run.target} has no experiment in it")
    try:
        record = Record.from_run(run.facts, run.arrays)
    except (KeyError, TypeError) as error:
        raise RunError(
            f"the run of {run.target} lacks what this version reads ({error}); measure it again"
        ) from None
    settings: dict[str, Any] = run.settings
    return judge(record, run.target, settings["worth"], settings["seed"], run.complete), record


def judge(
    record: Record, target: str, worth: float, seed: int = 0, complete: bool = True
) -> Verdict:
    """Weigh a record. worth: the smallest gain that counts, as a share."""
    samples = record.samples(seed)
    p_values = _adjusted(samples)
    aa = aa_test(record, seed, worth)
    found = ladder(record, samples)
    judging = _Judging(record, samples, found, p_values, aa, worth)
    rows = [judging.row(stage) for stage in record.looked_at()]
    pairs = judging.pairs()
    enough = samples.has(BASELINE)
    rounds = len(samples.rounds([BASELINE])) if BASELINE in samples.arms else 0
    refused = _refusal(record, aa, enough, rounds)
    fix, ties = _to_fix(rows, pairs, worth)
    return Verdict(
        target=target,
        unit=record.unit,
        baseline_ns=samples.raw_time(BASELINE) if enough else Unknown("too few rounds"),
        units_per_iteration=record.units_per_iteration,
        faster=list(record.faster),
        rows=sorted(rows, key=lambda row: (row.inside is not None, -_gain_of(row), -row.share)),
        pairs=pairs,
        ladder=found,
        aa=aa,
        refused=refused,
        fix=None if refused else fix,
        ties=[] if refused else ties,
        unknown=[row.name for row in rows if row.verdict == "not replaced"],
        leave=[row.name for row in rows if row.verdict == "leave"],
        rounds=rounds,
        seconds=record.seconds,
        warnings=_warnings(record, complete),
        contention=record.concurrent and not _model_holds(found),
        blocks=_blocks(record),
        price_per_hour=record.price_per_hour,
    )


def _refusal(record: Record, aa: AaTest, enough: bool, rounds: int) -> str | None:
    """Why there is no verdict, and what would give one; None if there is."""
    if record.warm_up is None:
        return (
            "the budget ended before the loop had warmed up; give a --budget of many iterations' "
            "time"
        )
    if not enough:
        return (
            f"only {rounds} rounds were measured, {MIN_ROUNDS} are the least for an interval; "
            f"give a --budget of about {_seconds_for(record, rounds, 2 * MIN_ROUNDS):.0f} s"
        )
    if aa.holds:
        return None
    worst = max(aa.gains.values(), key=lambda gain: abs(gain.value))
    return (
        f"two arms that are the same differ by {100 * worst.value:+.1f}% "
        f"[{100 * worst.low:+.1f}, {100 * worst.high:+.1f}], which is more than "
        f"{100 * aa.margin:.1f}%, a third of the smallest gain worth knowing: this machine is too "
        f"restless for a verdict now; about {(aa.needed_s or 0) / 60:.1f} more minutes would be "
        "needed"
    )


def _to_fix(
    rows: list[StageVerdict], pairs: list[Pair], worth: float
) -> tuple[StageVerdict | Pair | None, list[str]]:
    """The stage that gains most, and those that gain as much as far as can be told."""
    candidates = [row for row in rows if row.verdict == "fix"]
    if candidates:
        best = max(candidates, key=_gain_of)
        ties = [row.name for row in candidates if row is not best and _ties(row, best)]
        return best, ties
    significant = [p for p in pairs if p.p_adjusted < SIGNIFICANT and p.gain.value >= worth]
    return max(significant, key=lambda pair: pair.gain.value, default=None), []


def _ties(row: StageVerdict, best: StageVerdict) -> bool:
    """Whether two gains differ by no more than their errors together."""
    assert isinstance(row.gain, Interval)
    assert isinstance(best.gain, Interval)
    apart = best.gain.value - row.gain.value
    return apart <= float(np.hypot(best.gain.half_width, row.gain.half_width))


def aa_test(record: Record, seed: int = 0, worth: float = 0.03) -> AaTest:
    """Compare the arms in which nothing is changed: are they the same within a margin?

    A test against exactly none would refuse the more, the more precise an experiment is.
    """
    samples = record.samples(seed)
    names = [name for name in samples.arms if is_aa(name) and samples.has(name, BASELINE)]
    margin = EQUIVALENCE * worth
    # Bonferroni: none of them may be wrong in more than 5 of 100 experiments.
    confidence = 1 - SIGNIFICANT / max(1, len(names))
    gains = {name: samples.same_gain(name, confidence) for name in names}
    failed = [gain for gain in gains.values() if gain.low > margin or gain.high < -margin]
    differ = [abs(gain.value) for gain in gains.values() if 0.0 not in gain]
    needed = None
    if failed:
        worst = max(abs(gain.value) for gain in failed)
        # Errors shrink with the root of the time; and a wrong A/A wants at least as much again.
        needed = record.seconds * max(1.0, (worst / worth) ** 2)
    return AaTest(not failed, gains, margin, max(differ, default=0.0), needed)


def _adjusted(samples: Samples) -> dict[str, float]:
    """Holm-adjusted p-values of the family: everything that was made free."""
    family = [name for name in samples.arms if is_free(name) and samples.has(name, BASELINE)]
    raw = [samples.means([BASELINE, name]).p_value(name, BASELINE) for name in family]
    return dict(zip(family, holm(raw), strict=True))


@dataclass(frozen=True)
class _Judging:
    """What every row of a verdict is worked out from."""

    record: Record
    samples: Samples
    ladder: Ladder | Unknown
    p_values: dict[str, float]
    aa: AaTest
    worth: float

    def row(self, stage: StageFacts) -> StageVerdict:
        """One stage's row."""
        record, samples = self.record, self.samples
        free = free_name(stage.name)
        gain: Interval | Unknown = Unknown(stage.not_replaced or "too few rounds")
        value: Interval | Unknown = gain
        if stage.replaceable and samples.has(free, BASELINE):
            means = samples.means([BASELINE, free])
            gain = self._widened(means.gain(free, BASELINE))
            value = means.difference(BASELINE, free)
        interference, latency = _padded(record, samples, stage)
        faster, how = self._faster(stage, gain)
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
            faster_by=how,
            ceiling_ns=ceiling,
            interference_ns=interference,
            latency_ns=latency,
            slack=_slack(record, samples, stage),
            cost=_cost(record, stage, value, interference),
            verdict=_call(gain, adjusted, self.worth),
            not_replaced=stage.not_replaced,
        )

    def pairs(self) -> list[Pair]:
        """Stages that gain little alone, free together."""
        found = []
        names = [stage.name for stage in self.record.stages]
        for first in names:
            for second in names:
                arm = pair_name(first, second)
                if self.samples.has(arm, BASELINE):
                    gain = self.samples.means([BASELINE, arm]).gain(arm, BASELINE)
                    found.append(Pair((first, second), self._widened(gain), self.p_values[arm]))
        return found

    def _faster(
        self, stage: StageFacts, gain: Interval | Unknown
    ) -> tuple[dict[float, Interval | Unknown], str]:
        """The gain for every number of times that was asked for, and how it was stood for."""
        found: dict[float, Interval | Unknown] = {}
        used = ""
        number = self.record.stages.index(stage)
        free = free_name(stage.name)
        for k in self.record.faster:
            found[k] = Unknown(stage.not_replaced or _not_gone_on(self.samples, stage))
            for how in ("burn", "wait"):
                arm = faster_name(stage.name, how, k)
                if self.samples.has(arm, free, BASELINE):
                    if how == "burn" and self.record.concurrent:
                        # It computed for 1/k of the processor time; its duration is the others'.
                        tried = self.samples.means([BASELINE, arm]).gain(arm, BASELINE)
                    else:
                        tried = self.samples.if_faster(free, arm, number, k)
                    found[k], used = _at_most(self._widened(tried), gain), how
            if isinstance(found[k], Unknown) and isinstance(gain, Interval):
                # Where calls follow each other, a part of a stage saves that part of its time.
                part = 1 - 1 / k
                if not self.record.concurrent:
                    found[k], used = gain.scaled(part), "linear"
                elif gain.high < self.worth:
                    found[k] = Interval(gain.value * part, min(gain.low, 0.0), gain.high)
        return found, used

    def _widened(self, gain: Interval) -> Interval:
        """A gain with what equal arms are known to differ by."""
        shift = self.aa.shift
        return Interval(gain.value, gain.low - shift, gain.high + shift)


def _at_most(part: Interval, whole: Interval | Unknown) -> Interval:
    """A gain of a faster stage, which is not more than that of the free one in all its rounds."""
    if isinstance(whole, Unknown):
        return part
    high = min(part.high, max(whole.high, 0.0))
    return Interval(min(part.value, whole.value), min(part.low, high), high)


def _call(
    gain: Interval | Unknown, p_adjusted: float | None, worth: float
) -> Literal["fix", "leave", "unclear", "not replaced"]:
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
        else _not_gone_on(samples, stage)
    )
    return Unknown(why), Unknown(why)


def _not_gone_on(samples: Samples, stage: StageFacts) -> str:
    """Why the second part of the experiment has too little about a stage that can be replaced."""
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
    """Whether the stage costs by being waited for, by what it takes from others, or by its work."""
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
    """Whether half of what a stage costs or more is what it takes from the others."""
    if isinstance(value, Unknown) or isinstance(interference, Unknown):
        return False
    return interference.low > 0 and interference.value >= 0.5 * max(value.value, 1e-9)


def _is_no_contention(value: Interval | Unknown, interference: Interval | Unknown) -> bool:
    """Whether the interval rules out that half of the cost is taken from the others."""
    if isinstance(interference, Unknown):
        return False
    return isinstance(value, Unknown) or interference.high < 0.5 * max(value.value, 1e-9)


def _gain_of(row: StageVerdict) -> float:
    return row.gain.value if isinstance(row.gain, Interval) else -1.0


def _model_holds(found: Ladder | Unknown) -> bool:
    return (
        isinstance(found, Ladder) and isinstance(found.model, PipelineModel) and found.model.holds
    )


def _seconds_for(record: Record, rounds: int, wanted: int) -> float:
    return record.seconds * wanted / max(rounds, 1)


def _warnings(record: Record, complete: bool) -> list[str]:
    found = list(record.notices)
    for name in record.mutated:
        found.append(
            f"the output of {name} is written into downstream; each block replays fresh copies"
        )
    for stage in record.stages:
        if stage.modes_ns is not None:
            low, high = (ns / 1e6 for ns in stage.modes_ns)
            found.append(
                f"{stage.name} takes either {low:.3g} or {high:.3g} ms: a replayed mix may not be "
                "what the next call would have taken"
            )
        inner = [s.name for s in record.stages if s.inside == stage.name]
        if inner and stage.replaceable:
            found.append(
                f"while {stage.name} is replaced, the stages inside it ({', '.join(inner)}) do "
                "not run"
            )
    for name, why in record.dropped.items():
        if " raised " in why:
            found.append(f"{name} was given up: {why}")
    if not record.block_settled:
        found.append(
            f"the estimates still moved at {record.block_iterations} iterations a block: what an "
            "arm leaves in the queues may be counted to the next; say in_flight, or give a larger "
            "--budget"
        )
    if record.missed_replays:
        found.append(f"{record.missed_replays} replayed calls had nothing recorded and ran instead")
    if record.switches and np.median(record.switches) > 20:
        found.append(
            f"the loop was put off its core {np.median(record.switches):.0f} times in a median "
            "block: something else wants these cores"
        )
    if record.hidden:
        found.append(
            f"something beside the loop feeds it without being a stage: {record.hidden}. Its gains "
            "hold, for blocks were made long enough; put a stage around its work to see what it "
            "could gain"
        )
    found += [f"{b['stage']} {b['what']}: {b['remedy']}" for b in record.broken]
    found += _rare_warnings(record)
    if record.out_of_time:
        found.append("the time was up in the middle of a round; what was measured by then counts")
    pressure = _pressure(record)
    if pressure > 0.2:
        found.append(f"during {pressure:.0%} of the blocks some program waited for a core")
    if record.extended:
        found.append("the arms that are the same differed at first, so the run was extended")
    if not complete:
        found.append("the run was interrupted; this is what it had measured")
    return found


def _rare_warnings(record: Record) -> list[str]:
    """Rare work of which too little was seen to know its share."""
    found = []
    total = sum(record.ns)
    for k, kind in enumerate(record.kinds):
        spent = sum(float(row[k]) for row in record.rare_ns)
        events = sum(float(row[k]) for row in record.rare_events)
        if total and spent > 0.01 * total and 0 < events < FEW_EVENTS:
            found.append(
                f"{kind.name} has rare long calls with {spent / total:.0%} of the time, and only "
                f"{events:.0f} of them were seen; a --budget of about "
                f"{record.seconds * FEW_EVENTS / events:.0f} s would tell their share"
            )
    if record.period > 2 * record.block_iterations:
        found.append(
            f"work that comes about every {record.period} iterations does not fit into a block of "
            f"{record.block_iterations}; intervals are wide for it"
        )
    return found


def _blocks(record: Record) -> str:
    length, untimed = record.block_iterations, record.drain_iterations
    text = f"blocks of {length} to {2 * length} iterations"
    if untimed:
        text += f" after up to {max(untimed, record.drain_base)} untimed"
    outputs = [stage.outputs for stage in record.looked_at() if stage.replaceable]
    if outputs:
        least, most = min(outputs), max(outputs)
        text += f", replayed from {least}{f' to {most}' if most > least else ''} recorded outputs"
    if record.concurrent and record.carry_over is not None:
        text += f" (undrained, a gain would be off by up to {100 * record.carry_over:.1f} points)"
    return text


def _pressure(record: Record) -> float:
    """The share of the measured time in which some task of the machine waited for a core."""
    measured_ns = sum(record.ns)
    return 1e3 * sum(record.pressure_us) / measured_ns if measured_ns else 0.0


__all__ = [
    "AaTest",
    "Figure",
    "Pair",
    "Rung",
    "StageVerdict",
    "Verdict",
    "aa_test",
    "judge",
    "judge_run",
]
