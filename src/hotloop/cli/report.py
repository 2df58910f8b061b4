"""`hotloop report RUN …`: draw saved runs again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from hotloop.cli.output import consoles, parse, print_json
from hotloop.loop.run import Run
from hotloop.report.kinds import KINDS, kind_of
from hotloop.report.staircase import overview_json, print_staircase, staircase_section
from hotloop.results.repeat import tries_of
from hotloop.results.saved import open_run
from hotloop.results.send import send


@dataclass(frozen=True)
class Options:
    """Draw saved runs again: in the terminal, or as one page."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run files, as saved under .hotloop/. Several benchmarks are compared with the
    first, unpaired: `hotloop compare` measures in turns."""
    html: Path | None = None
    """Write one self-contained page of all the runs here, instead of printing them."""
    tries: bool = False
    """Also show the tries of these targets that the journal of this folder has, as `hotloop repeat`
    does: the staircase, and how predictions came true."""
    tensorboard: Path | None = None
    """Also write the figures that the journal notes of each run into this folder of TensorBoard."""
    wandb: str | None = None
    """Also send them to this project of Weights & Biases, a run there for each run here."""
    json: bool = False
    """Print figures and verdicts as JSON."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "report")
    console, errors = consoles(options.json)
    if not options.runs:
        errors.print("hotloop: name one run or more; `ls .hotloop` shows the saved ones")
        return 2
    runs = [open_run(path) for path in options.runs]
    tries = tries_of(run.target for run in runs) if options.tries else []
    for path, saved in zip(options.runs, runs, strict=True):
        send(saved, path.stem, options.tensorboard, options.wandb)
    if options.html is not None:
        from hotloop.report.html import write_html

        sections = [staircase_section(each, f"t{k}") for k, each in enumerate(tries)]
        path = write_html(runs, options.html, sections)
        console.print(f"report written: {path.resolve()}", highlight=False, soft_wrap=True)
        return 0
    found = [(saved, kind_of(saved).summarize(saved)) for saved in runs]
    if options.json:
        contents = [kind_of(saved).json(summary, saved) for saved, summary in found]
        contents += [overview_json(each) for each in tries]
        print_json(contents[0] if len(contents) == 1 else contents)
    else:
        _print(console, found)
        for each in tries:
            console.print()
            print_staircase(console, each)
    return 0


def _print(console: Console, found: Sequence[tuple[Run, Any]]) -> None:
    """Print each run, then the comparison of those of one kind."""
    for saved, summary in found:
        kind_of(saved).print(console, summary, saved)
    for verb, kind in KINDS.items():
        of_kind = [each for each in found if each[0].verb == verb]
        if kind.comparison is not None and len(of_kind) > 1:
            kind.comparison.print(console, of_kind)
