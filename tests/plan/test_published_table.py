"""The cost model on the published table of Tianshou's RayVectorEnv: 20 rows from 4 of them."""

import itertools

import numpy as np
import pytest

from hotloop.plan.fit import fit_points
from hotloop.plan.forecast import fit_modes, forecast
from hotloop.plan.gaps import find_gaps
from hotloop.plan.modes import Cell
from hotloop.plan.settings import PlanSettings
from support.clusters import misses, published

SHORT_S = 0.01
FOURS = [(2, 1.0), (32, 0.1), (2, 0.01), (8, 0.001)]


def fours(*, short: bool, count: int) -> list[tuple]:
    """Sets of four rows, spread evenly over all of them. short: with one of short steps."""
    sets = [
        four
        for four in itertools.combinations(published().values(), 4)
        if any(point.cell.step_s <= SHORT_S for point in four) == short
    ]
    return [sets[k] for k in np.linspace(0, len(sets) - 1, count).astype(int)]


def test_four_rows_bring_the_other_sixteen() -> None:
    table = published()
    errors, inside = misses(fit_points([table[row] for row in FOURS]), list(table.values()))
    assert len(errors) == 16
    assert np.median(errors) <= 0.04
    assert errors.max() <= 0.20
    assert inside.mean() >= 0.9


@pytest.mark.parametrize(
    "count", [pytest.param(60, id="60 sets"), pytest.param(1500, marks=pytest.mark.slow)]
)
def test_any_four_rows_with_a_short_step_do(count: int) -> None:
    table = list(published().values())
    found = [misses(fit_points(four), table) for four in fours(short=True, count=count)]
    assert np.mean([errors.max() <= 0.30 for errors, _ in found]) >= 0.97
    assert np.median([np.median(errors) for errors, _ in found]) <= 0.04
    assert 0.90 <= np.mean([inside for _, inside in found]) <= 0.995


def test_without_a_short_step_the_intervals_are_wider_and_hold_what_was_measured() -> None:
    table = list(published().values())
    found = [misses(fit_points(four), table) for four in fours(short=False, count=30)]
    assert np.mean([inside for _, inside in found]) >= 0.90


def test_only_long_steps_leave_the_heads_time_open_and_say_what_to_measure() -> None:
    table = published()
    fits = fit_modes([table[nodes, 1.0] for nodes in (2, 4, 8)])
    forecasts = [forecast(fits, point.cell, PlanSettings()) for point in table.values()]
    (gap,) = find_gaps(fits["step"], forecasts)
    assert gap.of == "the head's time for an env step"
    assert gap.seconds.high > 2 * gap.seconds.low
    assert (gap.measure.nodes, gap.measure.step_s) == (32, 0.001)
    by_cell = {(f.cell.nodes, f.cell.step_s): f for f in forecasts}
    assert by_cell[2, 1.0].determined
    assert not by_cell[32, 0.001].determined
    # What it asks for does determine it.
    more = fit_modes([*(table[nodes, 1.0] for nodes in (2, 4, 8)), table[32, 0.001]])
    assert find_gaps(more["step"], forecasts) == []
    assert forecast(more, by_cell[32, 0.001].cell, PlanSettings()).determined


def test_what_to_measure_next_can_be_had() -> None:
    table = published()
    fits = fit_modes([table[nodes, 1.0] for nodes in (2, 8)])
    asked = [Cell(1_000_000, 48, 0.1), Cell(1, 1, 1e-5), Cell(64, 48, 1.0)]
    forecasts = [forecast(fits, cell, PlanSettings()) for cell in asked]
    (gap,) = find_gaps(fits["step"], forecasts)
    assert gap.measure.nodes <= 32
    assert gap.measure.step_s >= 0.001
