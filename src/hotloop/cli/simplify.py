"""`hotloop simplify TARGET`: how fast could it be, and what holds it back?"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console

from hotloop.cli.output import consoles, parse, print_json, quiet, say_saved, split_arguments
from hotloop.cli.session import Outcome, finish, run_target, undeclared_state
from hotloop.errors import LoopError, RefusedError
from hotloop.loop.board import process_board
from hotloop.loop.run import Run
from hotloop.report.console import print_level, print_simplify
from hotloop.report.live import LiveView
from hotloop.simplify.deepen import Deepening
from hotloop.simplify.experiment import Experiment, SimplifySettings
from hotloop.simplify.record import Record
from hotloop.simplify.verdict import judge_run


@dataclass(frozen=True)
class Options:
    """Find by experiment what holds a loop back, and how fast it could be."""

    target: tyro.conf.Positional[str]
    """ppo:CartPole-v1, file.py:function, module:function, or script.py (arguments after --)."""
    settings: tyro.conf.OmitArgPrefixes[SimplifySettings] = field(default_factory=SimplifySettings)
    deepen: str | None = None
    """Look inside this stage: the same experiment on the functions it calls, level by level."""
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

    deepening: Deepening | None = None
    if options.deepen is None:
        experiment = Experiment(
            board, options.settings, announce=announce, undeclared=undeclared_state
        )
        measurement = experiment.run
    else:
        deepening = Deepening(board, options.settings, options.deepen, options.target)
        measurement = deepening.run
    start = board.clock.now_ns()

    def progress() -> float:
        return (board.clock.now_ns() - start) * 1e-9 / options.settings.budget

    with quiet(options.json), LiveView(errors, options.target, progress) as view:
        outcome = run_target(
            options.target,
            passed_on,
            measurement,
            view.update,
            seconds=options.settings.budget,
        )
    if outcome.error is None and (outcome.loop is None or outcome.facts.get("script_ended")):
        why = outcome.facts.get("no_iterations") or "the script ended before the experiment did"
        outcome.error = LoopError(f"{options.target}: {why}")
    if deepening is not None:
        return _finish_levels(console, errors, options, deepening, outcome)
    result = _run(options, options.target, experiment.record, outcome)
    refused: list[str] = []

    def show() -> None:
        verdict, _ = judge_run(result)
        if options.json:
            print_json(verdict)
        else:
            print_simplify(console, verdict, result)
        if verdict.refused is not None:
            refused.append(verdict.refused)

    enough = len(experiment.record.ns) > 0
    code = finish(errors, result, outcome.error, options.save, show, enough=enough)
    if refused:
        raise RefusedError(f"no verdict: {refused[0]}")
    return code


def _finish_levels(
    console: Console, errors: Console, options: Options, deepening: Deepening, outcome: Outcome
) -> int:
    """Show and save every level that was measured, each a run of its own."""
    measured = [level for level in deepening.levels if level.record and level.verdict]
    if options.json:
        print_json([level.verdict for level in measured])
    for number, level in enumerate(measured):
        assert level.record is not None
        assert level.verdict is not None
        result = _run(options, f"{options.target} {level.stage}", level.record, outcome)
        if not options.json:
            print_level(console, level)
        place = options.save
        if place is not None and number:
            place = place.with_stem(f"{place.stem}-{number + 1}")
        say_saved(errors, result.save(place), result.complete)
    if outcome.error is not None:
        raise outcome.error
    return 0


def _run(options: Options, target: str, record: Record, outcome: Outcome) -> Run:
    return Run(
        verb="simplify",
        target=target,
        settings=dataclasses.asdict(options.settings),
        facts=outcome.facts | record.facts(),
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )
