"""The comparison of two variants within rounds: exact where it can be, and covering the truth."""

import math

import numpy as np
import pytest

from hotloop.loop.figures import jackknife_error, paired_ratio, student_interval, student_quantile


def test_what_moves_both_drops_out_of_the_ratio() -> None:
    drift = np.array([1.0, 0.5, 0.8, 1.2])
    ratio = paired_ratio(3 * drift, 2 * drift)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_the_ratio_is_of_the_sums_not_of_the_rounds() -> None:
    assert paired_ratio(np.array([1.0, 3.0]), np.array([1.0, 1.0])).value == 2.0


def test_a_hand_worked_interval() -> None:
    """Without the first round 3, without the second 1: an error of 1, one degree of freedom."""
    ratio = paired_ratio(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    reach = student_quantile(0.975, 1)
    assert (ratio.low, ratio.high) == pytest.approx((2 - reach, 2 + reach))


def test_one_round_has_no_ends() -> None:
    ratio = paired_ratio(np.array([3.0]), np.array([2.0]))
    assert ratio.value == 1.5
    assert math.isnan(ratio.low)
    assert math.isnan(ratio.high)
    alone = student_interval(1.0, jackknife_error(np.array([1.0])), 0)
    assert (alone.low, alone.high) == (-math.inf, math.inf)


def test_ratios_beyond_all_numbers_have_no_ends_and_warn_of_nothing() -> None:
    assert math.isinf(jackknife_error(np.array([1.0, 1e200])))
    assert math.isinf(jackknife_error(np.array([1.0, np.inf])))


def test_the_interval_covers_the_truth() -> None:
    """95% promised: of 400 comparisons with one drift for both, between 90% and 99% cover 1.25."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        drift = rng.gamma(4.0, 0.25, 8)
        mine, base = (drift * level * rng.lognormal(0.0, 0.05, 8) for level in (1.25, 1.0))
        covered += 1.25 in paired_ratio(mine, base)
    assert 0.90 < covered / 400 < 0.99
