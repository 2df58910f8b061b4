"""The ceilings of a loop's parts, the ladder from now to the roof, and the pipeline model.

now            the baseline
overlap        every stage runs when its resource is free: perfect async
stage          every stage on a resource of its own: only the slowest counts
roof           the slowest stage does its arithmetic and its traffic at the machine's peaks
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hotloop.loop.figures import Interval, Unknown
from hotloop.simplify.arm_names import ALL_FREE, BASELINE, only_name
from hotloop.simplify.estimate import Samples
from hotloop.simplify.means import Means
from hotloop.simplify.rare_work import REST
from hotloop.simplify.record import Record
from hotloop.simplify.stage_facts import StageFacts

# The model may differ from the baseline by this share even where their intervals are narrower: by
# so much the cost of the probes differs between the arms of a round.
MODEL_TOLERANCE = 0.005


@dataclass(frozen=True)
class Rung:
    """One step of the ladder: the time of an iteration there, and what sets it."""

    name: str
    ns: Interval | Unknown
    set_by: str
    to_gain: str  # what closes the gap from the rung above


@dataclass(frozen=True)
class PipelineModel:
    """The longest sum over a lane of its stages' ceilings, compared with the measured time."""

    predicted_ns: Interval
    difference_ns: Interval  # predicted less measured
    holds: bool


@dataclass(frozen=True)
class Ladder:
    """All rungs from slow to fast, and the ceilings they are made of."""

    rungs: list[Rung]
    ceilings_ns: dict[str, Interval]
    model: PipelineModel | Unknown


def outermost(stages: Sequence[StageFacts]) -> list[StageFacts]:
    """Return the stages that are not inside another one: their times add up."""
    return [stage for stage in stages if stage.inside is None]


def ladder(record: Record, samples: Samples) -> Ladder | Unknown:
    """Compute the ladder, or say why there is none."""
    if record.focus:
        return Unknown("ceilings are of whole loops, not of one stage's parts")
    stages = [
        stage
        for stage in outermost(record.stages)
        if stage.replaceable and only_name(stage.name) in samples.arms
    ]
    arms = [BASELINE, ALL_FREE, *(only_name(stage.name) for stage in stages)]
    if not stages or not samples.has(*arms):
        replaceable = [stage for stage in outermost(record.stages) if stage.replaceable]
        return Unknown(
            "the ladder needs two or more replaceable stages"
            if len(replaceable) < 2
            else "too few rounds held all of its arms; give a larger --budget"
        )
    means = samples.means(arms)
    names, values, draws = _ceilings(stages, means)
    ceilings = {name: means.interval(float(values[k]), draws[:, k]) for k, name in enumerate(names)}
    rungs = _rungs(record, means, names, values, draws)
    return Ladder(rungs, ceilings, _model(record, stages, names, values, draws, means))


def _rungs(
    record: Record, means: Means, names: Sequence[str], values: np.ndarray, draws: np.ndarray
) -> list[Rung]:
    """The rungs, by the ceilings (names,) and their draws (draws, names)."""
    now = means.time(BASELINE)

    def rung_interval(value: float, drawn: np.ndarray) -> Interval:
        # No rung lies above the one before it.
        return means.interval(min(value, now.value), np.minimum(drawn, means.draws[:, 0]))

    stage_value, stage_draws = float(values.max()), draws.max(axis=1)
    slowest = names[int(values.argmax())]
    work = np.array([_cpu_work(record, name) for name in names])
    cpu_value = float((values * work).sum() / record.usable_cores)
    cpu_draws = (draws * work).sum(axis=1) / record.usable_cores
    shared = cpu_value > stage_value
    return [
        Rung("now", now, "the loop as it is", ""),
        Rung(
            "perfect overlap",
            rung_interval(max(cpu_value, stage_value), np.maximum(cpu_draws, stage_draws)),
            f"the work of all stages on {record.usable_cores:g} cores" if shared else slowest,
            "orchestration: run stages side by side, prefetch, make calls asynchronous",
        ),
        Rung(
            "own resources",
            rung_interval(stage_value, stage_draws),
            slowest,
            "sharing: more cores or machines, or stages moved apart",
        ),
        _roof(record, names, stage_value),
    ]


def _ceilings(
    stages: Sequence[StageFacts], means: Means
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """ceiling(i) = T(only i) − T(all free); the rest, T(all free), counts as one more stage."""
    floor = means.arms.index(ALL_FREE)
    at = [means.arms.index(only_name(stage.name)) for stage in stages]
    values = np.append(means.values[at] - means.values[floor], means.values[floor])
    draws = np.column_stack([means.draws[:, at] - means.draws[:, [floor]], means.draws[:, floor]])
    return [*(stage.name for stage in stages), REST], np.maximum(values, 0), np.maximum(draws, 0)


def _cpu_work(record: Record, name: str) -> float:
    """The part of a stage's time that keeps a core busy."""
    if name == REST:
        return 1.0
    stage = record.stage(name)
    if stage.kind != "cpu":
        return 0.0
    return 1.0 if stage.cpu_share is None else stage.cpu_share


def _roof(record: Record, names: Sequence[str], stage_ns: float) -> Rung:
    name, closes = "roof", "the stage's own efficiency: vectorise, offload, smaller dtypes"
    work, peaks = record.work, record.peaks
    if work is None or peaks is None or not work.counted_calls:
        return Rung(name, Unknown("no operations were counted"), "", closes)
    roofs: dict[str, float] = {}
    for stage in names:
        flops, moved = work.by_stage.get(stage, (0.0, 0.0))
        if flops:
            roofs[stage] = max(flops / peaks.flops_per_s, moved / peaks.bytes_per_s) * 1e9
    if not roofs:
        return Rung(name, Unknown("no stage's operations could be counted"), "", closes)
    top = max(roofs, key=lambda stage: roofs[stage])
    uncounted = [stage for stage in names if stage not in roofs and stage != REST]
    value = min(roofs[top], stage_ns)
    note = f"; not counted: {', '.join(uncounted)}" if uncounted else ""
    return Rung(name, Interval(value, value, value), f"{top}{note}", closes)


def _model(
    record: Record,
    stages: Sequence[StageFacts],
    names: Sequence[str],
    values: np.ndarray,
    draws: np.ndarray,
    means: Means,
) -> PipelineModel | Unknown:
    """The time of a pipeline without contention: that of its slowest lane."""
    if len(stages) < len(outermost(record.stages)):
        missing = [s.name for s in outermost(record.stages) if s not in stages]
        return Unknown(f"no ceiling is known for {', '.join(missing)}")
    lanes = _lane_groups(stages)
    rest = len(names) - 1
    columns = [[*(names.index(n) for n in lane), *([rest] if main else [])] for lane, main in lanes]
    if not any(main for _, main in lanes):
        columns.append([rest])
    predicted = max(float(values[lane].sum()) for lane in columns)
    predicted_draws = np.max([draws[:, lane].sum(axis=1) for lane in columns], axis=0)
    base = means.arms.index(BASELINE)
    difference = means.interval(
        predicted - float(means.values[base]), predicted_draws - means.draws[:, base]
    )
    holds = 0.0 in difference or abs(difference.value) < MODEL_TOLERANCE * means.values[base]
    return PipelineModel(means.interval(predicted, predicted_draws), difference, bool(holds))


def _lane_groups(stages: Sequence[StageFacts]) -> list[tuple[list[str], bool]]:
    """Group the stages that share a lane: their names, and whether it is the loop's own."""
    groups: list[tuple[set[int], list[str], bool]] = []
    for stage in stages:
        lanes, members, main = set(stage.lanes), [stage.name], not stage.beside_main
        for other in [g for g in groups if (g[2] and main) or g[0] & lanes]:
            groups.remove(other)
            lanes |= other[0]
            members = other[1] + members
            main = main or other[2]
        groups.append((lanes, members, main))
    return [(members, main) for _, members, main in groups]
