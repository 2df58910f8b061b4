"""Plans from Python: what a cluster would bring, from a few measured points."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from hotloop.errors import SettingError
from hotloop.loop.run import Run
from hotloop.plan.forecast import draws_for
from hotloop.plan.points import Point, Question
from hotloop.plan.settings import PlanSettings
from hotloop.plan.split import Split, SplitPlan, plan_split
from hotloop.plan.summary import Plan, cell_of, fits_of, plan_run, points_of
from hotloop.report.kind import Kind
from hotloop.report.plan import PLAN
from hotloop.report.split import SPLIT
from hotloop.results.result import Ending, Result
from hotloop.results.saved import open_run


class SplitResult(Result[SplitPlan]):
    """A plan of one machine's cores: `found.forecasts` has every split."""

    kind: ClassVar[Kind[SplitPlan]] = SPLIT


def make_split(source: str, splits: Sequence[Split], cores: int) -> SplitResult:
    """Plan how many cores of a machine act and how many learn. source: the name of the splits.

    Raises: SettingError for too few splits or cores; RefusedError where no model fits.
    """
    plan_split(splits, cores)
    run = Run(
        verb="split",
        target=source,
        settings={"cores": cores},
        facts={"splits": [asdict(split) for split in splits]},
    )
    return SplitResult(run)


class PlanResult(Result[Plan]):
    """A plan: `found.predictions` has the forecasts in the order of the questions."""

    kind: ClassVar[Kind[Plan]] = PLAN


def make_plan(
    source: str,
    points: Sequence[Point],
    questions: Sequence[Question] = (),
    settings: PlanSettings | None = None,
    *,
    simulate: bool = False,
) -> Ending[PlanResult]:
    """Plan a cluster. source: what the points are called. questions: the cells to forecast; none
    for those of the points. simulate: check each forecast of up to 1,000 nodes by a discrete-event
    simulation; an interrupt ends it, and what was simulated stays.

    Raises: SettingError for too few points, or without simpy; RefusedError for points that no
    model fits.
    """
    run = plan_run(source, points, questions, settings)
    error: BaseException | None = None
    if simulate:
        try:
            _simulate(run)
        except KeyboardInterrupt as interrupt:
            error, run.complete = interrupt, False
    return Ending(PlanResult(run), error)


def _simulate(run: Run) -> None:
    """Add the simulated rate of each question to the run's facts."""
    from hotloop.plan.simulation import MOST_NODES, cluster_of, simulate_rate

    fits, settings = fits_of(run), PlanSettings(**run.settings)
    cells = [cell_of(question) for question in run.facts["questions"]]
    rates: list[float | None] = [None] * len(cells)
    run.facts["simulated"] = rates
    for place, cell in enumerate(cells):
        if cell.nodes <= MOST_NODES:
            rates[place] = simulate_rate(cluster_of(draws_for(fits, cell.mode), cell, settings))


def points_of_runs(paths: Sequence[Path]) -> list[Point]:
    """The points that runs of simulated nodes hold.

    Raises: RunError for a file that is no run; SettingError for a run of another kind.
    """
    points: list[Point] = []
    for path in paths:
        run = open_run(path)
        if run.verb != "nodes":
            raise SettingError(
                f"{path} is a {run.verb} run; expected one of `hotloop benchmark ENV "
                "--simulate-nodes N`"
            )
        points += points_of(run)
    return points
