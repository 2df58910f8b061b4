"""The A/A test: whether arms in which nothing is changed came out the same, or no verdict is given.

Where they came out different, the machine was measured and not the loop.
"""

from dataclasses import dataclass

from hotloop.loop.figures import Interval
from hotloop.simplify.arm_names import BASELINE, is_aa
from hotloop.simplify.estimate import MIN_ROUNDS
from hotloop.simplify.record import Record
from hotloop.simplify.verdict_rows import SIGNIFICANT

# Arms that are the same may differ by this share of the smallest gain worth knowing.
EQUIVALENCE = 1 / 3


@dataclass(frozen=True)
class AaTest:
    """The arms in which nothing is changed, each compared with the others of its kind.

    holds: no interval lies wholly outside the margin of equivalence; their confidence is that of
    all of them together. shift: the largest difference that is known all the same; every interval
    is widened by it.
    """

    holds: bool
    gains: dict[str, Interval]
    margin: float
    shift: float
    needed_s: float | None  # how much more time a verdict would take, if it is refused


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
    failed = [gain for gain in gains.values() if gain.low > margin or gain.high < -margin]
    differ = [abs(gain.value) for gain in gains.values() if 0.0 not in gain]
    needed = None
    if failed:
        worst = max(abs(gain.value) for gain in failed)
        # Errors shrink with the root of the time; after a failed A/A at least as much is needed.
        needed = record.seconds * max(1.0, (worst / worth) ** 2)
    return AaTest(not failed, gains, margin, max(differ, default=0.0), needed)


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
    worst = max(aa.gains.values(), key=lambda gain: abs(gain.value))
    return (
        f"two arms that are the same differ by {100 * worst.value:+.1f}% "
        f"[{100 * worst.low:+.1f}, {100 * worst.high:+.1f}], which is more than "
        f"{100 * aa.margin:.1f}%, a third of the smallest gain worth knowing: this machine is too "
        f"restless for a verdict now; about {(aa.needed_s or 0) / 60:.1f} more minutes would be "
        "needed"
    )


def _seconds_for(record: Record, rounds: int, wanted: int) -> float:
    return record.seconds * wanted / max(rounds, 1)
