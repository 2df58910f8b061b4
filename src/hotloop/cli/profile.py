"""`hotloop profile TARGET`: what do the field's profilers say, stage by stage?"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tyro

from hotloop.cli.chosen import chosen_for
from hotloop.cli.finish import finish
from hotloop.cli.options import with_module
from hotloop.cli.output import (
    consoles,
    parse,
    print_notices,
    quiet,
    say_written,
    show_result,
    split_arguments,
)
from hotloop.loop.run import FOLDER
from hotloop.profile.settings import ProfileSettings
from hotloop.recognise.settings import RecogniseSettings
from hotloop.report.live import LiveView
from hotloop.results.profile import measure_profile


@dataclass(frozen=True)
class Options:
    """Profile a loop with the field's own profilers, joined to its stages."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or a script as it stands: script.py,
    -m package.module, or an installed console script (arguments after --)."""
    settings: tyro.conf.OmitArgPrefixes[ProfileSettings] = field(default_factory=ProfileSettings)
    stage: str | None = None
    """Only this stage; of a script also a function of yours, as module:function, which is made a
    stage."""
    iteration: str | None = None
    """Of a script: the stage whose calls begin an iteration; default: what repeats."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written: the target runs with them."""
    speedscope: Path | None = None
    """With --time: where to write the stacks for speedscope.app; default: under .hotloop/."""
    json: bool = False
    """Print the figures as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    before, passed_on = split_arguments(arguments)
    options = parse(Options, with_module(before), "profile")
    own = options.stage if options.stage is not None and ":" in options.stage else None
    console, errors = consoles(options.json)
    with quiet(options.json):
        ending = measure_profile(
            options.target,
            options.settings,
            # A function of the user's is a stage by its own name.
            only=options.stage if own is None else own.partition(":")[2],
            arguments=passed_on,
            chosen=chosen_for(options.target, options.settings_from),
            recognise=RecogniseSettings(options.iteration, () if own is None else (own,)),
            announce=partial(print_notices, errors),
            view=lambda progress: LiveView(errors, options.target, progress),
        )
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)
        path = options.speedscope or FOLDER / "profile.speedscope.json"
        if result.write_speedscope(path):
            say_written(errors, "stacks", path, "speedscope.app")

    return finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)
