"""`hotloop benchmark TARGET`: how fast is it, and where does the time go?"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tyro

from hotloop.benchmark.benchmark import BenchmarkSettings
from hotloop.cli.chosen import chosen_for
from hotloop.cli.finish import finish
from hotloop.cli.options import numbers_in, with_module
from hotloop.cli.output import (
    consoles,
    given,
    parse,
    print_notices,
    quiet,
    say_written,
    show_result,
    split_arguments,
)
from hotloop.errors import SettingError
from hotloop.recognise.settings import RecogniseSettings
from hotloop.report.live import LiveView
from hotloop.results.benchmark import measure_benchmark


@dataclass(frozen=True)
class Options:
    """Measure how fast a loop runs, and where its time goes."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or a script as it stands: script.py,
    -m package.module, or an installed console script (arguments after --); with --backends the id
    of an env, such as CartPole-v1."""
    settings: tyro.conf.OmitArgPrefixes[BenchmarkSettings] = field(
        default_factory=BenchmarkSettings
    )
    recognise: tyro.conf.OmitArgPrefixes[RecogniseSettings] = field(
        default_factory=RecogniseSettings
    )
    backends: str | None = None
    """Measure how fast an env is stepped by each backend instead: all, or a list with commas, such
    as serial,process,auto; an unknown name is answered with the nearest, or with all there are.
    --seconds is then for all of them together, 30 if not given."""
    num_envs: int = 64
    """With --backends: envs stepped together."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written: the target runs with them."""
    simulate_nodes: str | None = None
    """Measure an env on so many simulated nodes of this machine instead, such as 8, or 2,8 for
    several: a step lasts --step-s for all envs of a node at once, and the rest is real. With the
    policy at the head, for all nodes at once and each in turn, and in fragments. --seconds is then
    for each measurement, 3 if not given. `hotloop plan RUN` forecasts other clusters from it."""
    step_s: str | None = None
    """With --simulate-nodes: seconds of a step, such as 0.1, or several with commas."""
    cores_per_node: int = 48
    """With --simulate-nodes: cores of a node, each with one env."""
    trace: Path | None = None
    """Also write what happened, for ui.perfetto.dev: stages by thread and process, iterations,
    arms, what waits to be taken, the use of the machine."""
    json: bool = False
    """Print the figures as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    own = with_module(own)
    options = parse(Options, own, "benchmark")
    _expect_beside(own)
    if options.backends is not None:
        return _backends(options, options.backends, own, passed_on)
    if options.simulate_nodes is not None:
        return _nodes(options, options.simulate_nodes, own, passed_on)
    console, errors = consoles(options.json)
    with quiet(options.json):
        ending = measure_benchmark(
            options.target,
            options.settings,
            arguments=passed_on,
            chosen=chosen_for(options.target, options.settings_from),
            recognise=options.recognise,
            announce=partial(print_notices, errors),
            # A script without iterations runs to its end, unless a time was asked for.
            stop_after=options.settings.seconds if given("seconds", own) else None,
            view=lambda progress: LiveView(errors, options.target, progress),
            whole_process=True,
            trace=options.trace,
        )
    if options.trace is not None:
        say_written(errors, "trace", options.trace, "ui.perfetto.dev")
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)

    return finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)


# Options that need another one beside them, and what the other one measures.
_BESIDE = {"num_envs": "backends", "step_s": "simulate_nodes", "cores_per_node": "simulate_nodes"}
_NOT_OF_A_LOOP = ("backends", "simulate_nodes")


def _expect_beside(own: list[str]) -> None:
    """Refuse options whose other one is missing, and two measurements at once."""
    for name, other in _BESIDE.items():
        if given(name, own) and not given(other, own):
            raise SettingError(
                f"{_option(name)}: expected {_option(other)} beside it; a loop makes its own envs"
            )
    if all(given(name, own) for name in _NOT_OF_A_LOOP):
        raise SettingError("--backends: expected without --simulate-nodes; leave one of them out")


def _expect_env_alone(option: str, own: list[str], passed_on: list[str]) -> None:
    """Refuse what has no meaning where an env is measured, and no loop."""
    for name in ("iterations", "price_per_hour", "settings_from", "iteration", "stage", "trace"):
        if given(name, own):
            raise SettingError(
                f"{_option(name)}: expected without {option}, which measures an env and no loop; "
                "leave one of them out"
            )
    if passed_on:
        raise SettingError(
            f"{option}: expected no arguments after --, which are a script's, got {passed_on}"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _nodes(options: Options, nodes: str, own: list[str], passed_on: list[str]) -> int:
    """Measure an env on simulated nodes in place of a loop."""
    from hotloop.cli.nodes import measure_simulated
    from hotloop.results.nodes import NodesSettings

    _expect_env_alone("--simulate-nodes", own, passed_on)
    if options.step_s is None:
        raise SettingError("--simulate-nodes: expected --step-s beside it: how long a step lasts")
    settings = NodesSettings(
        nodes=numbers_in("--simulate-nodes", nodes, int),
        step_s=numbers_in("--step-s", options.step_s, float),
        cores_per_node=options.cores_per_node,
    )
    if given("seconds", own):
        settings = dataclasses.replace(settings, seconds=options.settings.seconds)
    return measure_simulated(options.target, settings, json=options.json, save=options.save)


def _backends(options: Options, backends: str, own: list[str], passed_on: list[str]) -> int:
    """Measure an env in place of a loop; what has no meaning for that is refused."""
    from hotloop.cli.backends import measure_backends
    from hotloop.envs.backends import names_in
    from hotloop.envs.sweep import SweepSettings

    _expect_env_alone("--backends", own, passed_on)
    settings = SweepSettings(num_envs=options.num_envs, backends=names_in(backends))
    if given("seconds", own):
        settings = dataclasses.replace(settings, seconds=options.settings.seconds)
    return measure_backends(options.target, settings, json=options.json, save=options.save)
