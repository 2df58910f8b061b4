"""The A/A test: whether arms in which nothing is changed came out the same, or no verdict is given.

Where they came out different, the machine was measured and not the loop.
"""

import math
from dataclasses import dataclass

from hotloop.loop.figures import Interval
from hotloop.simplify.arm_names import BASELINE, is_aa
from hotloop.simplify.estimate import MIN_ROUNDS
from hotloop.simplify.record import Record
from hotloop.simplify.verdict_rows import SIGNIFICANT

# Arms that are the same may differ by this share of the smallest gain worth knowing.
EQUIVALENCE = 1 / 3
# Where they are not even known to be the same within this share, single stalls of the machine
# decide what a mean is, and too many intervals of gains miss it (docs/benchmarks/stalled_arms.md).
VAGUE = 0.5


@dataclass(frozen=True)
class AaTest:
    """The arms in which nothing is changed, each compared with the others of its kind.

    holds: no interval lies wholly outside the margin of equivalence, and none is wider than
    `VAGUE`; their confidence is that of all of them together. shift: the largest difference that
    is known all the same; every interval is widened by it.
    """

    holds: bool
    gains: dict[str, Interval]
    margin: float
    shift: float
    # How much more time a verdict would take, if it is refused and that can be said.
    needed_s: float | None


def aa_test(record: Record, seed: int = 0, worth: float = 0.03) -> AaTest:
    """Compare the arms in which nothing is changed: are they the same within a margin?

    A test against exactly 0 would refuse more often, the more precise an experiment is.
    """
    samples = record.samples(seed)
    names = [name for name in samples.arms if is_aa(name) and samples.has(name, BASELINE)]
    margin = EQUIVALENCE * worth
    # Bonferroni: none of them may be wrong in more than 5 of 100 experiments.
    confidence = 1 - SIGNIFICANT / max(1, len(names))
    gains = {name: samples.same_gain(name, confidence) for name in names}
    failed = [gain for gain in gains.values() if differs(gain, margin)]
    vague = [gain for gain in gains.values() if is_vague(gain)]
    differ = [abs(gain.value) for gain in gains.values() if 0.0 not in gain]
    needed = None
    too_large = [abs(gain.value) / worth for gain in failed]
    too_large += [gain.half_width / VAGUE for gain in vague]
    if too_large and math.isfinite(max(too_large)):
        # Errors shrink with the root of the time; after a failed A/A at least as much is needed.
        needed = record.seconds * max(1.0, *too_large) ** 2
    return AaTest(not (failed or vague), gains, margin, max(differ, default=0.0), needed)


def differs(gain: Interval, margin: float) -> bool:
    """Whether equal arms are known to differ by more than the margin."""
    return gain.low > margin or gain.high < -margin


def is_vague(gain: Interval) -> bool:
    """Whether equal arms are not known to be the same within `VAGUE`."""
    return not gain.half_width <= VAGUE


def refusal(record: Record, aa: AaTest, enough: bool, rounds: int) -> str | None:
    """Say why there is no verdict, and what would give one; None if there is."""
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
    if vague := [gain for gain in aa.gains.values() if is_vague(gain)]:
        worst = max(vague, key=lambda gain: gain.half_width)
        why = f"which is not known within {100 * VAGUE:.0f}%"
    else:
        worst = max(aa.gains.values(), key=lambda gain: abs(gain.value))
        why = (
            f"which is more than {100 * aa.margin:.1f}%, a third of the smallest gain worth knowing"
        )
    needed = "many" if aa.needed_s is None else f"about {aa.needed_s / 60:.1f}"
    return (
        f"two arms that are the same differ by {100 * worst.value:+.1f}% "
        f"[{100 * worst.low:+.1f}, {100 * worst.high:+.1f}], {why}: this machine is too "
        f"restless for a verdict now; {needed} more minutes would be needed"
    )


def _seconds_for(record: Record, rounds: int, wanted: int) -> float:
    return record.seconds * wanted / max(rounds, 1)
