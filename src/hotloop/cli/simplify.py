"""`hotloop simplify TARGET`: how fast could it be, and what holds it back?"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hotloop.cli.output import consoles, parse, print_json, split_arguments
from hotloop.cli.session import finish, run_target, undeclared_state
from hotloop.errors import LoopError, RefusedError
from hotloop.loop.arm import process_board
from hotloop.loop.run import Run
from hotloop.report.console import print_simplify
from hotloop.report.live import LiveView
from hotloop.simplify.experiment import Experiment, SimplifySettings
from hotloop.simplify.verdict import judge_run


@dataclass(frozen=True)
class Options:
    """Find by experiment what holds a loop back, and how fast it could be."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or script.py (arguments after --)."""
    settings: tyro.conf.OmitArgPrefixes[SimplifySettings] = field(default_factory=SimplifySettings)
    json: bool = False
    """Print the verdict as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    own, passed_on = split_arguments(arguments)
    options = parse(Options, own, "simplify")
    console, errors = consoles(options.json)
    board = process_board()

    def announce(notices: Sequence[str]) -> None:
        for notice in notices:
            errors.print(f"[yellow]note[/]  {notice}", highlight=False)

    experiment = Experiment(board, options.settings, announce=announce, undeclared=undeclared_state)
    start = board.clock.now_ns()

    def progress() -> float:
        return (board.clock.now_ns() - start) * 1e-9 / options.settings.budget

    with LiveView(errors, options.target, progress) as view:
        outcome = run_target(
            options.target,
            passed_on,
            experiment.run,
            view.update,
            price_per_hour=options.settings.price_per_hour,
            seconds=options.settings.budget,
        )
    record = experiment.record
    if outcome.error is None and (outcome.loop is None or outcome.facts.get("script_ended")):
        why = outcome.facts.get("no_iterations") or "the script ended before the experiment did"
        outcome.error = LoopError(f"{options.target}: {why}")
    result = Run(
        verb="simplify",
        target=options.target,
        settings=dataclasses.asdict(options.settings),
        facts=outcome.facts | record.facts(),
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )
    refused: list[str] = []

    def show() -> None:
        verdict, _ = judge_run(result)
        if options.json:
            print_json(verdict)
        else:
            print_simplify(console, verdict, result)
        if verdict.refused is not None:
            refused.append(verdict.refused)

    code = finish(errors, result, outcome, options.save, show)
    if refused:
        raise RefusedError(f"no verdict: {refused[0]}")
    return code
