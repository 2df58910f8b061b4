"""`hotloop benchmark TARGET`: how fast is it, and where does the time go?"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hotloop.benchmark.benchmark import Benchmark, BenchmarkSettings
from hotloop.benchmark.summary import summarize
from hotloop.cli.output import consoles, given, parse, print_json, quiet, split_arguments
from hotloop.cli.session import finish, run_target
from hotloop.errors import LoopError
from hotloop.loop.board import process_board
from hotloop.loop.run import Run
from hotloop.report.console import print_benchmark
from hotloop.report.live import LiveView


@dataclass(frozen=True)
class Options:
    """Measure how fast a loop runs, and where its time goes."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or script.py (arguments after --)."""
    settings: tyro.conf.OmitArgPrefixes[BenchmarkSettings] = field(
        default_factory=BenchmarkSettings
    )
    json: bool = False
    """Print the figures as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    options = parse(Options, own, "benchmark")
    console, errors = consoles(options.json)
    settings = options.settings
    board = process_board()
    benchmark = Benchmark(board, settings)
    start = board.clock.now_ns()

    def progress() -> float:
        if settings.iterations:
            return len(benchmark.record.duration_ns) / settings.iterations
        return (board.clock.now_ns() - start) * 1e-9 / settings.seconds

    with quiet(options.json), LiveView(errors, options.target, progress) as view:
        outcome = run_target(
            options.target,
            passed_on,
            benchmark.run,
            view.update,
            # A script without iterations runs to its end, unless a time was asked for.
            seconds=settings.seconds if given("--seconds", own) else None,
        )
    record = benchmark.record
    result = Run(
        verb="benchmark",
        target=options.target,
        settings=dataclasses.asdict(settings),
        facts=record.facts() | outcome.facts,
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )
    if result.facts.get("script_ended") and len(record.duration_ns) < 2:
        outcome.error = LoopError(
            f"{options.target} ended with {len(record.duration_ns)} iterations measured, too few "
            "for a rate: let it run longer, or ask for less with --seconds"
        )
        result.complete = False

    def show() -> None:
        summary = summarize(result)
        if options.json:
            print_json(summary)
        else:
            print_benchmark(console, summary, result)

    enough = len(record.duration_ns) > 0
    return finish(errors, result, outcome.error, options.save, show, enough=enough)
