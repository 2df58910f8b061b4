"""Gradients against central finite differences on common random numbers, on a town.

Where the difference exceeds 5% of the largest week's: within two standard errors, and within 15%
at 21 steps or 25% at 100; elsewhere within 2% of the largest.
"""

import numpy as np
import pytest

from hotloop.models.epidemic.gradient import MessagePassing, SpreadProblem
from support.spreads import central_differences, mean_gradient, town

SEEDS = 200


@pytest.fixture(scope="module")
def problem() -> SpreadProblem:
    return SpreadProblem(town(37_518, 136_378, 45), np.full(3, 4.75), 0.12, 21)


def agrees(
    found: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray], share: float
) -> None:
    (gradient, its_error), (difference, error) = found, wanted
    largest = np.abs(difference).max()
    counts = np.abs(difference) > 0.05 * largest
    off = np.abs(gradient - difference)
    both = np.hypot(error, its_error)
    report = f"{gradient} against {difference}, off by {off}, standard errors {both}"
    assert (off[counts] <= 2 * both[counts]).all(), report
    assert (off[counts] <= share * np.abs(difference[counts])).all(), report
    assert (off[~counts] <= 0.02 * largest).all(), report


def test_infections_of_21_steps_by_rate(problem: SpreadProblem) -> None:
    found = mean_gradient(MessagePassing(), problem, SEEDS)
    agrees(found, central_differences(problem, SEEDS, 0.2), 0.15)


def test_deaths_of_21_steps_by_rate_and_mortality(problem: SpreadProblem) -> None:
    found = mean_gradient(MessagePassing(), problem, SEEDS, deaths=True)
    wanted = central_differences(problem, SEEDS, 0.2, deaths=True)
    for part in (slice(0, 3), slice(3, 4)):
        agrees(tuple(f[part] for f in found), tuple(w[part] for w in wanted), 0.15)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("deaths", [False, True])
def test_100_steps_through_the_peak(problem: SpreadProblem, deaths: bool) -> None:
    longer = SpreadProblem(problem.start, np.full(15, 4.75), 0.12, 100)
    found = mean_gradient(MessagePassing(), longer, SEEDS, deaths)
    wanted = central_differences(longer, SEEDS, 0.2, deaths)
    for part in (slice(0, 15), slice(15, 16)):
        if part.start < len(found[0]):
            agrees(tuple(f[part] for f in found), tuple(w[part] for w in wanted), 0.25)
