"""Benchmarks, for Python and for the command: the measurement and its result."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hotloop.benchmark.benchmark import Benchmark, BenchmarkRecord, BenchmarkSettings
from hotloop.benchmark.summary import Summary
from hotloop.errors import LoopError
from hotloop.loop.chosen import Chosen
from hotloop.loop.control import process_control
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.scripts.start import StartLimits
from hotloop.loop.target import settings_of
from hotloop.recognise.settings import RecogniseSettings
from hotloop.report.benchmark import BENCHMARK
from hotloop.results.rank_files import Order
from hotloop.results.ranks import ranks_ending, starts_ranks
from hotloop.results.result import Ending, Result, View
from hotloop.results.session import (
    SLOW_START_S,
    Announce,
    AsRank,
    Outcome,
    recognised_start,
    run_target,
)
from hotloop.results.signature import taken_from, takes_settings
from hotloop.results.targets import target_name
from hotloop.results.tracing import Tracing

# Seconds that finding the iterations of a script by its stages takes at least.
LEAST_WATCHED_S = 5.0


class BenchmarkResult(Result[Summary]):
    """How fast a loop is, and where its time goes."""

    kind = BENCHMARK

    @property
    def summary(self) -> Summary:
        """All figures: rates, durations, use of the machine, time by stage."""
        return self.found


@takes_settings(BenchmarkSettings, RecogniseSettings)
def run_benchmark(
    loop: Loop | str, *, arguments: Sequence[str] = (), **settings: Any
) -> BenchmarkResult:
    """Measure how fast a loop runs, and where its time goes.

    loop: a `hotloop.Loop`, which is not closed; or a target as the command line takes it, such as
    "file.py:function" or "script.py". arguments: of a script. The settings are the fields of
    `BenchmarkSettings`, and of `RecogniseSettings` for a script as it stands; a script without
    iterations is stopped after `seconds` only if it is given.

    Raises: SettingError for a setting that is unknown or out of range; TargetError; LoopError;
    errors of the loop itself, and KeyboardInterrupt. If something was measured before, it is the
    attribute `result` of the exception.
    """
    recognise = taken_from(settings, RecogniseSettings)
    chosen: BenchmarkSettings = settings_of(BenchmarkSettings, settings)
    stop_after = chosen.seconds if "seconds" in settings else None
    return measure_benchmark(
        loop, chosen, arguments=arguments, recognise=recognise, stop_after=stop_after
    ).completed()


def measure_benchmark(
    target: Loop | str,
    settings: BenchmarkSettings,
    *,
    arguments: Sequence[str] = (),
    chosen: Chosen | None = None,
    recognise: RecogniseSettings | None = None,
    announce: Announce | None = None,
    stop_after: float | None = None,
    view: View | None = None,
    whole_process: bool = False,
    as_rank: AsRank | None = None,
    trace: Path | None = None,
) -> Ending[BenchmarkResult]:
    """Measure how fast a target runs; an error is part of what is returned.

    chosen: settings of the target, and options of its levers. recognise: how the parts of a script
    are found. announce: called with what is said before such a script starts. stop_after: seconds
    after which a script without iterations is stopped; None: it runs to its end. view: shows the
    progress.
    whole_process: count the time from the process's start. as_rank: where this process is rank 0 of
    several; where the target starts them, each is measured in a process of its own. trace: where to
    write what happened meanwhile, for ui.perfetto.dev.
    """
    control = process_control()
    tracing = Tracing(trace, target, control)
    if starts_ranks(target):
        order = Order("benchmark", settings, recognise, {"stop_after": stop_after})
        return ranks_ending(order, target, arguments, chosen, announce, BenchmarkResult)
    benchmark = Benchmark(control, settings)
    record = benchmark.record
    start = control.clock.now_ns()

    def progress() -> float:
        if settings.iterations:
            return len(record.duration_ns) / settings.iterations
        return (control.clock.now_ns() - start) * 1e-9 / settings.seconds

    with nullcontext() if view is None else view(progress) as observer:
        outcome = run_target(
            target,
            lambda loop: tracing.of(benchmark.run(loop)),
            arguments=arguments,
            chosen=chosen,
            recognise=recognise,
            announce=announce,
            observer=observer,
            start_limits=lambda has_stages: _start_limits(has_stages, stop_after),
            whole_process=whole_process,
            as_rank=as_rank,
        )
    name = target_name(target)
    if outcome.facts.get("script_ended") and len(record.duration_ns) < 2:
        outcome.error = LoopError(
            f"{name} ended with {len(record.duration_ns)} iterations measured, too few "
            "for a rate: let it run longer, or ask for less with --seconds"
        )
    tracing.write(outcome.meters)
    run = _benchmark_run(name, settings, record, outcome)
    return Ending(BenchmarkResult(run), outcome.error)


def _benchmark_run(
    target: str, settings: BenchmarkSettings, record: BenchmarkRecord, outcome: Outcome
) -> Run:
    """The run of a benchmark, to be saved."""
    return Run(
        verb="benchmark",
        target=target,
        settings=dataclasses.asdict(settings),
        facts=record.facts() | outcome.facts,
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )


def _start_limits(has_stages: bool, stop_after: float | None) -> StartLimits:
    """How long to wait: a script without stages is measured as a whole; others may start slowly."""
    if stop_after is None:
        return StartLimits()
    if not has_stages:
        return recognised_start(stop_after)
    return StartLimits(
        first_stage=SLOW_START_S,
        first_call=SLOW_START_S,
        first_iteration=max(stop_after, LEAST_WATCHED_S),
    )
