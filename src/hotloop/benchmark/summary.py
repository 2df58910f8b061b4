"""The summary of a benchmark's samples: rates with intervals, use of the machine, time by stage.

Pure functions of a saved run. A number that is not known is an `Unknown` with the reason.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.benchmark.meters import COLUMNS
from hotloop.benchmark.percentiles import percentiles
from hotloop.benchmark.ranks import Ranks, ranks_of, ranks_warnings
from hotloop.errors import RunError
from hotloop.loop.figures import Figure, Interval, Unknown, mean_interval, rate_interval
from hotloop.loop.run import Run

# Percentiles that are given, and from how many iterations on.
PERCENTILES = {0.5: 1, 0.95: 20, 0.99: 100}
MUCH_MEASURING = 0.03  # of the time: then it is said
MUCH_SPINNING = 0.1  # of the cores, by threads of OpenMP and BLAS: then it is said


@dataclass(frozen=True)
class StageTime:
    """One stage in the steady state, inner stages included.

    ns_per_iteration, share: the time during which at least one of its calls ran. Calls that run
    side by side are counted once there; summed_ns_per_iteration adds them up, and at_once is how
    many run together on average while any does.
    """

    name: str
    kind: str
    inside: str | None
    ns_per_iteration: Interval
    share: Interval
    summed_ns_per_iteration: Interval
    at_once: float
    calls_per_iteration: float
    ns_per_call: float
    bytes_per_iteration: Figure
    cpu_share: Figure


@dataclass(frozen=True)
class Percentiles:
    """The durations that half, 1 in 20 and 1 in 100 exceed, in ms."""

    p50: Figure
    p95: Figure
    p99: Figure


@dataclass(frozen=True)
class Summary:
    """The results of a benchmark.

    ms_per_iteration is the mean. unit_latency is an iteration's duration over its units, weighted
    by its units: the time of one unit.
    """

    target: str
    unit: str
    iterations: int
    seconds: float
    wall_s: Figure
    units_per_s: Figure
    batches_per_s: Figure
    iterations_per_s: Figure
    ms_per_iteration: Figure
    iteration_percentiles: Percentiles
    unit_latency: Percentiles
    start_up_s: Figure
    first_batch_s: Figure
    warm_up_s: Figure
    stable: bool
    cpu_cores: Figure
    cpu_share: Figure
    memory_bytes: Figure
    gpu_duty: Figure
    gpu_memory_bytes: Figure
    gpu_sm: Figure
    gpu_tensor: Figure
    flops_per_s: Figure
    mfu: Figure
    flops_coverage: Figure
    uncounted: list[str]
    cost_per_million: Figure
    price_per_hour: float | None
    stages: list[StageTime]
    warnings: list[str]
    ranks: Ranks | None = None


def summarize(run: Run) -> Summary:
    """Summarize a benchmark's run. Raises: RunError if it is a run of another verb."""
    if run.verb != "benchmark":
        raise RunError(f"a {run.verb} run of {run.target} has no benchmark in it")
    facts = run.facts
    durations, units = run.arrays["duration_ns"], run.arrays["units"]
    none = Unknown(facts.get("no_iterations") or "no steady iteration was measured")
    measured = len(durations) > 0
    ones = np.ones(len(durations))
    per_s: Figure = rate_interval(units, durations) if measured else none
    iterations_per_s: Figure = rate_interval(ones, durations) if measured else none
    price = facts.get("price_per_hour")
    flops, mfu, coverage, uncounted = _arithmetic(facts, iterations_per_s)
    return Summary(
        target=run.target,
        unit=facts.get("unit", "iterations"),
        iterations=len(durations),
        seconds=float(durations.sum() * 1e-9),
        wall_s=_number(facts.get("seconds"), "the run was cut short"),
        units_per_s=per_s,
        batches_per_s=_batches(facts, iterations_per_s),
        iterations_per_s=iterations_per_s,
        ms_per_iteration=rate_interval(durations * 1e-6, ones * 1e9) if measured else none,
        iteration_percentiles=_percentiles(durations * 1e-6, ones, none),
        unit_latency=_unit_latency(durations * 1e-6, units, none),
        start_up_s=_number(facts.get("start_up_s"), none.why),
        first_batch_s=_number(facts.get("first_batch_s"), none.why),
        warm_up_s=_number((facts.get("warm_up") or {}).get("seconds"), none.why),
        stable=_stable(facts),
        price_per_hour=price,
        cost_per_million=_cost(price, per_s),
        flops_per_s=flops,
        mfu=mfu,
        flops_coverage=coverage,
        uncounted=uncounted,
        stages=stage_times(run),
        warnings=_warnings(run),
        ranks=ranks_of(run),
        **_gauges(run),
    )


def _batches(facts: dict[str, Any], iterations_per_s: Figure) -> Figure:
    if not isinstance(iterations_per_s, Interval):
        return iterations_per_s
    return iterations_per_s.scaled(facts.get("batches_per_iteration", 1))


def _stable(facts: dict[str, Any]) -> bool:
    return bool((facts.get("warm_up") or {}).get("stable"))


def _number(value: float | None, why: str) -> Figure:
    return Unknown(why) if value is None else float(value)


def _percentiles(durations_ms: np.ndarray, weights: np.ndarray, none: Unknown) -> Percentiles:
    count = len(durations_ms)
    if not count:
        return Percentiles(none, none, none)
    values = percentiles(durations_ms, weights, list(PERCENTILES))
    return Percentiles(
        *(
            value
            if count >= least
            else Unknown(f"it needs {least} iterations, {count} were measured; give more --seconds")
            for least, value in zip(PERCENTILES.values(), values, strict=True)
        )
    )


def _unit_latency(durations_ms: np.ndarray, units: np.ndarray, none: Unknown) -> Percentiles:
    some = units > 0
    if len(units) and not some.any():
        none = Unknown("no iteration did any units")
    return _percentiles(durations_ms[some] / units[some], units[some], none)


def _cost(price: float | None, per_s: Figure) -> Figure:
    if price is None:
        return Unknown("no price: give --price-per-hour")
    if not isinstance(per_s, Interval) or per_s.value <= 0:
        return Unknown("no rate to divide the price by")
    million = price / 3600 * 1e6
    return Interval(million / per_s.value, million / per_s.high, million / per_s.low)


def _arithmetic(
    facts: dict[str, Any], iterations_per_s: Figure
) -> tuple[Figure, Figure, Figure, list[str]]:
    work, peaks = facts.get("work"), facts.get("peaks")
    if not work or not work["counted_calls"] or not isinstance(iterations_per_s, Interval):
        unknown = Unknown(facts.get("work_problem") or "no operations were counted")
        return unknown, unknown, unknown, []
    flops = iterations_per_s.scaled(work["flops"])
    uncounted = sorted(work["uncounted"], key=lambda name: -work["uncounted"][name])
    calls = work["counted_calls"] + sum(work["uncounted"].values())
    products = iterations_per_s.scaled(work.get("product_flops", work["flops"]))
    mfu = products.scaled(1 / peaks["flops_per_s"]) if peaks else Unknown("no peak was measured")
    return flops, mfu, work["counted_calls"] / calls, uncounted


def stage_times(run: Run) -> list[StageTime]:
    """The time of each stage, from the blocks of a run."""
    durations, block_of = run.arrays["duration_ns"], run.arrays["block_of"]
    stages = run.facts.get("stages", [])
    if not len(durations) or not stages:
        return []
    block_ns = np.bincount(block_of, durations)
    block_iterations = np.bincount(block_of).astype(float)
    found = []
    for column, stage in enumerate(stages):
        time_ns = run.arrays["stage_ns"][:, column]
        running_ns = run.arrays.get("stage_running_ns", run.arrays["stage_ns"])[:, column]
        calls = run.arrays["stage_calls"][:, column]
        total_calls = float(calls.sum())
        share = rate_interval(running_ns, block_ns * 1e9)
        per_iteration = total_calls / len(durations)
        bytes_per_call = stage["bytes_per_call"]
        cpu = stage["cpu_share"]
        found.append(
            StageTime(
                name=stage["name"],
                kind=stage["kind"],
                inside=stage["inside"],
                ns_per_iteration=rate_interval(running_ns, block_iterations * 1e9),
                # A call that began before the measurement counts whole.
                share=share.at_most(1.0),
                summed_ns_per_iteration=rate_interval(time_ns, block_iterations * 1e9),
                at_once=float(time_ns.sum() / running) if (running := running_ns.sum()) else 0.0,
                calls_per_iteration=per_iteration,
                ns_per_call=float(time_ns.sum() / total_calls) if total_calls else float("nan"),
                bytes_per_iteration=(
                    Unknown("it takes and returns no arrays")
                    if bytes_per_call is None
                    else bytes_per_call * per_iteration
                ),
                cpu_share=Unknown("not timed on one thread") if cpu is None else cpu,
            )
        )
    return found


def _gauges(run: Run) -> dict[str, Any]:
    samples = run.arrays.get("meters", np.zeros((0, len(COLUMNS))))
    starts = run.arrays["start_ns"]
    if len(starts):
        end = starts[-1] + run.arrays["duration_ns"][-1]
        # One more sample on each side: a rate needs the readings that enclose the time.
        times = samples[:, 0]
        first = max(0, int(np.searchsorted(times, starts[0])) - 1)
        samples = samples[first : int(np.searchsorted(times, end)) + 1]
    columns = dict(zip(COLUMNS, samples.T, strict=True)) if len(samples) else {}
    few = Unknown("the run was too short for two samples")
    cores: Figure = few
    if len(samples) >= 2:
        cores = rate_interval(np.diff(columns["cpu_s"]), np.diff(columns["time_ns"]))
    usable = run.facts.get("usable_cores")
    gpu = run.facts.get("gpu_problem")
    activity = run.facts.get("gpu_activity_problem")

    def gauge(name: str, why: str | None, peak: bool = False) -> Figure:
        if why is not None or not len(samples):
            return Unknown(why or few.why)
        values = columns[name][np.isfinite(columns[name])]
        if not len(values):
            return Unknown("the card did not say")
        return float(values.max()) if peak else mean_interval(values)

    return {
        "cpu_cores": cores,
        "cpu_share": (cores.scaled(1 / usable) if isinstance(cores, Interval) and usable else few),
        "memory_bytes": gauge("memory_bytes", None, peak=True),
        "gpu_duty": gauge("gpu_duty", gpu),
        "gpu_memory_bytes": gauge("gpu_memory_bytes", gpu, peak=True),
        "gpu_sm": gauge("gpu_sm", activity),
        "gpu_tensor": gauge("gpu_tensor", activity),
    }


def _spinning_share(run: Run) -> float:
    """The share of the usable cores that threads of OpenMP and BLAS had, which spin."""
    # Runs of older versions have another name for it, or do not say it.
    before = run.arrays.get("block_helpers_cpu_ns", np.zeros(1))
    used_ns = float(run.arrays.get("block_spinning_cpu_ns", before).sum())
    usable_ns = run.facts.get("usable_cores", 1.0) * float(run.arrays["duration_ns"].sum())
    return used_ns / usable_ns if usable_ns else 0.0


def _measuring(spent_ns: Interval, iteration_ns: float) -> list[str]:
    """Say what measuring takes of an iteration, where it is much for certain."""
    share = spent_ns.scaled(1 / iteration_ns)
    if not share.low > MUCH_MEASURING:
        return []
    about = f"about {share.value:.0%} [{share.low:.0%}, {share.high:.0%}] of the time, or more"
    least = f"at least {share.low:.0%} of the time"
    taken = about if share.low < share.high else least
    return [f"measuring the calls takes {taken}: alone the loop is faster"]


def _warnings(run: Run) -> list[str]:
    found: list[str] = []
    facts, durations = run.facts, run.arrays["duration_ns"]
    if len(durations) and not _stable(facts):
        found.append(
            "the warm-up ended before two windows agreed within 5%: the rate may still be "
            "drifting; give more --seconds"
        )
    if len(durations) > 20:
        mean, median = float(durations.mean()), float(np.median(durations))
        if mean > 1.25 * median:
            found.append(
                f"a few slow iterations take much of the time: the mean, {mean * 1e-6:.3g} ms, is "
                f"{mean / median:.2f} times the median, {median * 1e-6:.3g} ms; see p95 and p99"
            )
    spinning = _spinning_share(run)
    if spinning > MUCH_SPINNING:
        found.append(
            f"threads of OpenMP and BLAS used {spinning:.0%} of the cores; they spin between two "
            "tasks, so that the CPU looks busier than it is: fewer torch threads may be as fast"
        )
    measuring = facts.get("measuring_ns")
    if measuring and len(durations):
        found += _measuring(Interval(**measuring), float(durations.mean()))
    if facts.get("dropped_events"):
        found.append(
            f"{facts['dropped_events']} calls in worker processes were not logged; "
            "their stages' times are too low"
        )
    found += ranks_warnings(ranks_of(run))
    if not run.complete:
        found.append("the run was interrupted; this is what it had measured")
    return found
