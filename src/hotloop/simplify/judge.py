"""Judging a record: which stage to fix, what that would gain, and which to leave alone.

Pure functions of the saved record. The verdict is refused where the A/A test fails.
"""

from collections.abc import Sequence

import numpy as np

from hotloop.loop.figures import Interval, Unknown
from hotloop.simplify.aa import aa_test, refusal
from hotloop.simplify.arm_names import BASELINE, is_free
from hotloop.simplify.caveats import blocks_of, warnings_of
from hotloop.simplify.ceilings import Ladder, PipelineModel, ladder
from hotloop.simplify.estimate import Samples
from hotloop.simplify.means import holm
from hotloop.simplify.record import Record
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import SIGNIFICANT, Pair, Rows, StageVerdict


def judge(
    record: Record, target: str, worth: float, seed: int = 0, complete: bool = True
) -> Verdict:
    """Judge a record. worth: the smallest gain that counts, as a share."""
    samples = record.samples(seed)
    p_values = _adjusted(samples)
    aa = aa_test(record, seed, worth)
    found = ladder(record, samples)
    making = Rows(record, samples, found, p_values, aa.shift, worth)
    rows = [making.row(stage) for stage in record.stages_in_focus()]
    pairs = making.pairs()
    enough = samples.has(BASELINE)
    rounds = len(samples.rounds([BASELINE])) if BASELINE in samples.arms else 0
    refused = refusal(record, aa, enough, rounds)
    fix, ties = _to_fix(rows, pairs, worth)
    return Verdict(
        target=target,
        unit=record.unit,
        baseline_ns=samples.raw_time(BASELINE)
        if enough
        else Unknown("too few rounds; give a larger --budget"),
        units_per_iteration=record.units_per_iteration,
        faster=list(record.faster),
        rows=sorted(rows, key=lambda row: (row.inside is not None, -gain_of(row), -row.share)),
        pairs=pairs,
        groups=making.groups(),
        rest=making.rest(),
        ladder=found,
        aa=aa,
        refused=refused,
        fix=None if refused else fix,
        ties=[] if refused else ties,
        unknown=unknown_in(rows),
        leave=[row.name for row in rows if row.verdict == "leave"],
        rounds=rounds,
        seconds=record.seconds,
        warnings=warnings_of(record, complete),
        contention=record.concurrent and not _model_holds(found),
        blocks=blocks_of(record),
        price_per_hour=record.price_per_hour,
        rest_places=making.places(),
    )


def _to_fix(
    rows: list[StageVerdict], pairs: list[Pair], worth: float
) -> tuple[StageVerdict | Pair | None, list[str]]:
    """The stage that gains most, and those whose gains differ by no more than their errors."""
    candidates = [row for row in rows if row.verdict == "fix"]
    if candidates:
        best = max(candidates, key=gain_of)
        return best, ties_of(candidates, best)
    significant = [p for p in pairs if p.p_adjusted < SIGNIFICANT and p.gain.value >= worth]
    return max(significant, key=lambda pair: pair.gain.value, default=None), []


def unknown_in(rows: Sequence[StageVerdict]) -> list[str]:
    """Name the stages of which nothing is known: neither they nor what they are in was replaced."""
    missing = {row.name for row in rows if row.verdict == "not replaced"}
    return [row.name for row in rows if row.name in missing and row.inside in {*missing, None}]


def ties_of(candidates: Sequence[StageVerdict], best: StageVerdict) -> list[str]:
    """Name the other stages whose gains differ from the best by no more than the errors of both."""
    return [row.name for row in candidates if row is not best and _ties(row, best)]


def _ties(row: StageVerdict, best: StageVerdict) -> bool:
    """Whether two gains differ by no more than their errors together."""
    assert isinstance(row.gain, Interval)
    assert isinstance(best.gain, Interval)
    apart = best.gain.value - row.gain.value
    return apart <= float(np.hypot(best.gain.half_width, row.gain.half_width))


def _adjusted(samples: Samples) -> dict[str, float]:
    """Holm-adjusted p-values of the family: everything that was made free."""
    family = [name for name in samples.arms if is_free(name) and samples.has(name, BASELINE)]
    raw = [samples.means([BASELINE, name]).p_value(name, BASELINE) for name in family]
    return dict(zip(family, holm(raw), strict=True))


def gain_of(row: StageVerdict) -> float:
    """The gain of a row, for sorting: below all others where it is not known."""
    return row.gain.value if isinstance(row.gain, Interval) else -1.0


def _model_holds(found: Ladder | Unknown) -> bool:
    return (
        isinstance(found, Ladder) and isinstance(found.model, PipelineModel) and found.model.holds
    )
