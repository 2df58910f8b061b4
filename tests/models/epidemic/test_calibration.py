"""Calibration finds what was planted, from wherever it starts, and says how sure it is."""

import numpy as np
import pytest

from hotloop.errors import SettingError, ShapeError
from hotloop.models.epidemic.calibration import CalibrationSettings, Observed, fit
from hotloop.models.epidemic.gradient import SpreadProblem, simulate
from support.spreads import town

START = town(4_000, 15_000, 60)
RATE, MORTALITY = np.array([3.5, 4.2, 5.6]), 0.2
QUICK = CalibrationSettings(
    iterations=60, replicates=16, gradient_replicates=2, interval_replicates=100, observed_runs=20
)


@pytest.fixture(scope="module")
def planted() -> Observed:
    """The mean of 20 runs that the fit does not see."""
    runs = simulate(SpreadProblem(START, RATE, MORTALITY, 21, tuple(range(5_000, 5_020))))
    return Observed(runs.infected.mean(0), runs.deaths.mean(0))


@pytest.mark.parametrize(
    "guess",
    [(4.75, 4.75, 4.75), (2.0, 2.0, 2.0), (9.0, 9.0, 9.0), (6.0, 3.0, 1.0), (1.0, 5.0, 8.0)],
)
def test_planted_parameters_lie_in_their_intervals(
    planted: Observed, guess: tuple[float, ...]
) -> None:
    found = fit(START, planted, np.array(guess), 0.5, QUICK)
    low, high = found.rate_interval.T
    assert ((low < RATE) & (high > RATE)).all(), found
    assert (high < 3 * low).all()
    assert found.mortality_interval is not None
    assert found.mortality_interval[0] < MORTALITY < found.mortality_interval[1]
    assert found.history[-1].loss < found.history[0].loss
    assert found.notes == ()


def test_without_deaths_the_mortality_stays_as_given(planted: Observed) -> None:
    settings = CalibrationSettings(iterations=2, replicates=2, gradient_replicates=1)
    seen = []
    found = fit(
        START, Observed(planted.infected), RATE, 0.33, settings, lambda n, _: seen.append(n)
    )
    assert found.mortality == 0.33
    assert found.mortality_interval is None
    assert any("mortality was kept" in note for note in found.notes)
    assert seen == [0, 1]


def test_bands_hold_most_runs(planted: Observed) -> None:
    settings = CalibrationSettings(iterations=1, learning_rate=1e-9)
    found = fit(START, planted, RATE, MORTALITY, settings)
    runs = simulate(SpreadProblem(START, RATE, MORTALITY, 21, tuple(range(900, 950)))).infected
    inside = (runs >= found.infected.low) & (runs <= found.infected.high)
    assert inside.mean() > 0.9


def test_counts_that_cannot_be_fitted_are_refused(planted: Observed) -> None:
    with pytest.raises(SettingError, match="21 observed days use only 3"):
        fit(START, planted, np.ones(4), 0.1)
    with pytest.raises(ShapeError, match="deaths"):
        Observed(np.ones(5), np.ones(4))
    with pytest.raises(SettingError, match="infected"):
        Observed(np.array([1.0, -1.0]))
    with pytest.raises(SettingError, match="gradient_replicates"):
        CalibrationSettings(replicates=2, gradient_replicates=3)
