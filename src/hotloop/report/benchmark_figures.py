"""The figures of a benchmark, each with its name, its form and a remark.

The terminal and the page list the same figures in the same order.
"""

from hotloop.benchmark.summary import Percentiles, Summary
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run
from hotloop.report.numbers import bytes_, duration, number, percent, seconds
from hotloop.report.sentence import NamedFigure


def benchmark_figures(summary: Summary, run: Run) -> list[NamedFigure]:
    """All figures of a benchmark: rates, durations, phases, use of the machine, cost."""
    return [
        *_rates(summary),
        *_durations(summary),
        *_phases(summary, run),
        *_machine_use(summary),
        *_arithmetic(summary, run),
        _cost(summary),
    ]


def bytes_unknown(summary: Summary) -> list[NamedFigure]:
    """The stages whose bytes moved are unknown, each with the reason."""
    return [
        NamedFigure(stage.name, Unknown(f"bytes moved, {stage.bytes_per_iteration.why}"), bytes_)
        for stage in summary.stages
        if isinstance(stage.bytes_per_iteration, Unknown)
    ]


def _rates(summary: Summary) -> list[NamedFigure]:
    rates = [
        NamedFigure(f"{summary.unit}/s", summary.units_per_s, number),
        NamedFigure("batches/s", summary.batches_per_s, number),
    ]
    if summary.unit != "iterations":
        rates.append(NamedFigure("iterations/s", summary.iterations_per_s, number))
    return rates


def _durations(summary: Summary) -> list[NamedFigure]:
    """The time of an iteration, and that of a unit: the mean and percentiles."""
    found = [
        NamedFigure("iteration", summary.ms_per_iteration, duration.scaled(1e6), "the mean"),
        *_percentiles(
            "iteration", summary.iteration_percentiles, "half of the iterations are slower"
        ),
    ]
    if summary.unit != "iterations":
        half = f"an iteration’s time over its {summary.unit}; half of them are slower"
        found += _percentiles("per unit", summary.unit_latency, half)
    return found


def _percentiles(name: str, found: Percentiles, half: str) -> list[NamedFigure]:
    form = duration.scaled(1e6)
    return [
        NamedFigure(f"{name} p50", found.p50, form, half),
        NamedFigure(f"{name} p95", found.p95, form, "1 in 20 is slower"),
        NamedFigure(f"{name} p99", found.p99, form, "1 in 100 is slower"),
    ]


def _phases(summary: Summary, run: Run) -> list[NamedFigure]:
    """The wall time before the steady state, and of everything together."""
    name, note = "whole call", "with its warm-up"  # a call from Python
    if run.facts.get("whole_process", True):
        name, note = "whole process", "from its start to the end of the measurement"
    first = "from the start to the first one’s end"
    return [
        NamedFigure("start-up", summary.start_up_s, seconds, "before the first iteration"),
        NamedFigure("first batch", summary.first_batch_s, seconds, first),
        NamedFigure("warm-up", summary.warm_up_s, seconds, "apart from the steady state"),
        NamedFigure(name, summary.wall_s, seconds, note),
    ]


def _machine_use(summary: Summary) -> list[NamedFigure]:
    awake = "time with a kernel awake, not efficiency"
    return [
        NamedFigure("CPU", summary.cpu_share, percent, "of the cores this process tree may use"),
        NamedFigure("peak memory", summary.memory_bytes, bytes_, "resident, of the process tree"),
        NamedFigure("GPU duty cycle", summary.gpu_duty, percent, awake),
        NamedFigure("GPU memory", summary.gpu_memory_bytes, bytes_),
        NamedFigure("GPU SM activity", summary.gpu_sm, percent),
        NamedFigure("GPU tensor activity", summary.gpu_tensor, percent),
    ]


def _arithmetic(summary: Summary, run: Run) -> list[NamedFigure]:
    """Operations per second, and their share of the measured peak."""
    counted = ""
    if not isinstance(summary.flops_coverage, Unknown | Interval):
        counted = f"from {percent(summary.flops_coverage)} of torch’s operations"
        left_out = ", ".join(summary.uncounted[:3])
        counted += f"; without a rule: {left_out} …" if left_out else ""
    peaks = run.facts.get("peaks")
    peak = ""
    if peaks:
        peak = f"products alone, of a measured {number(peaks['flops_per_s'])}; {peaks['how']}"
    return [
        NamedFigure("FLOP/s", summary.flops_per_s, number, counted),
        NamedFigure("MFU", summary.mfu, percent, peak),
    ]


def _cost(summary: Summary) -> NamedFigure:
    price = summary.price_per_hour
    note = f"at {price:g} an hour" if price else ""
    return NamedFigure(f"cost per million {summary.unit}", summary.cost_per_million, number, note)
