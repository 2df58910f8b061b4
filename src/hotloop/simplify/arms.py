"""The arms that an experiment compares.

First every stage free, every stage alone, all free, and arms that are the same as the baseline.
Then, for stages that survived the first look, arms that show the kind of their cost; and for the
others, pairs. Pure functions of the record.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hotloop.loop.arm import BURN, DELAY, FREE, PAD, SUBSTITUTES, WAIT, WORK, Arm, Mode
from hotloop.simplify.arm_names import (
    ALL_FREE,
    BASELINE,
    aa_name,
    delay_name,
    faster_name,
    free_name,
    only_name,
    pad_name,
    pair_name,
)
from hotloop.simplify.record import Record
from hotloop.simplify.stage_facts import StageFacts

MAX_PAIRS = 6
# Delays of a stage, as shares of the loop's iteration; several where stages may have slack.
DELAY_SHARES = (0.5, 1.0)
MIN_DELAY_NS = 50_000


def first_arms(record: Record, aa_pairs: int) -> dict[str, Arm]:
    """Return the baseline, the A/A arms, every stage and group free, each alone, and all free."""
    arms = {BASELINE: Arm(BASELINE)}
    for number in range(aa_pairs):
        arms[aa_name(number + 1)] = Arm(aa_name(number + 1))
    for stage in record.stages_in_focus():
        if stage.replaceable:
            arms[free_name(stage.name)] = Arm(free_name(stage.name), {stage.name: FREE})
        else:
            arms |= delays(record, stage)
    if record.focus:
        return arms  # ceilings are of whole loops: an experiment on a few stages has none
    for name, stages in record.groups.items():
        arms[free_name(name)] = Arm(free_name(name), dict.fromkeys(stages, FREE))
    return arms | only_and_all(record)


def only_and_all(record: Record) -> dict[str, Arm]:
    """Return the arms that make all outermost stages free, or all but one and those around it."""
    arms: dict[str, Arm] = {}
    replaceable = [stage for stage in record.stages if stage.replaceable]
    everything: dict[str, Mode] = {
        stage.name: FREE
        for stage in replaceable
        if not any(record.is_inside(stage, other) for other in replaceable)
    }
    if len(everything) < 2:
        return arms
    arms[ALL_FREE] = Arm(ALL_FREE, everything)
    for stage in replaceable:
        others: dict[str, Mode] = {
            other.name: FREE
            for other in replaceable
            if other is not stage
            and not record.is_inside(stage, other)
            and not record.is_inside(other, stage)
            # A stage that consumes what this one makes must go on consuming it.
            and stage.name not in record.feeds.get(other.name, ())
        }
        if others:
            arms[only_name(stage.name)] = Arm(only_name(stage.name), others)
    return arms


@dataclass(frozen=True)
class Pace:
    """How the recorded calls of a stage compare with its calls now, and alone.

    drift: recorded time over the time in the baseline's blocks: the machine's speed changes
    between the recording and the rounds. stretch: recorded time over the time that a call takes
    with the other stages free; a pad waits for the latter, because the time that a call loses to
    contention is what a pad takes away.
    """

    drift: float = 1.0
    stretch: float = 1.0


def second_arms(
    record: Record, live: set[str], paces: Mapping[str, Pace], faster: Sequence[float]
) -> dict[str, Arm]:
    """Return the arms that follow the first look: how a stage costs, and pairs of small stages.

    live: the names of the arms that survived the first look; faster: how many times.
    """
    arms: dict[str, Arm] = {}
    small: list[StageFacts] = []
    for stage in record.stages_in_focus():
        if not stage.replaceable:
            continue
        if free_name(stage.name) in live:
            pace = paces.get(stage.name, Pace())
            if stage.ns_per_call >= record.shortest_wait_ns:
                mode = PAD if pace.stretch == 1 else WAIT(pace.stretch)
                arms[pad_name(stage.name)] = Arm(pad_name(stage.name), {stage.name: mode})
            # In a sequence one is enough: it checks what follows from the free stage.
            for k in faster[:1] if record.in_sequence else faster:
                arms |= _faster(record, stage, k, pace.drift)
            arms |= delays(record, stage)
        else:
            small.append(stage)
            if record.concurrent:
                arms |= delays(record, stage)
    for first, second in itertools.islice(_pairs(record, small), MAX_PAIRS):
        name = pair_name(first.name, second.name)
        arms[name] = Arm(name, {first.name: FREE, second.name: FREE})
    return arms


def delays(record: Record, stage: StageFacts) -> dict[str, Arm]:
    """Return the arms that delay a stage; in a serial loop one is enough."""
    iteration_ns = record.warm_up.ns_per_iteration if record.warm_up else 1e6
    calls = max(stage.calls_per_iteration, 1e-9)
    arms: dict[str, Arm] = {}
    for number, share in enumerate(DELAY_SHARES if record.concurrent else DELAY_SHARES[:1]):
        delay_ns = max(MIN_DELAY_NS, share * iteration_ns / calls)
        name = delay_name(stage.name, number + 1)
        arms[name] = Arm(name, {stage.name: DELAY(delay_ns * 1e-9)})
    return arms


def replaced_in(arm: Arm) -> list[str]:
    """Return the stages that are replaced in an arm."""
    return [name for name, mode in arm.modes.items() if mode.kind in SUBSTITUTES]


def _faster(record: Record, stage: StageFacts, k: float, drift: float) -> dict[str, Arm]:
    # A coroutine has no processor time of its own; it mostly waits.
    if stage.kind in ("cpu", "gpu") and stage.cpu_share is not None and stage.cpu_share > 0.5:
        # Beside other threads a call also waits for them: only its work becomes less.
        mode = WORK(k * drift) if record.concurrent else BURN(k * drift)
        name = faster_name(stage.name, "burn", k)
    elif stage.ns_per_call / k >= record.shortest_wait_ns:
        name, mode = faster_name(stage.name, "wait", k), WAIT(k * drift)
    else:
        return {}
    return {name: Arm(name, {stage.name: mode})}


def _pairs(record: Record, small: list[StageFacts]) -> Iterator[tuple[StageFacts, StageFacts]]:
    """Yield pairs of stages that gain little alone, the busiest first, neither inside the other."""
    busiest = sorted(small, key=lambda stage: -stage.share)
    for first, second in itertools.combinations(busiest, 2):
        if not (record.is_inside(first, second) or record.is_inside(second, first)):
            yield first, second
