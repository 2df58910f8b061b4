"""Forecasts of the cluster table by the cost model of `hotloop plan`, written down before the
cells are measured, and the page that compares them afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.plan import modes, points
from hotloop.plan.forecast import fit_modes, forecast
from hotloop.plan.settings import PlanSettings
from tables import table

CORES = 48  # of a node
STEP, SEND, FRAGMENTS = "head, step", "head, send and recv", "fragments"
MODES = {STEP: modes.BATCHED, SEND: modes.SEND, FRAGMENTS: modes.FRAGMENTS}
# Steps of a fragment, and the durations they suit: fragments of 0.25 to 4 s.
FRAGMENT_STEPS = {4: (1.0, 0.1), 250: (0.01, 0.001)}
BUSY = 0.9  # of this machine's cores: beyond, they and not the engine set the pace
WANTED = 0.10  # error of a forecast on cells of a machine that is less busy than that
# Nodes and seconds of a step: what the forecasts are made from.
FITTED = frozenset({(2, 1.0), (8, 0.1), (2, 0.01), (8, 0.01), (2, 0.001), (8, 0.001)})

Cells = frozenset[tuple[int, float]]


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    way: str
    nodes: int  # envs, beside the peer
    step_s: float
    sps: float
    busy: float  # share of this machine's cores, 0 to 1


@dataclass(frozen=True)
class Forecast:
    """What the model says of a cell, with the ends of its interval."""

    way: str
    nodes: int
    step_s: float
    sps: float
    low: float
    high: float


def forecasts(measured: Sequence[Cell], counts: Sequence[int]) -> list[Forecast]:
    """All cells from those of FITTED in which this machine had cores to spare."""
    known = [
        points.Point(place(cell.way, cell.nodes, cell.step_s), cell.sps, cell.busy)
        for cell in measured
        if cell.way in MODES and (cell.nodes, cell.step_s) in FITTED and cell.busy < BUSY
    ]
    found = []
    for way in MODES:
        of_way = [point for point in known if point.cell.mode == MODES[way]]
        if len({point.cell for point in of_way}) < 2:
            continue
        fits = fit_modes(of_way)
        for nodes in counts:
            for step_s in sorted({d for group in FRAGMENT_STEPS.values() for d in group}):
                sps = forecast(fits, place(way, nodes, step_s), PlanSettings()).sps
                found.append(Forecast(way, nodes, step_s, sps.value, sps.low, sps.high))
    return found


def place(way: str, nodes: int, step_s: float) -> modes.Cell:
    """The cell as the cost model has it."""
    steps = next(steps for steps, durations in FRAGMENT_STEPS.items() if step_s in durations)
    return modes.Cell(nodes, CORES, step_s, MODES[way], steps if way == FRAGMENTS else None)


def forecast_page(written: Sequence[Forecast], measured: Sequence[Cell]) -> list[str]:
    """What was forecast against what was then measured."""
    found = {(cell.way, cell.nodes, cell.step_s): cell for cell in measured}
    pairs = [
        (f, found[f.way, f.nodes, f.step_s]) for f in written if (f.way, f.nodes, f.step_s) in found
    ]
    if not pairs:
        return []
    free = [(f, cell) for f, cell in pairs if cell.busy < BUSY]
    good = sum(abs(f.sps / cell.sps - 1) <= WANTED for f, cell in free)
    inside = sum(f.low <= cell.sps <= f.high for f, cell in free)
    listed = ", ".join(f"{nodes} nodes at {step_s:g} s" for nodes, step_s in sorted(FITTED))
    rows = [
        [
            f.way,
            str(f.nodes),
            f"{f.step_s:g}",
            f"{f.sps:,.0f} [{f.low:,.0f}, {f.high:,.0f}]",
            f"{cell.sps:,.0f}{'*' if cell.busy >= BUSY else ''}",
            f"{f.sps / cell.sps - 1:+.1%}",
        ]
        for f, cell in pairs
    ]
    return [
        "## Forecasts, written down before the measurement",
        f"The cost model of `hotloop plan`, from {listed} (those in which this machine had cores "
        f"to spare). Of {len(free)} other cells in which it had, {good} were forecast within "
        f"{WANTED:.0%}, and the intervals of {inside} hold what was measured.",
        table(["way", "nodes", "step (s)", "forecast", "measured", "error"], rows),
    ]
