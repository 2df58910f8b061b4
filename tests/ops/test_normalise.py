"""Normalised advantages, and running moments against the moments of all the data."""

import math
from itertools import pairwise
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hotloop.errors import SettingError, ShapeError
from hotloop.ops import (
    denormalise,
    merge_moments,
    no_moments,
    normalise,
    normalise_advantages,
)
from support.often import examples

numbers = st.floats(-1000, 1000, width=32)


def drawn(shape, dtype=np.float64):
    return np.random.default_rng(5).normal(3.0, 7.0, shape).astype(dtype)


# --- advantages ----------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(arrays(np.float64, (5, 3), elements=numbers), arrays(np.bool_, (5, 3)))
def test_valid_advantages_are_normalised_and_the_others_are_zero(advantage, valid):
    got = normalise_advantages(advantage, valid, epsilon=1e-3)
    used = advantage[valid].tolist()
    if used:
        mean, deviation = fmean(used), pstdev(used)
        expected = [(a - mean) / (deviation + 1e-3) for a in used]
        np.testing.assert_allclose(got[valid], expected, rtol=1e-7, atol=1e-7)
    assert not got[~valid].any()


def test_an_advantage_worked_by_hand():
    # Valid: 1, 3, 8; mean 4, variance (9 + 1 + 16) / 3 = 26/3.
    advantage, valid = np.array([1.0, 100.0, 3.0, 8.0]), np.array([True, False, True, True])
    expected = np.array([-3.0, 0.0, -1.0, 4.0]) / math.sqrt(26 / 3)
    np.testing.assert_allclose(normalise_advantages(advantage, valid), expected, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mean_zero_and_deviation_one(dtype):
    advantage = drawn((64, 8), dtype)
    got = normalise_advantages(advantage)
    assert got.dtype == dtype
    np.testing.assert_allclose([got.mean(), got.std()], [0.0, 1.0], atol=1e-6)
    everything = np.ones(advantage.shape, np.bool_)
    np.testing.assert_array_equal(normalise_advantages(advantage, everything), got)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e30])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_equal_advantages_are_exactly_zero(dtype, value, count):
    got = normalise_advantages(np.full((count, 2), value, dtype))
    np.testing.assert_array_equal(got, 0.0)


def test_no_advantage_at_all():
    assert normalise_advantages(np.zeros((0, 3))).shape == (0, 3)
    none = np.zeros((2, 3), np.bool_)
    np.testing.assert_array_equal(normalise_advantages(drawn((2, 3)), none), 0.0)


def test_what_is_not_valid_may_be_anything():
    advantage, valid = drawn((4, 3)), np.ones((4, 3), np.bool_)
    valid[1] = False
    expected = normalise_advantages(advantage, valid)
    for value in (math.nan, math.inf, 1e300):
        advantage[1] = value
        np.testing.assert_array_equal(normalise_advantages(advantage, valid), expected)
    advantage[0, 0] = math.nan
    assert np.isnan(normalise_advantages(advantage, valid)[valid]).all()


def test_advantages_may_be_views_of_other_memory():
    advantage, valid = drawn((6, 4)), drawn((6, 4)) > 0
    expected = normalise_advantages(advantage, valid)
    before = advantage.copy()
    advantage.flags.writeable = valid.flags.writeable = False
    np.testing.assert_array_equal(normalise_advantages(advantage, valid), expected)
    turned = normalise_advantages(np.asfortranarray(advantage), np.asfortranarray(valid))
    np.testing.assert_allclose(turned, expected)
    np.testing.assert_array_equal(advantage, before)


def test_impossible_advantages_are_refused():
    with pytest.raises(ShapeError, match=r"valid: expected bool flags .*\(4, 3\), got bool of"):
        normalise_advantages(drawn((4, 3)), np.ones((4,), np.bool_))
    with pytest.raises(ShapeError, match=r"valid: expected bool flags .* got float64 of"):
        normalise_advantages(drawn((4, 3)), np.ones((4, 3)))
    with pytest.raises(ShapeError, match=r"advantage: expected floats, got int64"):
        normalise_advantages(np.ones((4, 3), np.int64))
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SettingError, match=r"normalise_advantages: epsilon: expected"):
            normalise_advantages(drawn((4, 3)), epsilon=epsilon)


# --- running moments -----------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(arrays(np.float64, (12, 2), elements=numbers), st.lists(st.integers(0, 12), max_size=5))
def test_merged_moments_are_those_of_all_samples(samples, cuts):
    moments = no_moments((2,))
    for start, stop in pairwise([0, *sorted(cuts), 12]):
        moments = merge_moments(moments, samples[start:stop])
    assert moments.count == 12
    for k in range(2):
        column = samples[:, k].tolist()
        np.testing.assert_allclose(moments.mean[k], fmean(column), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moments.variance[k], pstdev(column) ** 2, rtol=1e-7, atol=1e-7)


def test_moments_worked_by_hand():
    # 1, 3: mean 2, variance 1. With 8: mean 4, variance (9 + 1 + 16) / 3 = 26/3.
    first = merge_moments(no_moments(), np.array([1.0, 3.0]))
    assert (first.count, float(first.mean), float(first.variance)) == (2, 2.0, 1.0)
    second = merge_moments(first, np.array([8.0]))
    assert second.count == 3
    np.testing.assert_allclose([second.mean, second.variance], [4.0, 26 / 3])
    assert (first.count, float(first.mean), float(first.variance)) == (2, 2.0, 1.0)


def test_the_variance_of_samples_far_from_zero_is_not_lost():
    """Their squares have no digits left for it."""
    samples = 1e9 + np.tile([-1.0, 1.0], 500)
    moments = no_moments()
    for part in np.split(samples, 10):
        moments = merge_moments(moments, part)
    np.testing.assert_allclose([moments.mean, moments.variance], [1e9, 1.0], rtol=1e-9)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_all_leading_axes_are_samples(shape, dtype):
    batch = np.random.default_rng(0).integers(0, 200, (6, 5, *shape)).astype(dtype)
    whole = merge_moments(no_moments(shape), batch)
    rows = merge_moments(no_moments(shape), batch.reshape(30, *shape))
    assert whole.count == rows.count == 30
    np.testing.assert_allclose(whole.mean, batch.mean((0, 1), np.float64))
    np.testing.assert_allclose(whole.variance, batch.var((0, 1), np.float64))
    for mine, other in zip(whole[1:], rows[1:], strict=True):
        np.testing.assert_array_equal(mine, other)
        assert isinstance(mine, np.ndarray)
        assert mine.dtype == np.float64
        assert mine.shape == shape


def test_an_empty_batch_changes_nothing():
    moments = merge_moments(no_moments((2,)), drawn((7, 2)))
    for empty in (np.zeros((0, 2)), np.zeros((3, 0, 2))):
        merged = merge_moments(moments, empty)
        assert merged.count == 7
        np.testing.assert_array_equal(merged.mean, moments.mean)
        np.testing.assert_array_equal(merged.variance, moments.variance)


def test_normalised_samples_have_mean_zero_and_deviation_one():
    x = drawn((50, 4, 3))
    got = normalise(x, merge_moments(no_moments((3,)), x), clip=math.inf)
    np.testing.assert_allclose(got.mean((0, 1)), 0.0, atol=1e-9)
    np.testing.assert_allclose(got.std((0, 1)), 1.0, atol=1e-6)


def test_a_normalised_number_worked_by_hand():
    # Mean 2, variance 4: (7 − 2) / 2 = 5/2, clipped to 3/2; (1 − 2) / 2 = −1/2.
    moments = no_moments()._replace(count=9, mean=np.array(2.0), variance=np.array(4.0))
    x = np.array([7.0, 1.0, -7.0])
    np.testing.assert_allclose(normalise(x, moments, clip=1.5), [1.5, -0.5, -1.5])
    np.testing.assert_allclose(denormalise(np.array([2.5, -0.5]), moments), [7.0, 1.0])
    np.testing.assert_allclose(normalise(x, moments, clip=9.0, epsilon=12.0), [1.25, -0.25, -2.25])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_denormalise_undoes_normalise(dtype):
    x = drawn((20, 3), dtype)
    moments = merge_moments(no_moments((3,)), x)
    got = denormalise(normalise(x, moments, clip=math.inf), moments)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, x, rtol=1e-5, atol=1e-5)


def test_without_samples_normalising_changes_nothing():
    x = drawn((5, 3))
    for change in (normalise, denormalise):
        np.testing.assert_allclose(change(x / 10, no_moments((3,))), x / 10, rtol=1e-7)


def test_a_number_that_never_changes_is_normalised_to_zero():
    x = np.full((30, 1), 5.0)
    moments = merge_moments(no_moments((1,)), x)
    np.testing.assert_array_equal(normalise(x, moments), 0.0)
    assert normalise(x + 1, moments).max() == 10.0  # the clip


def test_whole_numbers_are_normalised_to_doubles():
    x = np.arange(6, dtype=np.uint8)
    moments = merge_moments(no_moments(), x)
    assert normalise(x, moments).dtype == np.float64
    np.testing.assert_allclose(denormalise(normalise(x, moments), moments), x, atol=1e-7)


def test_impossible_samples_and_settings_are_refused():
    moments = no_moments((3,))
    for call, name in (
        (merge_moments, "batch"),
        (lambda m, x: normalise(x, m), "x"),
        (lambda m, x: denormalise(x, m), "x"),
    ):
        with pytest.raises(ShapeError, match=rf": {name}: expected samples .*\(\.\.\., 3\), got"):
            call(moments, np.zeros((5, 4)))
        with pytest.raises(ShapeError, match=rf": {name}: expected samples"):
            call(no_moments((2, 3)), np.zeros(3))
    with pytest.raises(ShapeError, match=r"batch: expected an axis of samples"):
        merge_moments(moments, np.zeros(3))
    x = np.zeros((5, 3))
    for clip in (0.0, -1.0, math.nan):
        with pytest.raises(SettingError, match=r"normalise: clip: expected a number above 0"):
            normalise(x, moments, clip=clip)
    for change in (normalise, denormalise):
        with pytest.raises(SettingError, match=rf"{change.__name__}: epsilon: expected a number"):
            change(x, moments, epsilon=0.0)
