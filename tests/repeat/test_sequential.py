"""Looking again and again costs no more errors than were agreed, by simulation."""

from statistics import NormalDist

import numpy as np
import pytest

from hotloop.loop.figures import student_quantile
from hotloop.repeat.estimate import FEWEST_LAUNCHES, Looks, trimmed_mean
from hotloop.repeat.sequential import Spending, spent

# Designs: how much of the budget is used at each look.
EVEN = np.linspace(0.15, 1.0, 18)
EARLY = np.array([0.05, 0.1, 0.15, 0.2, 0.4, 1.0])
SINGLE = np.array([1.0])


def levels(alpha: float, shares: np.ndarray) -> np.ndarray:
    """The levels of looks after 3, 4, 5 … launches."""
    spending = Spending(alpha)
    return np.array([spending.level(k + 3, share) for k, share in enumerate(shares)])


@pytest.mark.parametrize("shares", [EVEN, EARLY, SINGLE], ids=["even", "early", "single"])
@pytest.mark.parametrize("alpha", [0.025, 0.0025])
def test_a_known_error_is_wrong_as_often_as_agreed(alpha: float, shares: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    experiments, count = 200_000, len(shares)
    steps = rng.standard_normal((experiments, count)) * np.sqrt([3, *[1] * (count - 1)])
    z = steps.cumsum(1) / np.sqrt(np.arange(3, count + 3))
    # By its definition, level = P(Z > boundary).
    tail = levels(alpha, shares)
    boundary = np.array([NormalDist().inv_cdf(1 - each) for each in tail])
    wrong = (z > boundary).any(1).mean()
    scatter = 4 * np.sqrt(alpha / experiments)
    assert wrong <= alpha + scatter
    assert wrong >= 0.85 * alpha - scatter  # and no budget of errors is left unused


@pytest.mark.parametrize("alpha", [0.025, 0.0025])
def test_an_estimated_error_is_not_wrong_more_often(alpha: float) -> None:
    rng = np.random.default_rng(2)
    experiments, count = 100_000, len(EVEN)
    seen = rng.standard_normal((experiments, count + 2))
    tail, wrong = levels(alpha, EVEN), np.zeros(experiments, bool)
    for k in range(count):
        launches = seen[:, : k + 3]
        t = launches.mean(1) / (launches.std(1, ddof=1) / np.sqrt(k + 3))
        wrong |= t > student_quantile(1 - tail[k], k + 2)
    # Student's t at each look is an approximation; it must not be worse than this.
    assert wrong.mean() <= 1.15 * alpha + 4 * np.sqrt(alpha / experiments)


def test_everything_is_spent_at_the_end_and_nothing_before_the_start() -> None:
    assert spent(0.05, 0.0) == 0.0
    assert spent(0.05, 1.0) == pytest.approx(0.05)
    assert spent(0.05, 2.0) == pytest.approx(0.05)
    assert 0 < spent(0.05, 0.1) < spent(0.05, 0.5) < 0.05


def test_few_launches_give_no_interval() -> None:
    looks = Looks(0.025, 0.025)
    assert looks.look(np.zeros(FEWEST_LAUNCHES - 1), 1.0) is None


def test_the_interval_shrinks_around_the_mean_of_the_launches() -> None:
    rng = np.random.default_rng(3)
    ratio = np.log(1.04) + 0.01 * rng.standard_normal(40)
    looks = Looks(0.025, 0.025)
    found = [looks.look(ratio[:n], n / 40) for n in range(1, 41)]
    made = [look for look in found if look is not None]
    assert made[0].launches == FEWEST_LAUNCHES
    assert made[-1].launches == 40
    assert made[-1].slowdown.half_width < made[0].slowdown.half_width / 5
    assert 0.04 in made[-1].slowdown
    assert made[-1].slowdown.low > 0.03
    for look in made:
        assert look.slowdown.value == pytest.approx(
            np.expm1(trimmed_mean(ratio[: look.launches])[0])
        )


def test_a_smaller_error_probability_makes_that_end_wider() -> None:
    ratio = np.array([0.01, 0.02, 0.0, 0.015, 0.01])
    careful, plain = Looks(0.0025, 0.025), Looks(0.025, 0.025)
    one, other = careful.look(ratio, 1.0), plain.look(ratio, 1.0)
    assert one is not None
    assert other is not None
    assert one.slowdown.low < other.slowdown.low
    assert one.slowdown.high == pytest.approx(other.slowdown.high)


def test_after_many_launches_looks_are_rarer() -> None:
    looks = Looks(0.025, 0.025)
    rng = np.random.default_rng(4)
    ratio = rng.standard_normal(200)
    made = sum(looks.look(ratio[:n], n / 200) is not None for n in range(1, 201))
    assert made < 50


@pytest.mark.long
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_the_whole_rule_is_not_wrong_more_often(tails: str) -> None:
    """With the trimmed mean, over looks, for launches of which some lie far off."""
    rng = np.random.default_rng(5)
    alpha, shares, wrong = 0.025, EVEN, 0
    tail, experiments = levels(alpha, shares), 4_000
    for _ in range(experiments):
        ratio = rng.standard_normal(len(shares) + 2)
        if tails == "heavy":
            ratio *= np.where(rng.random(len(ratio)) < 0.1, 10, 1)
        for k in range(len(shares)):
            mean, error, degrees = trimmed_mean(ratio[: k + 3])
            if mean > student_quantile(1 - tail[k], degrees) * error:
                wrong += 1
                break
    assert wrong / experiments <= 1.25 * alpha + 3 * np.sqrt(alpha / experiments)
