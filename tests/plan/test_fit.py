"""The fit on tables with planted parameters: values, coverage, refusals."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import RefusedError, SettingError
from hotloop.plan.fit import Draws, fit_points, parts_of
from hotloop.plan.forecast import forecast
from hotloop.plan.modes import MODES, Cell, chain_times, limit
from hotloop.plan.points import Point
from hotloop.plan.settings import PlanSettings
from support.clusters import misses, planted

CALL_S = 220e-6


def added(cell: Cell) -> float:
    """d + cN."""
    return cell.step_s + CALL_S * cell.cores


def overlapped(cell: Cell) -> float:
    """max(c₁N, d + c₂N)."""
    return max(CALL_S * cell.cores, cell.step_s + 0.7 * CALL_S * cell.cores)


def with_latency(cell: Cell) -> float:
    """max(c₁N, d + a + c₂N)."""
    return max(CALL_S * cell.cores, cell.step_s + 0.004 + 0.7 * CALL_S * cell.cores)


TRUTHS = [added, overlapped, with_latency]


@pytest.mark.parametrize("truth", TRUTHS)
def test_without_noise_many_points_bring_the_truth(truth: object) -> None:
    table = planted(truth)
    errors, inside = misses(fit_points(table[::3]), table)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.05
    assert inside.all()


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("noise", [0.03, 0.06])
def test_intervals_cover_noisy_tables(truth: object, noise: float) -> None:
    inside = []
    for seed in range(10):
        table = planted(truth, noise=noise, seed=seed)
        chosen = np.random.default_rng(seed).choice(len(table), 5, replace=False)
        inside.append(misses(fit_points([table[k] for k in chosen]), table)[1])
    assert np.mean(inside) > 0.87


def test_other_numbers_of_cores_are_forecast() -> None:
    table = planted(overlapped, cores=(48,), nodes=(2, 8), steps_s=(1.0, 0.1, 0.01, 0.001))
    others = planted(overlapped, cores=(16, 96), nodes=(4, 16))
    errors, inside = misses(fit_points(table), others)
    assert errors.max() < 0.1
    assert inside.all()


def test_equal_inputs_give_equal_bits() -> None:
    table = planted(overlapped, noise=0.05)[::7]
    first, second = fit_points(table), fit_points(table)
    assert np.array_equal(first.draws.call_s, second.draws.call_s)
    assert first.residuals == second.residuals


def test_a_repeated_line_is_no_second_measurement() -> None:
    table = planted(overlapped, noise=0.05)[::7]
    once, twice = fit_points(table), fit_points([*table, table[0], table[0]])
    assert np.array_equal(once.draws.call_s, twice.draws.call_s)


def test_the_order_of_the_points_does_not_count() -> None:
    table = planted(overlapped, noise=0.05)[::9]
    first, second = fit_points(table), fit_points(table[::-1])
    assert np.median(first.draws.call_s) == pytest.approx(np.median(second.draws.call_s), rel=0.01)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_points_are_refused(count: int) -> None:
    with pytest.raises(SettingError, match=f"at least 2 different points, got {count}"):
        fit_points(planted(overlapped)[:count])


def test_two_measurements_of_one_cell_are_not_two_points() -> None:
    cell = Cell(2, 48, 0.1)
    with pytest.raises(SettingError, match="got 1"):
        fit_points([Point(cell, 700.0), Point(cell, 710.0)])


@pytest.mark.parametrize(
    "wrong",
    [
        [
            Point(Cell(2, 48, 0.01), 4000.0),
            Point(Cell(2, 48, 0.01), 400.0),
            Point(Cell(4, 48, 0.01), 2000.0),
        ],
        [Point(Cell(2, 48, 1.0), 400.0), Point(Cell(4, 48, 1.0), 800.0)],  # more than the envs can
        [Point(Cell(2, 48, 1.0), 90.0), Point(Cell(2, 48, 0.001), 20.0)],  # shorter but far slower
    ],
    ids=["contradictory", "above the ideal", "slower for shorter steps"],
)
def test_points_that_no_model_fits_are_refused_with_what_each_is_off(wrong: list[Point]) -> None:
    with pytest.raises(RefusedError, match=r"no cost model fits these \d points") as raised:
        fit_points(wrong)
    assert f"measured {wrong[0].sps:g} SPS, model" in str(raised.value)
    assert "%)" in str(raised.value)


@given(
    st.floats(1e-6, 1e-2),
    st.floats(0.5, 1.0),
    st.lists(st.sampled_from([1, 2, 4, 8, 32]), min_size=2, max_size=3, unique=True),
    st.lists(st.sampled_from([1.0, 0.1, 0.01, 0.001]), min_size=2, max_size=3, unique=True),
)
@settings(max_examples=20)
def test_points_of_the_model_are_met_whatever_its_parameters(
    call_s: float, overlap: float, nodes: list[int], steps_s: list[float]
) -> None:
    def truth(cell: Cell) -> float:
        return max(call_s * cell.cores, cell.step_s + overlap * call_s * cell.cores)

    table = planted(truth, nodes=tuple(nodes), steps_s=tuple(steps_s))
    fit = fit_points(table)
    assert np.abs(fit.residuals).max() < 0.05


def test_a_step_by_hand() -> None:
    """100 envs of 10 ms, 0.2 ms of the head for each, half of it beside the envs."""
    one = np.ones(1)
    draws = Draws(2e-4 * one, 0.5 * one, 0.001 * one, 0.1 * one, 0.0 * one, 2, 1.0, "step")

    def step(mode: str, **given: float) -> tuple[float, str]:
        parts = parts_of(draws, Cell(2, 50, 0.01, mode, fragment_steps=10), **given)
        chains = MODES[mode].chains(parts)
        return float(chain_times(chains).max()), limit(chains)

    assert step("step") == (pytest.approx(0.010 + 0.001 + 0.010), "env")
    # Messages of 50 env steps: (1 + 0.1·50)/(1 + 0.1)/50 of the head's time for each.
    batched_s = 100 * 2e-4 * 6 / 1.1 / 50
    assert step("batched") == (pytest.approx(0.011 + batched_s / 2), "env")
    assert step("double-buffered") == (pytest.approx(0.010), "env")
    assert step("send-recv") == (pytest.approx(0.011 + batched_s / 2), "env")
    assert step("fragments") == (pytest.approx(0.010 + 0.0001), "env")
    assert step("step", policy_s=0.05) == (pytest.approx(0.021 + 0.05), "policy")
    assert step("double-buffered", policy_s=0.05)[1] == "policy"


def test_the_head_limits_where_its_messages_take_longer_than_a_step() -> None:
    fit = fit_points(planted(overlapped))
    found = forecast({"step": fit}, Cell(32, 48, 0.001), PlanSettings())
    assert found.limited_by == "driver calls"
    assert found.sps.value == pytest.approx(1 / CALL_S, rel=0.05)
    assert found.lift is not None
    assert found.lift.gain.low > 1


def test_all_pairs_of_long_and_short_bring_the_order_of_the_rest() -> None:
    """Two points are enough to begin with, and the intervals say how little that is."""
    table = planted(overlapped, cores=(48,), nodes=(2, 8, 32), steps_s=(1.0, 0.01))
    inside = []
    for pair in itertools.combinations(table, 2):
        inside.append(misses(fit_points(pair), table)[1])
    assert np.mean(inside) > 0.9
