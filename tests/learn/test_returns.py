"""Advantages: the compiled kernel against its plain twin, and against identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hotloop.errors import ShapeError
from hotloop.ops import gae
from support.often import examples


def plain_gae(r_t, v_tm1, v_t, terminated_t, truncated_t, gamma, lambda_):
    """The recursion as it is written, over Python floats."""
    advantage = np.empty_like(r_t)
    for b in range(r_t.shape[1]):
        following = 0.0
        for t in reversed(range(r_t.shape[0])):
            done = terminated_t[t, b] or truncated_t[t, b]
            discount = gamma * (1.0 - terminated_t[t, b])
            delta = float(r_t[t, b]) + discount * float(v_t[t, b]) - float(v_tm1[t, b])
            following = delta + gamma * lambda_ * (1.0 - done) * following
            advantage[t, b] = following
    return advantage, advantage + v_tm1


def fragment(length=12, width=3, seed=0, ends=0.2):
    rng = np.random.default_rng(seed)
    r_t, v_tm1, v_t = rng.normal(size=(3, length, width))
    terminated_t, truncated_t = rng.random((2, length, width)) < ends
    return r_t, v_tm1, v_t, terminated_t, truncated_t


@st.composite
def fragments(draw):
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 3)))
    floats = st.floats(-100, 100, width=32)
    numbers = [draw(arrays(np.float64, shape, elements=floats)) for _ in range(3)]
    return [*numbers, *(draw(arrays(np.bool_, shape)) for _ in range(2))]


@settings(max_examples=examples(60), deadline=None)  # the first call compiles
@given(fragments(), st.floats(0, 1), st.floats(0, 1))
def test_fast_equals_plain(inputs, gamma, lambda_):
    got = gae(*inputs, gamma=gamma, lambda_=lambda_)
    np.testing.assert_allclose(got, plain_gae(*inputs, gamma, lambda_), rtol=1e-12, atol=1e-9)


def test_single_precision_stays_single():
    inputs = [a.astype(np.float32) if a.dtype == np.float64 else a for a in fragment()]
    got = gae(*inputs, gamma=0.98, lambda_=0.8)
    assert got[0].dtype == got[1].dtype == np.float32
    np.testing.assert_allclose(got, plain_gae(*inputs, 0.98, 0.8), rtol=1e-5, atol=1e-6)


def test_lambda_zero_is_the_one_step_error():
    r_t, v_tm1, v_t, terminated_t, _ = fragment()
    advantage, return_ = gae(*fragment(), gamma=0.9, lambda_=0.0)
    np.testing.assert_allclose(return_, r_t + 0.9 * ~terminated_t * v_t)
    np.testing.assert_allclose(advantage, return_ - v_tm1)


def test_lambda_one_is_the_discounted_return():
    r_t, v_tm1, v_t, *_ = fragment(ends=0.0)
    v_t[:-1] = v_tm1[1:]
    none = np.zeros(r_t.shape, np.bool_)
    _, return_ = gae(r_t, v_tm1, v_t, none, none, gamma=0.9, lambda_=1.0)
    powers = 0.9 ** np.arange(len(r_t))[:, None]
    expected = (powers * r_t).sum(0) + 0.9 ** len(r_t) * v_t[-1]
    np.testing.assert_allclose(return_[0], expected)


def test_gamma_zero_is_the_reward():
    r_t, v_tm1, *_ = fragment()
    advantage, return_ = gae(*fragment(), gamma=0.0, lambda_=0.7)
    np.testing.assert_allclose(return_, r_t)
    np.testing.assert_allclose(advantage, r_t - v_tm1)


def test_one_step():
    flags = np.array([[False, True, False]]), np.array([[False, False, True]])
    ones = np.ones((1, 3))
    advantage, _ = gae(ones, 2 * ones, 4 * ones, *flags, gamma=0.5, lambda_=0.9)
    assert advantage.tolist() == [[1.0, -1.0, 1.0]]


def test_a_number_worked_by_hand():
    # γ = 1/2, λ = 1/2. Last step: δ = 3 + 4/2 − 2 = 3. Middle: δ = 2 + 2/2 − 1 = 2, A = 2 + 3/4.
    # First: δ = 1 + 1/2 − 4 = −5/2, A = −5/2 + 11/16 = −29/16.
    r_t, v_tm1 = np.array([[1.0], [2.0], [3.0]]), np.array([[4.0], [1.0], [2.0]])
    v_t = np.array([[1.0], [2.0], [4.0]])
    none = np.zeros((3, 1), np.bool_)
    advantage, return_ = gae(r_t, v_tm1, v_t, none, none, gamma=0.5, lambda_=0.5)
    assert advantage[:, 0].tolist() == [-29 / 16, 11 / 4, 3.0]
    assert return_[:, 0].tolist() == [35 / 16, 15 / 4, 5.0]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_bootstrap_on_truncation(end):
    """A fragment that an episode's end divides equals its separate episodes exactly."""
    r_t, v_tm1, v_t, *_ = fragment(length=9, ends=0.0)
    ends = np.zeros(r_t.shape, np.bool_)
    ends[4] = True
    none = np.zeros_like(ends)
    flags = (ends, none) if end == "terminated" else (none, ends)
    whole = gae(r_t, v_tm1, v_t, *flags, gamma=0.97, lambda_=0.9)
    parts = [
        gae(*(a[cut] for a in (r_t, v_tm1, v_t, *flags)), gamma=0.97, lambda_=0.9)
        for cut in (slice(0, 5), slice(5, 9))
    ]
    for i in range(2):
        np.testing.assert_array_equal(whole[i], np.concatenate([part[i] for part in parts]))
    last = r_t[4] + (0.97 * v_t[4] if end == "truncated" else 0.0)
    np.testing.assert_allclose(whole[1][4], last)


def test_messages():
    r_t, v_tm1, v_t, *flags = fragment()
    with pytest.raises(ShapeError, match=r"gae: v_t: expected the shape of r_t, \(12, 3\), got"):
        gae(r_t, v_tm1, v_t[1:], *flags, gamma=0.9, lambda_=0.9)
    with pytest.raises(ShapeError, match=r"gae: r_t: expected shape \(T, B\), got \(12,\)"):
        gae(r_t[:, 0], v_tm1, v_t, *flags, gamma=0.9, lambda_=0.9)
