"""What a saved plan says: the model, the forecasts, what is left open, the smallest cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hotloop.errors import RefusedError
from hotloop.loop.figures import Interval
from hotloop.loop.run import Run
from hotloop.plan.fit import Fit
from hotloop.plan.forecast import (
    Fits,
    Forecast,
    draws_for,
    fit_modes,
    forecast,
    smallest_cluster,
    step_times,
)
from hotloop.plan.gaps import Gap, find_gaps
from hotloop.plan.modes import MODES, Cell
from hotloop.plan.points import Point, Question, distinct
from hotloop.plan.settings import PlanSettings
from hotloop.plan.weights import middle_interval

CURVE_STEPS = 49  # step durations of a curve
MOST_CURVES = 8
MOST_OF_IDEAL = 1.05  # beyond, a point is not explained by noise
BUSY = 0.9  # share of a machine's cores: beyond, they and not the engine set the pace


@dataclass(frozen=True)
class PointError:
    """A point that was fitted. error: what the model says there over what was measured, less 1."""

    cell: Cell
    sps: float
    error: float


@dataclass(frozen=True)
class Model:
    """The fitted model of one mode.

    call_s: head's time for one env step. most_sps: what the head lets through, 1/call_s. overlap:
    share of that time that adds to a long step. latency_s: of a step, beside.
    """

    mode: str
    call_s: Interval
    most_sps: Interval
    overlap: Interval
    latency_s: Interval
    points: list[PointError]


@dataclass(frozen=True)
class Prediction:
    """A forecast with what was measured there, if it was. error: forecast over it, less 1.
    simulated_sps: of the discrete-event simulation, where that was asked for.
    """

    forecast: Forecast
    measured_sps: float | None
    error: float | None
    simulated_sps: float | None


@dataclass(frozen=True)
class Smallest:
    """The fewest nodes that reach the target in a mode: by the middle, and by the lower end of the
    interval; None where no number of them does. forecast: of the first.
    """

    mode: str
    step_s: float
    cores_per_node: int
    nodes: int | None
    nodes_surely: int | None
    forecast: Forecast | None


@dataclass(frozen=True)
class Curve:
    """Efficiency over the duration of a step, for one number of nodes in one mode."""

    nodes: int
    mode: str
    step_s: list[float]
    efficiency: list[float]


@dataclass(frozen=True)
class Plan:
    """All that a plan says. left_out: points of a busy machine, which the fit does not use."""

    source: str
    models: list[Model]
    predictions: list[Prediction]
    gaps: list[Gap]
    smallest: list[Smallest]
    curves: list[Curve]
    left_out: int
    warnings: list[str]
    settings: PlanSettings

    @property
    def errors(self) -> list[float]:
        """The size of the error of each forecast that was measured and not fitted."""
        fitted = {each.cell for model in self.models for each in model.points}
        return [
            abs(p.error)
            for p in self.predictions
            if p.error is not None and p.forecast.cell not in fitted
        ]


def plan_run(
    source: str,
    points: Sequence[Point],
    questions: Sequence[Question],
    settings: PlanSettings | None = None,
) -> Run:
    """A plan as a run, from which it can be drawn again. questions: none for the points' cells.

    Raises: SettingError, RefusedError, where the points cannot be fitted.
    """
    questions = questions or [Question(point.cell, point.sps) for point in distinct(points)]
    fit_modes(_free(points))
    return Run(
        verb="plan",
        target=source,
        settings=asdict(settings or PlanSettings()),
        facts={
            "points": [asdict(p.cell) | {"sps": p.sps, "busy": p.busy} for p in points],
            "questions": [asdict(q.cell) | {"sps": q.sps} for q in questions],
            "simulated": None,
        },
    )


def summarize_plan(run: Run) -> Plan:
    """The plan of a saved run."""
    points, free, settings = points_of(run), _free(points_of(run)), PlanSettings(**run.settings)
    fits = fits_of(run)
    simulated = run.facts["simulated"] or [None] * len(run.facts["questions"])
    predictions = [
        _prediction(fits, Question(cell_of(q), q["sps"]), settings, rate)
        for q, rate in zip(run.facts["questions"], simulated, strict=True)
    ]
    forecasts = [prediction.forecast for prediction in predictions]
    gaps = [
        gap
        for mode, fit in fits.items()
        for gap in find_gaps(fit, [f for f in forecasts if f.cell.mode == mode])
    ]
    return Plan(
        source=run.target,
        models=[_model(fit) for fit in fits.values()],
        predictions=predictions,
        gaps=gaps,
        smallest=_smallest(fits, forecasts, settings),
        curves=_curves(fits, forecasts, free, settings),
        left_out=len(points) - len(free),
        warnings=_warnings(points, free, forecasts),
        settings=settings,
    )


def points_of(run: Run) -> list[Point]:
    """All points of a saved plan."""
    return [Point(cell_of(p), p["sps"], p["busy"]) for p in run.facts["points"]]


def fits_of(run: Run) -> dict[str, Fit]:
    """The fitted model of each mode of a saved plan."""
    return fit_modes(_free(points_of(run)))


def cell_of(saved: Mapping[str, Any]) -> Cell:
    """The cell of a saved point or question.

    Raises: SettingError for an impossible one.
    """
    names = ("nodes", "cores_per_node", "step_s", "mode", "fragment_steps")
    return Cell(**{name: saved[name] for name in names})


def _free(points: Sequence[Point]) -> list[Point]:
    """The points of machines with cores to spare. Raises: RefusedError if there are none."""
    free = [p for p in points if p.busy is None or p.busy < BUSY]
    if points and not free:
        raise RefusedError(
            f"all {len(points)} points were measured while at least {BUSY:.0%} of the machine's "
            "cores were busy: they say how fast it is, and not the engine. Measure fewer nodes or "
            "longer steps, or while nothing else runs"
        )
    return free


def _model(fit: Fit) -> Model:
    draws = fit.draws
    errors = [
        PointError(p.cell, p.sps, float(np.expm1(-r)))
        for p, r in zip(fit.points, fit.residuals, strict=True)
    ]
    return Model(
        mode=draws.mode,
        call_s=middle_interval(draws.call_s),
        most_sps=middle_interval(1 / draws.call_s),
        overlap=middle_interval(draws.overlap),
        latency_s=middle_interval(draws.latency_s),
        points=errors,
    )


def _prediction(
    fits: Fits, question: Question, settings: PlanSettings, simulated: float | None
) -> Prediction:
    found = forecast(fits, question.cell, settings)
    error = None if question.sps is None else found.sps.value / question.sps - 1
    return Prediction(found, question.sps, error, simulated)


def _smallest(fits: Fits, forecasts: Sequence[Forecast], settings: PlanSettings) -> list[Smallest]:
    """For each duration of a step, the modes in which the target can be reached."""
    if settings.target_sps is None:
        return []
    likes = dict.fromkeys((f.cell.step_s, f.cell.cores_per_node) for f in forecasts)
    found = []
    for step_s, cores in likes:
        for mode in MODES:
            like = Cell(1, cores, step_s, mode)
            nodes, surely = smallest_cluster(fits, like, settings.target_sps, settings)
            there = None if nodes is None else forecast(fits, replace(like, nodes=nodes), settings)
            found.append(Smallest(mode, step_s, cores, nodes, surely, there))
    return found


def _curves(
    fits: Fits, forecasts: Sequence[Forecast], points: Sequence[Point], settings: PlanSettings
) -> list[Curve]:
    """The model over all durations that were asked for or measured."""
    steps = [f.cell.step_s for f in forecasts] + [point.cell.step_s for point in points]
    durations = np.geomspace(min(steps), max(steps), CURVE_STEPS if min(steps) < max(steps) else 1)
    places = sorted({(f.cell.nodes, f.cell.cores_per_node, f.cell.mode) for f in forecasts})
    if len(places) > MOST_CURVES:
        kept = np.linspace(0, len(places) - 1, MOST_CURVES).round().astype(int)
        places = [places[k] for k in kept]
    curves = []
    for nodes, cores, mode in places:
        draws = draws_for(fits, mode)
        cells = [Cell(nodes, cores, float(d), mode) for d in durations]
        sps = [c.cores / float(np.median(step_times(draws, c, settings))) for c in cells]
        efficiency = [rate / c.ideal_sps for rate, c in zip(sps, cells, strict=True)]
        curves.append(Curve(nodes, mode, [float(d) for d in durations], efficiency))
    return curves


def _warnings(
    points: Sequence[Point], free: Sequence[Point], forecasts: Sequence[Forecast]
) -> list[str]:
    found = []
    if len(points) > len(free):
        found.append(
            f"{len(points) - len(free)} of {len(points)} points are left out: at least {BUSY:.0%} "
            "of the machine's cores were busy, so they say how fast it is, and not the engine"
        )
    above = sum(p.sps > MOST_OF_IDEAL * p.cell.ideal_sps for p in free)
    if above:
        found.append(
            f"{above} of {len(points)} points are above the ideal, cores / step_s, which no "
            "cluster can be: check their units"
        )
    copies = len(free) - len(distinct(free))
    if copies:
        found.append(f"{copies} repeated {'lines count' if copies > 1 else 'line counts'} once")
    wide = sum(not f.determined for f in forecasts)
    if wide:
        found.append(
            f"{wide} of {len(forecasts)} forecasts are open by more than a factor of two; the "
            "intervals say by how much"
        )
    return found
