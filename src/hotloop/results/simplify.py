"""Experiments, for Python and for the command: the measurement and its result."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hotloop.errors import LoopError, TargetError
from hotloop.loop.control import process_control
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.script import StartLimits
from hotloop.loop.target import settings_of
from hotloop.report.simplify import SIMPLIFY, Judged
from hotloop.results.benchmark import LEAST_WATCHED_S
from hotloop.results.mentions import mentions
from hotloop.results.result import Ending, Result, View
from hotloop.results.session import SLOW_START_S, Measure, Outcome, run_target, undeclared_state
from hotloop.results.signature import takes_settings
from hotloop.results.targets import search_path, target_name
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict

# Seconds, apart from imports, after which a script that seems to have no stages must have one.
NO_STAGES_S = 5.0
_ADD = (
    'Put a stage around each part of its loop, as in `step = hotloop.stage("env step", env.step)`, '
    "and mark its iterations, as in `for batch in hotloop.iterations(loader):` (docs/stages.md)"
)


class SimplifyResult(Result[Judged]):
    """How fast a loop could be, and what holds it back."""

    kind = SIMPLIFY

    @property
    def verdict(self) -> Verdict:
        """The answer; `verdict.refused` is the reason if there is none."""
        return self.found[0]

    @property
    def record(self) -> Record:
        """The samples of the experiment, arm by arm."""
        return self.found[1]


@takes_settings(SimplifySettings)
def run_simplify(
    loop: Loop | str, *, arguments: Sequence[str] = (), **settings: Any
) -> SimplifyResult:
    """Find by experiment what holds a loop back, and how fast it could be.

    loop: a `hotloop.Loop`, which is not closed; or a target as the command line takes it, such as
    "file.py:function" or "script.py". arguments: of a script. The settings are the fields of
    `SimplifySettings`. If there is no answer, `verdict.refused` of the result is the reason.

    Raises: SettingError for a setting that is unknown or out of range; TargetError; LoopError;
    errors of the loop itself, and KeyboardInterrupt: the loop's state is restored first. If
    something was measured before, it is the attribute `result` of the exception.
    """
    chosen: SimplifySettings = settings_of(SimplifySettings, settings)
    return measure_simplify(loop, chosen, arguments=arguments).completed()


def measure_simplify(
    target: Loop | str,
    settings: SimplifySettings,
    *,
    arguments: Sequence[str] = (),
    announce: Callable[[Sequence[str]], None] | None = None,
    view: View | None = None,
    whole_process: bool = False,
) -> Ending[SimplifyResult]:
    """Run the experiment; an error is part of what is returned.

    announce: called, before anything is replaced, with what the declared state does not cover.
    view: shows the progress. whole_process: count the time from the process's start.
    """
    experiment = Experiment(
        process_control(), settings, announce=announce, undeclared=undeclared_state
    )
    outcome = run_experiment(
        target,
        experiment.run,
        settings,
        arguments=arguments,
        view=view,
        whole_process=whole_process,
    )
    explained = experiment.explain(outcome.error) if outcome.error is not None else None
    if explained is not None and outcome.error is not None:
        outcome.error.add_note(explained)
    run = simplify_run(target_name(target), settings, experiment.record, outcome)
    return Ending(SimplifyResult(run), outcome.error)


def run_experiment(
    target: Loop | str,
    measure: Measure,
    settings: SimplifySettings,
    *,
    arguments: Sequence[str] = (),
    view: View | None = None,
    whole_process: bool = False,
) -> Outcome:
    """Run a target under a measurement that needs stages; that it ends too early is an error."""
    control = process_control()
    start = control.clock.now_ns()

    def progress() -> float:
        return (control.clock.now_ns() - start) * 1e-9 / settings.budget

    with nullcontext() if view is None else view(progress) as observer:
        outcome = run_target(
            target,
            measure,
            arguments=arguments,
            observer=observer,
            start_limits=lambda path: _start_limits(path, settings.budget),
            whole_process=whole_process,
        )
    facts = outcome.facts
    if outcome.error is None and (outcome.loop is None or facts.get("script_ended")):
        why = facts.get("no_iterations") or "the script ended before the experiment did"
        if facts.get("stopped"):
            why = f"{facts['stopped']}, so it was stopped. {_ADD}"
        outcome.error = LoopError(f"{target_name(target)}: {why}")
    return outcome


def simplify_run(target: str, settings: SimplifySettings, record: Record, outcome: Outcome) -> Run:
    """The run of an experiment, to be saved."""
    return Run(
        verb="simplify",
        target=target,
        settings=dataclasses.asdict(settings),
        facts=outcome.facts | record.facts(),
        arrays=record.arrays() | {"meters": outcome.meters},
        complete=outcome.error is None,
    )


def _start_limits(script: Path, budget: float) -> StartLimits:
    """How long to wait for the script's first iteration.

    Raises: TargetError for a script that does not use hotloop, so it has none.
    """
    found = mentions(script, search_path())
    if not found.anything:
        raise TargetError(
            f"{script.name}: neither it nor a module of yours that it imports mentions hotloop, so "
            f"there is no stage to replace. {_ADD}"
        )
    return StartLimits(
        first_stage=SLOW_START_S if found.stages else NO_STAGES_S,
        first_call=SLOW_START_S,
        first_iteration=max(budget, LEAST_WATCHED_S),
    )
