"""`hotloop benchmark TARGET`: how fast is it, and where does the time go?"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hotloop.benchmark.benchmark import Benchmark, BenchmarkSettings
from hotloop.benchmark.summary import summarize
from hotloop.cli.output import consoles, given, parse, print_json, quiet, split_arguments
from hotloop.cli.session import finish, run_target
from hotloop.errors import LoopError, SettingError
from hotloop.loop.board import process_board
from hotloop.loop.run import Run
from hotloop.report.console import print_benchmark
from hotloop.report.live import LiveView


@dataclass(frozen=True)
class Options:
    """Measure how fast a loop runs, and where its time goes."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or script.py (arguments after --); with
    --backends the id of an env, such as CartPole-v1."""
    settings: tyro.conf.OmitArgPrefixes[BenchmarkSettings] = field(
        default_factory=BenchmarkSettings
    )
    backends: str | None = None
    """Measure how fast an env is stepped by each backend instead: all, or a list with commas of
    serial, native, process, auto, ray. --seconds is then for each variant, 3 if not given."""
    num_envs: int = 64
    """With --backends: envs stepped together."""
    json: bool = False
    """Print the figures as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    options = parse(Options, own, "benchmark")
    if options.backends is not None:
        return _backends(options, options.backends, own, passed_on)
    if _said("num_envs", own):
        raise SettingError("--num-envs: expected --backends beside it; a loop makes its own envs")
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


def _backends(options: Options, backends: str, own: list[str], passed_on: list[str]) -> int:
    """Measure an env in place of a loop; what has no meaning for that is refused."""
    from hotloop.cli.backends import measure_backends
    from hotloop.envs.sweep import SweepSettings
    from hotloop.envs.variants import as_backends

    for name in ("iterations", "price_per_hour"):
        if _said(name, own):
            raise SettingError(
                f"--{name.replace('_', '-')}: expected without --backends, which measures an env "
                "and no loop; leave one of them out"
            )
    if passed_on:
        raise SettingError(
            f"--backends: expected no arguments after --, which are a script's, got {passed_on}"
        )
    settings = SweepSettings(num_envs=options.num_envs, backends=as_backends(backends))
    if _said("seconds", own):
        settings = dataclasses.replace(settings, seconds=options.settings.seconds)
    return measure_backends(options.target, settings, json=options.json, save=options.save)


def _said(name: str, arguments: list[str]) -> bool:
    """Whether an option was given, written with dashes or underscores."""
    return any(a.split("=")[0].replace("-", "_") == f"__{name}" for a in arguments)
