"""Judging a record: which stage to fix, what that would gain, and which to leave alone.

Pure functions of the saved record. The verdict is refused where the A/A test fails.
"""

from typing import Any

import numpy as np

from hotloop.errors import RunError
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run
from hotloop.simplify.aa import aa_test, refusal
from hotloop.simplify.arm_names import BASELINE, is_free
from hotloop.simplify.caveats import blocks_of, warnings_of
from hotloop.simplify.ceilings import Ladder, PipelineModel, ladder
from hotloop.simplify.estimate import Samples
from hotloop.simplify.means import holm
from hotloop.simplify.record import Record
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import SIGNIFICANT, Pair, Rows, StageVerdict


def judge_run(run: Run) -> tuple[Verdict, Record]:
    """Judge a saved run. Raises: RunError if it is no experiment, or is incomplete."""
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


def _to_fix(
    rows: list[StageVerdict], pairs: list[Pair], worth: float
) -> tuple[StageVerdict | Pair | None, list[str]]:
    """The stage that gains most, and those whose gains differ by no more than their errors."""
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
