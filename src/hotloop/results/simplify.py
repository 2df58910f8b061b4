"""Experiments, for Python and for the command: the measurement and its result."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hotloop.errors import LoopError
from hotloop.loop.chosen import Chosen
from hotloop.loop.conduct import Measurement
from hotloop.loop.control import process_control
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.scripts.start import StartLimits
from hotloop.loop.target import settings_of
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.phases import InnerPhase
from hotloop.recognise.settings import ExperimentRecogniseSettings
from hotloop.report.simplify import SIMPLIFY, Judged
from hotloop.results.benchmark import LEAST_WATCHED_S
from hotloop.results.rank_files import Order
from hotloop.results.ranks import expect_one_process, ranks_ending, starts_ranks
from hotloop.results.result import Ending, Result, View
from hotloop.results.session import (
    SLOW_START_S,
    Announce,
    AsRank,
    Measure,
    Outcome,
    found_iteration_s,
    found_iterations,
    not_put_back,
    recognised_start,
    run_target,
)
from hotloop.results.signature import taken_from, takes_settings
from hotloop.results.targets import target_name
from hotloop.results.tracing import Tracing
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.phased import PhasedExperiment, PhaseOfLoop
from hotloop.simplify.record import Record
from hotloop.simplify.saved_run import with_phases
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict

# Without a budget, a script with long iterations gets the time for so many, but no more seconds.
ITERATIONS_WANTED, LONGEST_S = 200, 270.0
# What is measured phase by phase needs no more: but this much for each phase.
PHASED_S = 30.0
_ADD = (
    "Name the function that does one iteration, as in `--stage __main__:run` (docs/scripts.md); or "
    'put a stage around each part of the loop, as in `step = hotloop.stage("env step", env.step)`, '
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


@takes_settings(SimplifySettings, ExperimentRecogniseSettings)
def run_simplify(
    loop: Loop | str, *, arguments: Sequence[str] = (), **settings: Any
) -> SimplifyResult:
    """Find by experiment what holds a loop back, and how fast it could be.

    loop: a `hotloop.Loop`, which is not closed; or a target as the command line takes it, such as
    "file.py:function" or "script.py". arguments: of a script. The settings are the fields of
    `SimplifySettings`, and of `ExperimentRecogniseSettings` for a script as it stands. If there is
    no answer, `verdict.refused` of the result is the reason.

    Raises: SettingError for a setting that is unknown or out of range; TargetError; LoopError;
    errors of the loop itself, and KeyboardInterrupt: the loop's state is restored first. If
    something was measured before, it is the attribute `result` of the exception.
    """
    recognise = taken_from(settings, ExperimentRecogniseSettings)
    chosen: SimplifySettings = settings_of(SimplifySettings, settings)
    may_take = None if "budget" in settings else LONGEST_S
    return measure_simplify(
        loop, chosen, arguments=arguments, recognise=recognise, may_take=may_take
    ).completed()


def measure_simplify(
    target: Loop | str,
    settings: SimplifySettings,
    *,
    arguments: Sequence[str] = (),
    chosen: Chosen | None = None,
    recognise: ExperimentRecogniseSettings | None = None,
    may_take: float | None = None,
    announce: Announce | None = None,
    view: View | None = None,
    whole_process: bool = False,
    as_rank: AsRank | None = None,
    trace: Path | None = None,
) -> Ending[SimplifyResult]:
    """Run the experiment; an error is part of what is returned.

    chosen: settings of the target, and options of its levers. recognise: how the parts of a script
    are found. may_take: seconds that the experiment may take, in place of the budget, where the
    iterations of a script turn out to be long. announce: called with what is
    said before a script starts, and before anything is replaced with what the state does not cover.
    view: shows the progress. whole_process: count the time from the process's start. as_rank: where
    this process is rank 0 of several. trace: where to write what happened, arm by arm, for
    ui.perfetto.dev.
    """
    control = process_control()
    tracing = Tracing(trace, target, control)
    if starts_ranks(target):
        order = Order("simplify", settings, recognise, {"may_take": may_take})
        return ranks_ending(order, target, arguments, chosen, announce, SimplifyResult)
    running: list[Experiment | PhasedExperiment] = []

    def measure(loop: Loop) -> Measurement[None]:
        running.append(_experiment(settings, may_take, announce))
        return tracing.of(running[0].run(loop))

    outcome = run_experiment(
        target,
        measure,
        settings,
        arguments=arguments,
        chosen=chosen,
        recognise=recognise,
        announce=announce,
        view=view,
        whole_process=whole_process,
        as_rank=as_rank,
    )
    tracing.write(outcome.meters)
    experiment = running[0] if running else Experiment(control, settings)
    explained = experiment.explain(outcome.error) if outcome.error is not None else None
    if explained is not None and outcome.error is not None:
        outcome.error.add_note(explained)
    run = simplify_run(target_name(target), experiment.settings, experiment.record, outcome)
    if isinstance(experiment, PhasedExperiment):
        run = with_phases(run, experiment)
    return Ending(SimplifyResult(run), outcome.error)


def _experiment(
    settings: SimplifySettings, may_take: float | None, announce: Announce | None
) -> Experiment | PhasedExperiment:
    """The experiment on the loop that begins now; on its phases, where its iterations are long."""
    found, iteration_s = found_iterations(), found_iteration_s()
    # Ranks keep in step at whole iterations: they have no phases.
    phases = [] if found is None else found.inner_phases()
    if found is not None and phases:
        return _by_phase(settings, found, phases, may_take)
    if may_take is not None and iteration_s is not None:
        budget = min(max(settings.budget, ITERATIONS_WANTED * iteration_s), may_take)
        settings = dataclasses.replace(settings, budget=budget)
    return Experiment(process_control(), settings, announce=announce, not_put_back=not_put_back)


def _by_phase(
    settings: SimplifySettings,
    found: FoundIterations,
    phases: Sequence[InnerPhase],
    may_take: float | None,
) -> PhasedExperiment:
    """An experiment for each phase of iterations that are long."""
    assert found.duration_s is not None
    parts = [
        PhaseOfLoop(
            phase.description,
            phase.share_of_time,
            phase.share_of_time * found.duration_s / phase.period.duration_s,
        )
        for phase in phases
    ]
    budget = max(settings.budget, PHASED_S * len(phases))
    return PhasedExperiment(
        process_control(),
        dataclasses.replace(settings, budget=budget),
        parts,
        lambda number: found.enter(phases[number]),
        found.duration_s,
        may_take,
    )


def run_experiment(
    target: Loop | str,
    measure: Measure,
    settings: SimplifySettings,
    *,
    arguments: Sequence[str] = (),
    chosen: Chosen | None = None,
    recognise: ExperimentRecogniseSettings | None = None,
    announce: Announce | None = None,
    view: View | None = None,
    whole_process: bool = False,
    as_rank: AsRank | None = None,
) -> Outcome:
    """Run a target under a measurement that needs stages; that it ends too early is an error."""
    expect_one_process(target, "--deepen")
    control = process_control()
    start = control.clock.now_ns()

    def progress() -> float:
        return (control.clock.now_ns() - start) * 1e-9 / settings.budget

    with nullcontext() if view is None else view(progress) as observer:
        outcome = run_target(
            target,
            measure,
            arguments=arguments,
            chosen=chosen,
            recognise=recognise,
            announce=announce,
            observer=observer,
            start_limits=lambda has_stages: _start_limits(has_stages, settings.budget),
            whole_process=whole_process,
            as_rank=as_rank,
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


def _start_limits(has_stages: bool, budget: float) -> StartLimits:
    """How long to wait for the script's first iteration."""
    if not has_stages:
        return recognised_start(budget)
    return StartLimits(
        first_stage=SLOW_START_S,
        first_call=SLOW_START_S,
        first_iteration=max(budget, LEAST_WATCHED_S),
    )
