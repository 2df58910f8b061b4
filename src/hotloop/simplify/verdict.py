"""What an experiment's record says: which stage to fix, what it is worth, what to leave alone.

Pure functions of the saved record. The verdict is refused where the arms that are the same as the
baseline came out different from it: then the machine, not the loop, was measured.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Unknown
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.simplify.caveats import blocks_of, warnings_of
from hotloop.simplify.ceilings import Ladder, PipelineModel, ladder
from hotloop.simplify.estimate import MIN_ROUNDS, Samples
from hotloop.simplify.means import holm
from hotloop.simplify.names import BASELINE, is_aa, is_free
from hotloop.simplify.record import Record
from hotloop.simplify.rows import SIGNIFICANT, Pair, Rows, StageVerdict

# Arms that are the same may differ by this share of the smallest gain worth knowing.
EQUIVALENCE = 1 / 3


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
    making = Rows(record, samples, found, p_values, aa.shift, worth)
    rows = [making.row(stage) for stage in record.looked_at()]
    pairs = making.pairs()
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
        warnings=warnings_of(record, complete),
        contention=record.concurrent and not _model_holds(found),
        blocks=blocks_of(record),
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


def _gain_of(row: StageVerdict) -> float:
    return row.gain.value if isinstance(row.gain, Interval) else -1.0


def _model_holds(found: Ladder | Unknown) -> bool:
    return (
        isinstance(found, Ladder) and isinstance(found.model, PipelineModel) and found.model.holds
    )


def _seconds_for(record: Record, rounds: int, wanted: int) -> float:
    return record.seconds * wanted / max(rounds, 1)
