"""What saved runs hold of points of a cluster: plans and measurements of simulated nodes."""

import math
from typing import TypedDict

from hotloop.errors import SettingError
from hotloop.loop.run import Run
from hotloop.plan.summary import cell_of
from hotloop.report.format import Positive


class _Point(TypedDict):
    """A measured point."""

    nodes: int
    cores_per_node: int
    step_s: float
    mode: str
    fragment_steps: int | None
    sps: float
    busy: float | None


class _Question(TypedDict):
    """A cell that was asked for."""

    nodes: int
    cores_per_node: int
    step_s: float
    mode: str
    fragment_steps: int | None
    sps: float | None


SAVED_POINTS = list[_Point]
SAVED_QUESTIONS = list[_Question]
SIMULATED = list[Positive | None] | None  # env steps/s of the questions; None: not simulated


def points_problem(run: Run) -> str | None:
    """Say which number or mode of a point or question is impossible."""
    for saved in (*run.facts["points"], *run.facts.get("questions", [])):
        try:
            cell_of(saved)
        except SettingError as error:
            return str(error)
        if saved["sps"] is not None and not 0 < saved["sps"] < math.inf:
            return f"sps: expected a number above 0, got {saved['sps']}"
    return None
