"""What hotloop says of a loop: the one place that knows by which functions it is asked."""

import gc
import importlib
import time
from typing import Any

import hotloop
from hotloop.benchmark.benchmark import Benchmark, BenchmarkSettings
from hotloop.loop import Arm, Loop, drive
from hotloop.loop.arm import REAL
from hotloop.loop.control import process_control
from hotloop.loop.figures import Interval, rate_interval
from hotloop.loop.host import host_facts
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.judge import judge
from hotloop.simplify.settings import SimplifySettings
from league.turns import in_turns

FASTER = (2, 4)
Plain = list[float] | str  # value, low, high; or why there is none


def before_making() -> None:
    """Do what the command line does before it makes a loop.

    What hotloop has imported by then is not counted by the collector: its pauses shall be the
    loop's own.
    """
    host_facts()
    if hasattr(hotloop, "run_simplify"):
        importlib.import_module("hotloop.results.simplify")
        with importlib.import_module("hotloop.benchmark.meters").Meters():
            pass
    else:
        process_control().set(Arm("starting", rest=REAL))
    gc.collect()
    gc.freeze()


def predict(loop: Loop, budget: float) -> dict[str, Any]:
    """Run the experiment; returns the verdict as plain values.

    rows: for each stage its verdict and its gains, "0" if it were free, "0.5" and "0.25" of its
    work left; a gain is [value, low, high], or the reason why there is none.
    """
    begin = time.perf_counter()
    verdict = _verdict(loop, budget)
    fix = verdict.fix
    rate = _rate(verdict)
    return {
        "seconds": time.perf_counter() - begin,
        "unit_s": None if isinstance(rate, str) else 1 / rate[0],
        "refused": verdict.refused,
        "fix": None if fix is None else list(getattr(fix, "stages", None) or (fix.name,)),
        "leave": list(verdict.leave),
        "rows": {row.name: {"verdict": row.verdict, "gains": _gains(row)} for row in verdict.rows},
    }


def both_rates(loop: Loop, seconds: float) -> dict[str, Plain]:
    """Units per second by an experiment of so long, and by a benchmark in turns with its rounds."""
    control = process_control()
    benchmark = Benchmark(control, BenchmarkSettings(seconds=2 * seconds))
    experiment = Experiment(control, SimplifySettings(budget=seconds))

    def count(iterations: int) -> None:
        # What is in flight is told from the calls that no iteration accounts for.
        experiment.record.iterations_kept += iterations

    begins = (
        lambda request: request.phase == "steady state",
        lambda request: request.phase.startswith("round"),
    )
    turns = in_turns(benchmark.run(loop), experiment.run(loop), begins, count)
    drive(loop, turns, control)
    arrays = benchmark.record.arrays()
    verdict = judge(experiment.record, loop.name, experiment.settings.worth)
    return {
        "benchmark": _plain(rate_interval(arrays["units"], arrays["duration_ns"])),
        "simplify": _rate(verdict),
    }


def benchmark_share(loop: Loop, stage: str, seconds: float) -> float:
    """The share of the time in which a stage runs, from a benchmark."""
    found = hotloop.run_benchmark(loop, seconds=seconds).summary.stages
    return next(each.share.value for each in found if each.name == stage)


def _verdict(loop: Loop, budget: float) -> Any:
    if hasattr(hotloop, "run_simplify"):
        return hotloop.run_simplify(loop, budget=budget, faster=FASTER).verdict
    control = process_control()
    experiment = Experiment(control, SimplifySettings(budget=budget))
    drive(loop, experiment.run(loop), control)
    return judge(experiment.record, loop.name, experiment.settings.worth)


def _rate(verdict: Any) -> Plain:
    """Units per second of the loop as it was in the experiment."""
    baseline = verdict.baseline_ns
    if not isinstance(baseline, Interval):
        return _plain(baseline)
    units = 1e9 * verdict.units_per_iteration
    return [units / baseline.value, units / baseline.high, units / baseline.low]


def _gains(row: Any) -> dict[str, Plain]:
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


def _plain(gain: Any) -> Plain:
    if isinstance(gain, Interval):
        return [float(gain.value), float(gain.low), float(gain.high)]
    return str(gain.why)
