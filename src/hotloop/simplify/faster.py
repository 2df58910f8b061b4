"""What a loop gains if a stage takes 1/k of its time.

Where calls follow each other, that is a part of what it gains if the stage is free; an arm in which
something computes in the stage's place for so long only checks it. Where things run side by side,
such an arm is the measurement itself.
"""

from hotloop.loop.figures import Interval
from hotloop.simplify.arm_names import BASELINE, faster_name, free_name
from hotloop.simplify.estimate import Samples
from hotloop.simplify.record import Record
from hotloop.simplify.stage_facts import StageFacts


def gain_if_faster(
    record: Record, samples: Samples, stage: StageFacts, free: Interval, k: float
) -> Interval | None:
    """Return the gain of a stage k times as fast, or None if no arm shows it.

    free: its gain if free, which is never exceeded where it is one.
    """
    if record.in_sequence:
        found: Interval | None = _in_sequence(record, samples, stage, free, k)
    else:
        found = _measured(record, samples, stage, k)
    if found is None:
        return None
    high = min(found.high, max(free.high, 0.0))
    return Interval(min(found.value, max(free.value, 0.0)), min(found.low, high), high)


def _in_sequence(
    record: Record, samples: Samples, stage: StageFacts, free: Interval, k: float
) -> Interval:
    """The share of the free stage's gain, with an interval as wide as the check requires.

    A computation in a stage's place leaves other data in the caches than the stage does, and the
    effect of a faster stage depends on how it becomes faster. Where the check is off by more than
    its own error, the interval is wider by that, in both directions.
    """
    off = 0.0
    for tried in record.faster:
        expected = free.value * (1 - 1 / tried)
        if (seen := _measured(record, samples, stage, tried)) is not None:
            off = max(off, seen.low - expected, expected - seen.high)
    gain = free.scaled(1 - 1 / k)
    return Interval(gain.value, gain.low - off, gain.high + off)


def _measured(record: Record, samples: Samples, stage: StageFacts, k: float) -> Interval | None:
    """The gain by the arm that computes, or waits, for 1/k of the stage's time."""
    assert samples.stage_ns is not None
    assert samples.cpu_ns is not None
    free, own = free_name(stage.name), samples.stage_ns[:, :, record.stages.index(stage)]
    for how in ("burn", "wait"):
        arm = faster_name(stage.name, how, k)
        if not samples.has(arm, free, BASELINE):
            continue
        if not record.concurrent:
            return samples.if_faster(free, arm, own, k)
        # Beside others a call takes longer than it works: its duration says little of its work.
        if how == "burn" and _computes_here(samples, stage, free):
            return samples.if_faster(free, arm, samples.cpu_ns, k)
        return samples.if_replayed(free, arm, own)
    return None


def _computes_here(samples: Samples, stage: StageFacts, free: str) -> bool:
    """Whether this process computes less without the stage, and not only a worker process."""
    assert samples.cpu_ns is not None
    saved = samples.mean_of(samples.cpu_ns, BASELINE) - samples.mean_of(samples.cpu_ns, free)
    return saved > 0.5 * stage.ns_per_iteration * (stage.cpu_share or 0.0)
