"""What the points do not determine, and which measurement would determine it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.plan.fit import Fit
from hotloop.plan.forecast import DETERMINED, Forecast, step_times
from hotloop.plan.modes import MODES, Array, Cell
from hotloop.plan.settings import PlanSettings

SHORT_STEP_S = 0.001  # always among the cells that may be measured
MORE_NODES = 4  # than were measured, that may be measured next
TELLING = 0.05  # share of a step, from which on a part of it is worth knowing


@dataclass(frozen=True)
class Gap:
    """Something that the points leave open. of: in words; seconds: its range; measure: where."""

    of: str
    seconds: Interval
    measure: Cell


def find_gaps(fit: Fit, forecasts: Sequence[Forecast]) -> list[Gap]:
    """The parts of the model that the points of one mode leave open by more than a factor of two,
    as far as something that was asked for depends on them.
    """
    cells = [f.cell for f in forecasts] + [point.cell for point in fit.points]
    candidates = _candidates(fit, cells)
    gaps = []
    mode = MODES[fit.draws.mode]
    times = {"the head's time for an env step": fit.draws.call_s}
    if mode.latency_share >= 0.5 or np.median(fit.draws.latency_s) > 0:
        times["the latency of a step"] = fit.draws.latency_s
    for name, seconds in times.items():
        low, middle, high = (float(x) for x in np.quantile(seconds, [0.025, 0.5, 0.975]))
        if high > DETERMINED * low and _matters(fit, seconds, cells):
            measure = best_next_cell(fit, np.log(np.maximum(seconds, 1e-9)), candidates)
            gaps.append(Gap(name, Interval(middle, low, high), measure))
    return gaps


def best_next_cell(fit: Fit, wanted: Array, candidates: Sequence[Cell]) -> Cell:
    """The cell whose measurement would tell most about a quantity. wanted: in each draw, (M,).

    A measurement with error σ of y leaves var(w)(1 − corr²(w, y) var(y)/(var(y) + σ²)) of w.
    """
    error = float(np.mean(fit.draws.error**2))

    def told(cell: Cell) -> float:
        y = np.log(step_times(fit.draws, cell, PlanSettings()))
        varied = float(y.var())
        if varied < 1e-12 or wanted.std() < 1e-12:
            return 0.0
        return float(np.corrcoef(wanted, y)[0, 1] ** 2) * varied / (varied + error)

    return max(candidates, key=told)


def _candidates(fit: Fit, cells: Sequence[Cell]) -> list[Cell]:
    """Every combination of the nodes and steps that were measured or asked for and can be had.

    Nobody measures a million nodes to plan them: a few times as many as so far, no shorter steps.
    """
    here = fit.points[0].cell
    most = MORE_NODES * max(point.cell.nodes for point in fit.points)
    least_s = min(SHORT_STEP_S, *(point.cell.step_s for point in fit.points))
    nodes = sorted({cell.nodes for cell in cells if cell.nodes <= most})
    steps = sorted({cell.step_s for cell in cells if cell.step_s >= least_s} | {SHORT_STEP_S})
    return [replace(here, nodes=n, step_s=s) for n, s in product(nodes, steps)]


def _matters(fit: Fit, seconds: Array, cells: Sequence[Cell]) -> bool:
    """Whether the time, at its upper end, is a part worth knowing of any step."""
    high = float(np.quantile(seconds, 0.975))
    per_step = fit.draws.latency_s is seconds
    return any(high * (1 if per_step else c.cores) > TELLING * c.step_s for c in cells)
