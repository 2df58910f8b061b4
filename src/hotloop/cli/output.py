"""Where the verbs write: reports to standard output, everything in passing to standard error."""

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console

from hotloop.loop.run import Run
from hotloop.results.result import WIDTH, plain

T = TypeVar("T")


def consoles(json_only: bool = False) -> tuple[Console, Console]:
    """The console for the report and the one for progress and messages."""
    out = Console(quiet=json_only)
    errors = Console(stderr=True)
    for console in (out, errors):
        if not console.is_terminal:
            console.width = WIDTH
    return out, errors


def parse(options: type[T], arguments: list[str], verb: str) -> T:
    """A verb's options, from its dataclass; wrong usage ends with exit code 2."""
    return tyro.cli(
        options,
        args=arguments,
        prog=f"hotloop {verb}",
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def print_json(value: Any) -> None:
    """A dataclass as JSON; an unknown number is null beside `unknown`, the reason."""
    json.dump(plain(value), sys.stdout, indent=2)
    print()


def content(run: Run) -> dict[str, Any]:
    """The facts and samples of a run of which nothing more is worked out."""
    return run.facts | {name: array.tolist() for name, array in run.arrays.items()}


def say_saved(errors: Console, path: Path, complete: bool) -> None:
    """Name the run's file as the command that draws it again."""
    what = "run saved" if complete else "partial run saved"
    command = f"hotloop report {shlex.quote(str(path))}"
    errors.print(f"{what}: {command}", style="dim", markup=False, highlight=False, soft_wrap=True)


def quiet(json_only: bool) -> contextlib.AbstractContextManager[object]:
    """Sends what the user's code prints to standard error where standard output is JSON."""
    return contextlib.redirect_stdout(sys.stderr) if json_only else contextlib.nullcontext()


def given(option: str, arguments: list[str]) -> bool:
    """Whether an option was said, as `--option value` or `--option=value`."""
    return any(argument.split("=")[0] == option for argument in arguments)


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and those after `--`, which belong to the user's script."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]
