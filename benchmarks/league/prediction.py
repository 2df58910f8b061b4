"""What hotloop predicts for a loop: the one place that knows by which function it is asked."""

import time
from typing import Any

import hotloop
from hotloop.benchmark.noise import Interval
from hotloop.loop import Arm, Loop, drive
from hotloop.loop.arm import REAL
from hotloop.loop.board import process_board
from hotloop.simplify.experiment import Experiment, SimplifySettings
from hotloop.simplify.verdict import judge

FASTER = (2, 4)


def before_making() -> None:
    """Watch the stages from their first call on, as the command line does."""
    if not hasattr(hotloop, "run_simplify"):
        process_board().set(Arm("starting", rest=REAL))


def predict(loop: Loop, budget: float) -> dict[str, Any]:
    """Run the experiment; returns the verdict as plain values.

    rows: for each stage its verdict and its gains, "0" if it were free, "0.5" and "0.25" of its
    work left; a gain is [value, low, high], or the reason why there is none.
    """
    begin = time.perf_counter()
    if hasattr(hotloop, "run_simplify"):
        verdict = hotloop.run_simplify(loop, budget=budget, faster=FASTER).verdict
    else:
        board = process_board()
        experiment = Experiment(board, SimplifySettings(budget=budget))
        drive(loop, experiment.run(loop), board)
        verdict = judge(experiment.record, loop.name, experiment.settings.worth)
    fix = verdict.fix
    return {
        "seconds": time.perf_counter() - begin,
        "refused": verdict.refused,
        "fix": None if fix is None else list(getattr(fix, "stages", None) or (fix.name,)),
        "leave": list(verdict.leave),
        "rows": {row.name: {"verdict": row.verdict, "gains": _gains(row)} for row in verdict.rows},
    }


def _gains(row: Any) -> dict[str, list[float] | str]:
    found = {"0": _plain(row.gain)}
    faster = getattr(row, "faster", None)
    if faster is None:
        found["0.5"] = _plain(row.gain_if_faster)
        found["0.25"] = "this version predicts only what is twice as fast"
    else:
        by_factor = {float(k): gain for k, gain in faster.items()}
        for k in FASTER:
            found[f"{1 / k:g}"] = (
                _plain(by_factor[k]) if k in by_factor else f"no gain for {k} times as fast"
            )
    return found


def _plain(gain: Any) -> list[float] | str:
    if isinstance(gain, Interval):
        return [float(gain.value), float(gain.low), float(gain.high)]
    return str(gain.why)
