"""Benchmarks from Python and from the command: the same measurement, the same result."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from hotloop.benchmark.benchmark import Benchmark, BenchmarkSettings
from hotloop.benchmark.summary import Summary, summarize
from hotloop.errors import LoopError
from hotloop.loop.board import process_board
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.script import Patience
from hotloop.report.console import print_benchmark
from hotloop.results.mentions import mentions
from hotloop.results.result import Ending, Result, View, plain, settings_of
from hotloop.results.session import run_target
from hotloop.results.signature import takes_settings
from hotloop.results.targets import search_path, target_name

# A script that uses stages may load data for so long before it makes or calls the first one.
SLOW_START_S = 300.0
# What finding the iterations of a script takes at least, by its stages alone.
LEAST_WATCHED_S = 5.0


class BenchmarkResult(Result):
    """How fast a loop is, and where its time goes."""

    @cached_property
    def summary(self) -> Summary:
        """All figures: rates, durations, use of the machine, time by stage."""
        return summarize(self.run)

    def print_to(self, console: Console) -> None:
        """Print the report of `hotloop benchmark`."""
        print_benchmark(console, self.summary, self.run)

    def to_dict(self) -> dict[str, Any]:
        """What `hotloop benchmark --json` prints."""
        return dict(plain(self.summary))

    @property
    def enough(self) -> bool:
        """Whether an iteration was measured."""
        return len(self.run.arrays["duration_ns"]) > 0


@takes_settings(BenchmarkSettings)
def run_benchmark(
    loop: Loop | str, *, arguments: Sequence[str] = (), **settings: Any
) -> BenchmarkResult:
    """Measure how fast a loop runs, and where its time goes.

    loop: a `hotloop.Loop`, which is not closed; or a target as the command line takes it, such as
    "file.py:function" or "script.py". arguments: of a script. The settings are the fields of
    `BenchmarkSettings`; a script without iterations is stopped after `seconds` only if it is given.

    Raises: SettingError for a setting that does not exist or cannot be; TargetError; LoopError;
    whatever the loop raises, and KeyboardInterrupt. Where something had been measured before, it
    is the attribute `result` of the exception.
    """
    chosen: BenchmarkSettings = settings_of(BenchmarkSettings, settings)
    stop_after = chosen.seconds if "seconds" in settings else None
    return measure_benchmark(loop, chosen, arguments=arguments, stop_after=stop_after).completed()


def measure_benchmark(
    target: Loop | str,
    settings: BenchmarkSettings,
    *,
    arguments: Sequence[str] = (),
    stop_after: float | None = None,
    view: View | None = None,
    whole_process: bool = False,
) -> Ending[BenchmarkResult]:
    """Measure, and say how it ended.

    stop_after: seconds after which a script without iterations is stopped; None: at its end.
    view: shows how far the measurement is. whole_process: time counts from the process's start.
    """
    board = process_board()
    benchmark = Benchmark(board, settings)
    record = benchmark.record
    start = board.clock.now_ns()

    def progress() -> float:
        if settings.iterations:
            return len(record.duration_ns) / settings.iterations
        return (board.clock.now_ns() - start) * 1e-9 / settings.seconds

    with nullcontext() if view is None else view(progress) as observer:
        outcome = run_target(
            target,
            benchmark.run,
            arguments=arguments,
            observer=observer,
            patience=lambda path: _patience(path, stop_after),
            whole_process=whole_process,
        )
    name = target_name(target)
    if outcome.facts.get("script_ended") and len(record.duration_ns) < 2:
        outcome.error = LoopError(
            f"{name} ended with {len(record.duration_ns)} iterations measured, too few "
            "for a rate: let it run longer, or ask for less with --seconds"
        )
    run = Run(
        verb="benchmark",
        target=name,
        settings=dataclasses.asdict(settings),
        facts=record.facts() | outcome.facts,
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )
    return Ending(BenchmarkResult(run), outcome.error)


def _patience(script: Path, stop_after: float | None) -> Patience:
    """A script without marks is measured as a whole; one with stages may be slow to start."""
    if stop_after is None:
        return Patience()
    if not mentions(script, search_path()).stages:
        return Patience(in_all=stop_after)
    return Patience(
        first_stage=SLOW_START_S,
        first_call=SLOW_START_S,
        first_iteration=max(stop_after, LEAST_WATCHED_S),
    )
