"""The verbs' output: reports to standard output, progress and messages to standard error."""

import contextlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape

from hotloop.cli.chosen import refuse_where_none
from hotloop.cli.options import option_of, takes_several, with_all_values
from hotloop.loop.run import Run
from hotloop.report.kinds import kind_of
from hotloop.results.result import WIDTH, Result, plain

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
    """Parse a verb's options into its dataclass; wrong usage exits with code 2.

    Raises: SettingError for settings from a file, where the verb takes none.
    """
    refuse_where_none(verb, arguments)
    return tyro.cli(
        options,
        args=with_all_values(arguments, takes_several(options)),
        prog=f"hotloop {verb}",
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def print_json(value: Any) -> None:
    """Print a dataclass as JSON; an unknown number is null beside `unknown`, the reason."""
    json.dump(plain(value), sys.stdout, indent=2)
    print()


def print_notices(errors: Console, notices: Sequence[str]) -> None:
    """Print what is to be known before a measurement begins."""
    for notice in notices:
        errors.print(f"[yellow]note[/]  {escape(notice)}", highlight=False)


def show_run(out: Console, run: Run, *, json: bool) -> None:
    """Print the report of a run, or its figures as JSON."""
    kind = kind_of(run)
    summary = kind.summarize(run)
    if json:
        print_json(kind.json(summary, run))
    else:
        kind.print(out, summary, run)


def show_result(out: Console, result: Result[Any], *, json: bool) -> None:
    """Print the report of a measurement, or its figures as JSON."""
    if json:
        print_json(result.to_dict())
    else:
        result.print_to(out)


def say_saved(errors: Console, path: Path, complete: bool) -> None:
    """Print the command that draws the saved run again."""
    what = "run saved" if complete else "partial run saved"
    command = f"hotloop report {shlex.quote(str(path))}"
    errors.print(f"{what}: {command}", style="dim", markup=False, highlight=False, soft_wrap=True)


def say_written(errors: Console, what: str, path: Path, viewer: str) -> None:
    """Print where a file for another program's viewer is, and what shows it."""
    said = f"{what}: {path}   (open it at {viewer})"
    errors.print(said, style="dim", markup=False, highlight=False, soft_wrap=True)


def quiet(json_only: bool) -> contextlib.AbstractContextManager[object]:
    """Redirect prints of the user's code to standard error if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if json_only else contextlib.nullcontext()


def given(name: str, arguments: list[str]) -> bool:
    """Whether an option was given, written with dashes or underscores, `=` or a space."""
    return f"--{name.replace('_', '-')}" in map(option_of, arguments)


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split off the arguments after `--`, which belong to the user's script."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]
