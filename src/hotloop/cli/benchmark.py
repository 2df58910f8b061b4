"""`hotloop benchmark TARGET`: how fast is it, and where does the time go?"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hotloop.benchmark.benchmark import BenchmarkSettings
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, given, parse, quiet, show_result, split_arguments
from hotloop.errors import SettingError
from hotloop.report.live import LiveView
from hotloop.results.benchmark import measure_benchmark


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
    """Measure how fast an env is stepped by each backend instead: all, or a list with commas, such
    as serial,process,auto; an unknown name is answered with the nearest, or with all there are.
    --seconds is then for all of them together, 30 if not given."""
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
    if given("num_envs", own):
        raise SettingError("--num-envs: expected --backends beside it; a loop makes its own envs")
    console, errors = consoles(options.json)
    with quiet(options.json):
        ending = measure_benchmark(
            options.target,
            options.settings,
            arguments=passed_on,
            # A script without iterations runs to its end, unless a time was asked for.
            stop_after=options.settings.seconds if given("seconds", own) else None,
            view=lambda progress: LiveView(errors, options.target, progress),
            whole_process=True,
        )
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)

    return finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)


def _backends(options: Options, backends: str, own: list[str], passed_on: list[str]) -> int:
    """Measure an env in place of a loop; what has no meaning for that is refused."""
    from hotloop.cli.backends import measure_backends
    from hotloop.envs.backends import names_in
    from hotloop.envs.sweep import SweepSettings

    for name in ("iterations", "price_per_hour"):
        if given(name, own):
            raise SettingError(
                f"--{name.replace('_', '-')}: expected without --backends, which measures an env "
                "and no loop; leave one of them out"
            )
    if passed_on:
        raise SettingError(
            f"--backends: expected no arguments after --, which are a script's, got {passed_on}"
        )
    settings = SweepSettings(num_envs=options.num_envs, backends=names_in(backends))
    if given("seconds", own):
        settings = dataclasses.replace(settings, seconds=options.settings.seconds)
    return measure_backends(options.target, settings, json=options.json, save=options.save)
