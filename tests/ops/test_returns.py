"""Advantages and λ-returns: compiled kernels against their definitions, and against identities."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.ops import gae, lambda_returns
from support.fragments import KERNELS, Steps, by_run, drawn_steps, some_steps
from support.often import examples

shares = st.floats(0, 1)


def plain_gae(steps: Steps, gamma: float, lambda_: float) -> list[np.ndarray]:
    """Aₜ = Σₗ (γλ)ˡ δₜ₊ₗ over the rest of the run, summed for every step anew."""

    def of_run(r_t, v_tm1, v_t, _):
        deltas = [r + gamma * v - v0 for r, v0, v in zip(r_t, v_tm1, v_t, strict=True)]
        advantage = [
            sum((gamma * lambda_) ** k * delta for k, delta in enumerate(deltas[t:]))
            for t in range(len(deltas))
        ]
        return [advantage, [a + v0 for a, v0 in zip(advantage, v_tm1, strict=True)]]

    return by_run(steps, of_run, [0.0, steps.v_tm1])


def plain_lambda_returns(steps: Steps, gamma: float, lambda_: float) -> list[np.ndarray]:
    """(1 − λ) Σₙ λⁿ⁻¹ G⁽ⁿ⁾, where the longest n-step return has all the weight that is left."""

    def of_run(r_t, _v_tm1, v_t, _rho):
        returns = []
        for t in range(len(r_t)):
            n_step = [
                sum(gamma**k * r for k, r in enumerate(r_t[t : t + n])) + gamma**n * v_t[t + n - 1]
                for n in range(1, len(r_t) - t + 1)
            ]
            weighted = [(1 - lambda_) * lambda_**k * g for k, g in enumerate(n_step[:-1])]
            returns.append(sum(weighted) + lambda_ ** (len(n_step) - 1) * n_step[-1])
        return [returns]

    return by_run(steps, of_run, [0.0])


@settings(max_examples=examples(60))
@given(some_steps(), shares, shares)
def test_gae_equals_its_definition(steps, gamma, lambda_):
    got = KERNELS["gae"](steps, gamma, lambda_)
    np.testing.assert_allclose(got, plain_gae(steps, gamma, lambda_), rtol=1e-9, atol=1e-8)


@settings(max_examples=examples(60))
@given(some_steps(), shares, shares)
def test_lambda_returns_equal_their_definition(steps, gamma, lambda_):
    got = KERNELS["lambda_returns"](steps, gamma, lambda_)
    expected = plain_lambda_returns(steps, gamma, lambda_)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-8)


@settings(max_examples=examples(60))
@given(some_steps(valid=True), shares, shares)
def test_a_lambda_return_is_the_advantage_plus_the_value(steps, gamma, lambda_):
    [return_] = KERNELS["lambda_returns"](steps, gamma, lambda_)
    _, expected = KERNELS["gae"](steps, gamma, lambda_)
    np.testing.assert_allclose(return_, expected, rtol=1e-9, atol=1e-8)


def test_where_v_t_differs_from_the_next_v_tm1_the_advantage_is_of_its_own_v_t():
    # Two steps, γ = 1/2, λ = 1, V(x₁) given as 8 by the first step and as 2 by the second.
    # Second: δ = 4 + 0 − 2 = 2. First: δ = 1 + 8/2 − 3 = 2, A = 2 + 2/2 = 3.
    zeros = np.zeros((2, 1), np.bool_)
    columns = ([1.0, 4.0], [3.0, 2.0], [8.0, 0.0])
    r_t, v_tm1, v_t = (np.array(column)[:, None] for column in columns)
    advantage, return_ = gae(r_t, v_tm1, v_t, zeros, zeros, gamma=0.5, lambda_=1.0)
    assert advantage[:, 0].tolist() == [3.0, 2.0]
    assert return_[:, 0].tolist() == [6.0, 4.0]


def test_lambda_zero_is_the_one_step_error():
    s = drawn_steps()
    expected = s.r_t + 0.9 * ~s.terminated_t * s.v_t
    advantage, return_ = KERNELS["gae"](s, 0.9, 0.0)
    np.testing.assert_allclose(return_, expected)
    np.testing.assert_allclose(advantage, expected - s.v_tm1)
    np.testing.assert_allclose(KERNELS["lambda_returns"](s, 0.9, 0.0)[0], expected)


def test_lambda_one_is_the_discounted_return():
    s = drawn_steps(ends=0.0)
    powers = 0.9 ** np.arange(len(s.r_t))[:, None]
    expected = (powers * s.r_t).sum(0) + 0.9 ** len(s.r_t) * s.v_t[-1]
    np.testing.assert_allclose(KERNELS["gae"](s, 0.9, 1.0)[1][0], expected)
    np.testing.assert_allclose(KERNELS["lambda_returns"](s, 0.9, 1.0)[0][0], expected)


def test_gamma_zero_is_the_reward():
    s = drawn_steps()
    advantage, return_ = KERNELS["gae"](s, 0.0, 0.7)
    np.testing.assert_allclose(return_, s.r_t)
    np.testing.assert_allclose(advantage, s.r_t - s.v_tm1)
    np.testing.assert_array_equal(KERNELS["lambda_returns"](s, 0.0, 0.7)[0], s.r_t)


def test_one_step():
    flags = np.array([[False, True, False]]), np.array([[False, False, True]])
    ones = np.ones((1, 3))
    advantage, _ = gae(ones, 2 * ones, 4 * ones, *flags, gamma=0.5, lambda_=0.9)
    assert advantage.tolist() == [[1.0, -1.0, 1.0]]
    assert lambda_returns(ones, 4 * ones, *flags, gamma=0.5, lambda_=0.9).tolist() == [[3, 1, 3]]


def test_an_advantage_worked_by_hand():
    # γ = 1/2, λ = 1/2. Last step: δ = 3 + 4/2 − 2 = 3. Middle: δ = 2 + 2/2 − 1 = 2, A = 2 + 3/4.
    # First: δ = 1 + 1/2 − 4 = −5/2, A = −5/2 + 11/16 = −29/16.
    r_t, v_tm1 = np.array([[1.0], [2.0], [3.0]]), np.array([[4.0], [1.0], [2.0]])
    v_t = np.array([[1.0], [2.0], [4.0]])
    none = np.zeros((3, 1), np.bool_)
    advantage, return_ = gae(r_t, v_tm1, v_t, none, none, gamma=0.5, lambda_=0.5)
    assert advantage[:, 0].tolist() == [-29 / 16, 11 / 4, 3.0]
    assert return_[:, 0].tolist() == [35 / 16, 15 / 4, 5.0]


def test_a_lambda_return_worked_by_hand():
    # γ = 1/2, λ = 1/4. Last step, truncated: 3 + 4/2 = 5. Middle: 2 + 1/2 (3/4 · 2 + 1/4 · 5)
    # = 2 + 11/8 = 27/8. First: 1 + 1/2 (3/4 · 1 + 1/4 · 27/8) = 1 + 51/64 = 115/64.
    # A termination in the middle step leaves it 2, and the first 1 + 1/2 (3/4 + 1/4 · 2) = 13/8.
    r_t, v_t = np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [2.0], [4.0]])
    none, last = np.zeros((3, 1), np.bool_), np.array([[False], [False], [True]])
    middle = np.array([[False], [True], [False]])
    whole = lambda_returns(r_t, v_t, none, last, gamma=0.5, lambda_=0.25)
    assert whole[:, 0].tolist() == [115 / 64, 27 / 8, 5.0]
    cut = lambda_returns(r_t, v_t, middle, last, gamma=0.5, lambda_=0.25)
    assert cut[:, 0].tolist() == [13 / 8, 2.0, 5.0]


def test_a_step_that_is_not_valid_worked_by_hand():
    # γ = λ = 1/2, the middle one of three steps only resets. First: 1 + 1/2 · 6 = 4, less the
    # value 3; last: 5 + 1/2 · 2 = 6, less the value 4.
    r_t, v_tm1, v_t = (np.array([c]).T for c in ([1.0, 9.0, 5.0], [3.0, 7.0, 4.0], [6.0, 4.0, 2.0]))
    none, valid_t = np.zeros((3, 1), np.bool_), np.array([[True], [False], [True]])
    advantage, return_ = gae(r_t, v_tm1, v_t, none, none, gamma=0.5, lambda_=0.5, valid_t=valid_t)
    assert advantage[:, 0].tolist() == [1.0, 0.0, 2.0]
    assert return_[:, 0].tolist() == [4.0, 7.0, 6.0]
    got = lambda_returns(r_t, v_t, none, none, gamma=0.5, lambda_=0.5, valid_t=valid_t)
    assert got[:, 0].tolist() == [4.0, 0.0, 6.0]


@pytest.mark.parametrize("end", ["terminated_t", "truncated_t"])
def test_bootstrap_on_truncation(end):
    """The last return of an episode has the value arrived at where cut, none where terminated."""
    s = drawn_steps(length=9, ends=0.0)
    ends = np.zeros(s.r_t.shape, np.bool_)
    ends[4] = True
    s = replace(s, v_t=np.where(ends, 50.0, s.v_t), **{end: ends})
    expected = s.r_t[4] + (0.9 * 50.0 if end == "truncated_t" else 0.0)
    np.testing.assert_allclose(KERNELS["gae"](s)[1][4], expected)
    np.testing.assert_allclose(KERNELS["lambda_returns"](s)[0][4], expected)


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_with_lambda_one_a_fragment_in_two_bootstraps_from_the_later_part(cut):
    """The first return of the later part is the value from which the earlier one bootstraps."""
    s = drawn_steps()
    early, late = s.each(lambda a: a[:cut].copy()), s.each(lambda a: a[cut:])
    [whole], [second] = (KERNELS["lambda_returns"](each, 0.9, 1.0) for each in (s, late))
    open_ = ~(early.terminated_t | early.truncated_t)[-1]
    early.v_t[-1] = np.where(open_, second[0], early.v_t[-1])
    [first] = KERNELS["lambda_returns"](early, 0.9, 1.0)
    np.testing.assert_allclose(whole, np.concatenate([first, second]))
    np.testing.assert_allclose(KERNELS["gae"](early, 0.9, 1.0)[1], whole[:cut])


def test_derivatives_by_differences():
    """∂Aₜ/∂rₛ = (γλ)ˢ⁻ᵗ and ∂Gₜ/∂V(xₛ) = γ(1 − λ)(γλ)ˢ⁻ᵗ up to the run's end, and 0 beyond.

    At the end of a run all the weight is on its last value: γ(γλ)ˢ⁻ᵗ.
    """
    gamma, lambda_, length = 0.9, 0.8, 8
    s = drawn_steps(length=length, width=1, ends=0.0)
    s.truncated_t[4] = True
    for later in range(length):
        shift = np.zeros((length, 1))
        shift[later] = 0.5
        up, down = (
            KERNELS["gae"](replace(s, r_t=s.r_t + d), gamma, lambda_)[0] for d in (shift, -shift)
        )
        begins, last = (0, 4) if later <= 4 else (5, 7)
        expected = np.zeros(length)
        for t in range(begins, later + 1):
            expected[t] = (gamma * lambda_) ** (later - t)
        np.testing.assert_allclose((up - down)[:, 0], expected, atol=1e-12)
        up, down = (
            KERNELS["lambda_returns"](replace(s, v_t=s.v_t + d), gamma, lambda_)[0]
            for d in (shift, -shift)
        )
        weight = gamma * (1.0 if later == last else 1 - lambda_)
        np.testing.assert_allclose((up - down)[:, 0], weight * expected, atol=1e-12)
