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
from hotloop.simplify.arms import (
    BASELINE,
    FASTER,
    delay_name,
    faster_name,
    free_name,
    is_aa,
    is_free,
    pad_name,
    pair_name,
)
from hotloop.simplify.ceilings import Ladder, PipelineModel, Rung, ladder
from hotloop.simplify.estimate import MIN_ROUNDS, Samples, Slack, fit_slack, holm
from hotloop.simplify.record import Record, StageFacts

SIGNIFICANT = 0.05
CostKind = Literal["waiting", "contention", "own work", "unknown"]


@dataclass(frozen=True)
class AaTest:
    """The arms that are the same as the baseline, judged with all others."""

    holds: bool
    gains: dict[str, Interval]
    p_adjusted: dict[str, float]
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
    gain_if_faster: Interval | Unknown
    faster_by: str
    ceiling_ns: Interval | Unknown
    interference_ns: Interval | Unknown
    latency_ns: Interval | Unknown
    slack: Slack | Unknown
    cost: CostKind
    verdict: Literal["fix", "leave", "unclear", "not replaced"]
    not_replaced: str | None


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
    rows: list[StageVerdict]
    pairs: list[Pair]
    ladder: Ladder | Unknown
    aa: AaTest
    refused: str | None
    fix: StageVerdict | Pair | None
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
    rows = [_row(record, samples, stage, found, p_values, worth) for stage in record.looked_at()]
    pairs = _pairs(record, samples, p_values)
    enough = samples.has(BASELINE)
    rounds = len(samples.rounds([BASELINE])) if BASELINE in samples.arms else 0
    refused = None
    if not enough:
        refused = (
            f"only {rounds} rounds were measured, {MIN_ROUNDS} are the least for an interval; "
            f"give a --budget of about {_seconds_for(record, rounds, 4 * MIN_ROUNDS):.0f} s"
        )
    elif not aa.holds:
        worst = max(aa.gains.values(), key=lambda gain: abs(gain.value))
        refused = (
            f"two arms that are the same differ by {100 * worst.value:+.1f}% "
            f"[{100 * worst.low:+.1f}, {100 * worst.high:+.1f}], so this machine is too restless "
            f"for a verdict now; about {(aa.needed_s or 0) / 60:.1f} more minutes would be needed"
        )
    candidates = [row for row in rows if row.verdict == "fix"]
    fix: StageVerdict | Pair | None = max(candidates, key=_gain_of, default=None)
    if fix is None:
        significant = [p for p in pairs if p.p_adjusted < SIGNIFICANT and p.gain.value >= worth]
        fix = max(significant, key=lambda pair: pair.gain.value, default=None)
    return Verdict(
        target=target,
        unit=record.unit,
        baseline_ns=(
            samples.medians([BASELINE]).time(BASELINE) if enough else Unknown("too few rounds")
        ),
        units_per_iteration=record.units_per_iteration or 0.0,
        rows=sorted(rows, key=lambda row: (row.inside is not None, -_gain_of(row), -row.share)),
        pairs=pairs,
        ladder=found,
        aa=aa,
        refused=refused,
        fix=None if refused else fix,
        leave=[row.name for row in rows if row.verdict == "leave"],
        rounds=rounds,
        seconds=record.seconds,
        warnings=_warnings(record, complete),
        contention=record.concurrent and not _model_holds(found),
        blocks=_blocks(record),
        price_per_hour=record.price_per_hour,
    )


def aa_test(record: Record, seed: int = 0, worth: float = 0.03) -> AaTest:
    """Compare the A/A arms with the baseline, in one family with every other comparison."""
    samples = record.samples(seed)
    names = [name for name in samples.arms if is_aa(name) and samples.has(name, BASELINE)]
    p_values = _adjusted(samples)
    gains = {name: samples.medians([BASELINE, name]).gain(name, BASELINE) for name in names}
    failed = [name for name in names if p_values[name] < SIGNIFICANT]
    needed = None
    if failed:
        worst = max(abs(gains[name].value) for name in failed)
        # Errors shrink with the root of the time; and a wrong A/A wants at least as much again.
        needed = record.seconds * max(1.0, (worst / worth) ** 2)
    return AaTest(not failed, gains, {name: p_values[name] for name in names}, needed)


def _adjusted(samples: Samples) -> dict[str, float]:
    """Holm-adjusted p-values of the family: A/A arms, and everything that was made free."""
    family = [
        name
        for name in samples.arms
        if (is_aa(name) or is_free(name)) and samples.has(name, BASELINE)
    ]
    raw = [samples.medians([BASELINE, name]).p_value(name, BASELINE) for name in family]
    return dict(zip(family, holm(raw), strict=True))


def _row(
    record: Record,
    samples: Samples,
    stage: StageFacts,
    found: Ladder | Unknown,
    p_values: dict[str, float],
    worth: float,
) -> StageVerdict:
    free = free_name(stage.name)
    gain: Interval | Unknown = Unknown(stage.not_replaced or "too few rounds")
    value: Interval | Unknown = gain
    if stage.replaceable and samples.has(free, BASELINE):
        medians = samples.medians([BASELINE, free])
        gain, value = medians.gain(free, BASELINE), medians.difference(BASELINE, free)
    interference, latency = _padded(record, samples, stage)
    faster, how = _faster(samples, stage)
    adjusted = p_values.get(free)
    ceiling: Interval | Unknown = Unknown(
        found.why if isinstance(found, Unknown) else stage.not_replaced or "it is inside another"
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
        gain_if_faster=faster,
        faster_by=how,
        ceiling_ns=ceiling,
        interference_ns=interference,
        latency_ns=latency,
        slack=_slack(record, samples, stage),
        cost=_cost(record, stage, value, interference),
        verdict=_call(gain, adjusted, worth),
        not_replaced=stage.not_replaced,
    )


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
        medians = samples.medians([BASELINE, pad, free])
        return medians.difference(BASELINE, pad), medians.difference(pad, free)
    why = stage.not_replaced or (
        f"a call takes {stage.ns_per_call / 1e3:.0f} µs, and waits under "
        f"{record.shortest_wait_ns / 1e3:.0f} µs are not measurable here"
        if stage.ns_per_call < record.shortest_wait_ns
        else _not_gone_on(samples, stage)
    )
    return Unknown(why), Unknown(why)


def _faster(samples: Samples, stage: StageFacts) -> tuple[Interval | Unknown, str]:
    for how in ("burn", "wait"):
        name = faster_name(stage.name, how, FASTER)
        if samples.has(name, BASELINE):
            return samples.medians([BASELINE, name]).gain(name, BASELINE), how
    return Unknown(stage.not_replaced or _not_gone_on(samples, stage)), ""


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
    medians = samples.medians([BASELINE, *names])
    delayed = [(name, record.mean_delay_ns(name)) for name in names]
    if max(delay for _, delay in delayed) <= 0:
        return Unknown("no delay happened")
    return fit_slack(medians, BASELINE, delayed)


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


def _pairs(record: Record, samples: Samples, p_values: dict[str, float]) -> list[Pair]:
    found = []
    names = [stage.name for stage in record.stages]
    for first in names:
        for second in names:
            arm = pair_name(first, second)
            if samples.has(arm, BASELINE):
                gain = samples.medians([BASELINE, arm]).gain(arm, BASELINE)
                found.append(Pair((first, second), gain, p_values[arm]))
    return found


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
    pressure = _pressure(record)
    if pressure > 0.2:
        found.append(f"during {pressure:.0%} of the blocks some program waited for a core")
    if record.extended:
        found.append("the arms that are the same differed at first, so the run was extended")
    if not complete:
        found.append("the run was interrupted; this is what it had measured")
    return found


def _blocks(record: Record) -> str:
    length, untimed = record.block_iterations, record.drain_iterations
    text = f"blocks of {length} iteration{'s' if length > 1 else ''}"
    if untimed:
        text += f" after {untimed} untimed"
    if record.concurrent and record.carry_over is not None:
        text += f" (undrained, a gain would be off by up to {100 * record.carry_over:.1f} points)"
    return text


def _pressure(record: Record) -> float:
    """The share of the measured time in which some task of the machine waited for a core."""
    measured_ns = sum(record.ns) * record.block_iterations
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
