"""`hotloop simplify TARGET`: how fast could it be, and what holds it back?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tyro
from rich.console import Console

from hotloop.cli.chosen import chosen_for
from hotloop.cli.finish import end, finish, keep
from hotloop.cli.options import with_module
from hotloop.cli.output import (
    consoles,
    given,
    parse,
    print_json,
    print_notices,
    quiet,
    say_written,
    show_result,
    split_arguments,
)
from hotloop.errors import RefusedError, SettingError
from hotloop.loop.control import process_control
from hotloop.recognise.settings import ExperimentRecogniseSettings
from hotloop.report.deepen import print_level
from hotloop.report.live import LiveView
from hotloop.results.result import View
from hotloop.results.simplify import LONGEST_S, measure_simplify, run_experiment, simplify_run
from hotloop.simplify.deepen import Deepening
from hotloop.simplify.settings import SimplifySettings


@dataclass(frozen=True)
class Options:
    """Find by experiment what holds a loop back, and how fast it could be."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or a script as it stands: script.py,
    -m package.module, or an installed console script (arguments after --)."""
    settings: tyro.conf.OmitArgPrefixes[SimplifySettings] = field(default_factory=SimplifySettings)
    recognise: tyro.conf.OmitArgPrefixes[ExperimentRecogniseSettings] = field(
        default_factory=ExperimentRecogniseSettings
    )
    deepen: str | None = None
    """Look inside this stage: the same experiment on the functions it calls, level by level."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written: the target runs with them."""
    trace: Path | None = None
    """Also write what happened, for ui.perfetto.dev: stages by thread and process, and the arms."""
    json: bool = False
    """Print the verdict as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    own = with_module(own)
    options = parse(Options, own, "simplify")
    console, errors = consoles(options.json)

    def view(progress: Callable[[], float]) -> LiveView:
        return LiveView(errors, options.target, progress)

    if options.deepen is not None:
        return _look_inside(options, options.deepen, passed_on, console, errors, view)
    with quiet(options.json):
        ending = measure_simplify(
            options.target,
            options.settings,
            arguments=passed_on,
            chosen=chosen_for(options.target, options.settings_from),
            recognise=options.recognise,
            may_take=None if given("budget", own) else LONGEST_S,
            announce=partial(print_notices, errors),
            view=view,
            whole_process=True,
            trace=options.trace,
        )
    if options.trace is not None:
        say_written(errors, "trace", options.trace, "ui.perfetto.dev")
    result = ending.result
    refused: list[str] = []

    def show() -> None:
        show_result(console, result, json=options.json)
        if result.verdict.refused is not None:
            refused.append(result.verdict.refused)

    code = finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)
    if refused:
        raise RefusedError(f"no verdict: {refused[0]}")
    return code


def _look_inside(
    options: Options,
    stage: str,
    arguments: list[str],
    console: Console,
    errors: Console,
    view: View,
) -> int:
    """Show and save every level that was measured, each a run of its own."""
    if options.trace is not None:
        raise SettingError("--trace: expected without --deepen, which measures several times")
    deepening = Deepening(process_control(), options.settings, stage, options.target)
    with quiet(options.json):
        outcome = run_experiment(
            options.target,
            deepening.run,
            options.settings,
            arguments=arguments,
            chosen=chosen_for(options.target, options.settings_from),
            recognise=options.recognise,
            announce=partial(print_notices, errors),
            view=view,
            whole_process=True,
        )
    measured = [level for level in deepening.levels if level.record and level.verdict]
    if options.json:
        print_json([level.verdict for level in measured])
    problems: list[BaseException] = []
    for number, level in enumerate(measured):
        assert level.record is not None
        assert level.verdict is not None
        target = f"{options.target} {level.stage}"
        result = simplify_run(target, options.settings, level.record, outcome)
        if not options.json:
            print_level(console, level)
        place = options.save
        if place is not None and number:
            place = place.with_stem(f"{place.stem}-{number + 1}")
        problems += keep(errors, result, place, partial(tuple, (level.verdict, level.record)))
    return end(errors, outcome.error, problems)
