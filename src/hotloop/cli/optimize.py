"""`hotloop optimize TARGET`: which lever helps, measured?"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from hotloop.cli.chosen import chosen_for
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, quiet, show_result, split_arguments
from hotloop.errors import SettingError
from hotloop.loop.chosen import Chosen
from hotloop.loop.run import FOLDER
from hotloop.optimize.settings import OptimizeSettings
from hotloop.results.optimize import measure_optimize, tried_entry


@dataclass(frozen=True)
class Options:
    """Try the levers of a loop by experiment, and keep the fastest settings in a file."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, a model, file.py:function, module:function, or script.py (arguments after
    --)."""
    start: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME=VALUE")
    ] = ()
    """Settings that the target has before the search, such as num_envs=4."""
    settings: tyro.conf.OmitArgPrefixes[OptimizeSettings] = field(default_factory=OptimizeSettings)
    settings_from: Path | None = None
    """Begin with settings that an earlier search has written."""
    write: Path | None = None
    """Where to write the best settings; default: .hotloop/best-TARGET.yaml."""
    json: bool = False
    """Print the answer as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    options = parse(Options, own, "optimize")
    before = chosen_for(options.target, options.settings_from)
    start = Chosen(options.target, {**before.settings, **_named(options.start)}, before.levers)
    console, errors = consoles(options.json)
    with quiet(options.json), errors.status("starting") as status:
        ending = measure_optimize(
            options.target,
            options.settings,
            start,
            arguments=passed_on,
            observe=lambda what: status.update(f"trying {what}"),
        )
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)
        if result.found.best:
            place = options.write or FOLDER / f"best-{_plain(options.target)}.yaml"
            result.chosen.write(place)
            errors.print(
                f"best settings: {place}   (hotloop benchmark {options.target} "
                f"--settings-from {place})",
                style="dim",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    tried = tried_entry(result) if ending.error is None else None
    return finish(
        errors,
        result.run,
        ending.error,
        options.save,
        show,
        found=lambda: result.found,
        tried=tried,
    )


def _plain(target: str) -> str:
    """A target as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", target).strip("-")


def _named(words: tuple[str, ...]) -> dict[str, str]:
    """Settings as words. Raises: SettingError for a word that is none."""
    for word in words:
        if "=" not in word[1:]:
            raise SettingError(f"{word!r}: expected a setting as name=value, such as num_envs=4")
    return {name: value for name, _, value in (word.partition("=") for word in words)}
