"""`hotloop compare A B`: which is faster?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, show_result
from hotloop.errors import parsed_share
from hotloop.repeat.comparison import CompareSettings
from hotloop.results.compare import measure_compare, sides_of


@dataclass(frozen=True)
class Options:
    """Measure whether B is faster than A, in turns. A side is a target with settings, such as
    "ppo:CartPole-v1 num_envs=16", a script with its arguments, a test that uses the fixture
    `benchmark`, or a whole command, such as "python train.py". NAME=value before it sets a variable
    of its environment; directly behind a target, --settings-from FILE names the settings that
    `hotloop optimize` has written for it.
    """

    a: tyro.conf.Positional[str]
    """What B is compared with."""
    b: tyro.conf.Positional[str | None] = None
    """Left out where --before and --after name two versions of A."""
    before: str | None = None
    """A commit, branch or tag, or the folder of another checkout: A runs there."""
    after: str | None = None
    """The same for B; default: the working tree as it is."""
    shared_environment: bool = False
    """Run a commit that declares other dependencies with what is installed here."""
    budget: float = CompareSettings.budget
    """Time for the whole comparison, in seconds; clear cases need less."""
    margin: Annotated[str, tyro.conf.arg(metavar="SHARE")] = "3%"
    """The difference that does not matter, as a share of A's time: 3% or 0.03."""
    seed: int = CompareSettings.seed
    """Of the order of the blocks, and of Python's hashes."""
    json: bool = False
    """Print the answer as JSON."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "compare")
    console, errors = consoles(options.json)
    settings = CompareSettings(
        budget=options.budget, margin=parsed_share("--margin", options.margin), seed=options.seed
    )
    with (
        sides_of(
            options.a,
            options.b,
            options.before,
            options.after,
            shared_environment=options.shared_environment,
        ) as sides,
        progress_bar(errors, "compare") as bar,
    ):
        task = bar.add_task(options.a, total=1.0)
        ending = measure_compare(sides, settings, lambda share: bar.update(task, completed=share))
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)

    return finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)


def progress_bar(errors: Console, verb: str) -> Progress:
    """A bar of the budget that is used; clear cases need less than all of it."""
    columns = (TextColumn(f"[bold]{verb} {{task.description}}"), BarColumn(), TextColumn("at most"))
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
