"""V-trace: the compiled kernel against the paper's sum, and against identities."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError
from hotloop.ops import vtrace
from support.fragments import KERNELS, Steps, by_run, drawn_steps, some_steps
from support.often import examples

shares = st.floats(0, 1)
clips = st.sampled_from([0.3, 1.0, 2.5, math.inf])


def plain_vtrace(steps: Steps, gamma, lambda_, clip_rho, clip_pg_rho) -> list[np.ndarray]:
    """vsₛ = Vₛ + Σₜ γᵗ⁻ˢ (Π cᵢ) δₜ over the rest of the run (the paper's equation 1), step by step.

    The advantage is then taken from the finished targets.
    """

    def of_run(r_t, v_tm1, v_t, rho):
        length = range(len(r_t))
        delta = [min(clip_rho, rho[t]) * (r_t[t] + gamma * v_t[t] - v_tm1[t]) for t in length]
        c = [lambda_ * min(1.0, ratio) for ratio in rho]
        error = [
            sum(gamma ** (t - s) * math.prod(c[s:t]) * delta[t] for t in length[s:]) for s in length
        ]
        target = [v_tm1[t] + error[t] for t in length]
        later = [v_t[t] + error[t + 1] for t in length[:-1]] + v_t[-1:]
        q = [lambda_ * vs + (1 - lambda_) * v for vs, v in zip(later, v_t, strict=True)]
        return [
            target,
            [min(clip_pg_rho, rho[t]) * (r_t[t] + gamma * q[t] - v_tm1[t]) for t in length],
        ]

    return by_run(steps, of_run, [steps.v_tm1, 0.0])


@settings(max_examples=examples(80))
@given(some_steps(), shares, shares, clips, clips)
def test_vtrace_equals_the_papers_sum(steps, gamma, lambda_, clip_rho, clip_pg_rho):
    chosen = gamma, lambda_, clip_rho, clip_pg_rho
    got = KERNELS["vtrace"](steps, *chosen)
    np.testing.assert_allclose(got, plain_vtrace(steps, *chosen), rtol=1e-9, atol=1e-7)


def test_numbers_worked_by_hand():
    # γ = 1/2, λ = 1, ρ̄ = 2, ρ̄_pg = 3, ratios 4 and 1/2, values V = 2, 4, then 8 arrived at.
    # Last step: δ = 1/2 (3 + 8/2 − 4) = 3/2, vs = 4 + 3/2 = 11/2, advantage 1/2 · 3 = 3/2.
    # First: δ = 2 (1 + 4/2 − 2) = 2, c = 1, vs = 2 + 2 + 1/2 · 3/2 = 19/4,
    # advantage 3 (1 + 1/2 · 11/2 − 2) = 21/4.
    r_t, v_tm1, v_t, rho = (np.array([c]).T for c in ([1.0, 3], [2.0, 4], [4.0, 8], [4.0, 0.5]))
    none = np.zeros((2, 1), np.bool_)
    got = vtrace(r_t, v_tm1, v_t, rho, none, none, gamma=0.5, clip_rho=2.0, clip_pg_rho=3.0)
    assert got.target[:, 0].tolist() == [19 / 4, 11 / 2]
    assert got.advantage[:, 0].tolist() == [21 / 4, 3 / 2]
    # λ = 1/2: c = 1/2, vs = 4 + 1/4 · 3/2 = 35/8; q = (11/2 + 4) / 2 = 19/4, 3 (1 + 19/8 − 2).
    got = vtrace(
        r_t, v_tm1, v_t, rho, none, none, gamma=0.5, lambda_=0.5, clip_rho=2.0, clip_pg_rho=3.0
    )
    assert got.target[0, 0] == 35 / 8
    assert got.advantage[0, 0] == 33 / 8


def test_the_clips_are_1_unless_said():
    s = drawn_steps()
    given_ = (s.r_t, s.v_tm1, s.v_t, s.rho_tm1, s.terminated_t, s.truncated_t)
    expected = plain_vtrace(s, 0.9, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(vtrace(*given_, gamma=0.9), expected)


@settings(max_examples=examples(60))
@given(some_steps(), shares, shares)
def test_on_policy_targets_are_lambda_returns_whatever_lambda_is(steps, gamma, lambda_):
    steps = steps.on_policy()
    target, advantage = KERNELS["vtrace"](steps, gamma, lambda_, 1.0, 1.0)
    estimate, return_ = KERNELS["gae"](steps, gamma, lambda_)
    np.testing.assert_allclose(target, return_, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(advantage, estimate, rtol=1e-9, atol=1e-8)
    [lambda_return] = KERNELS["lambda_returns"](steps, gamma, lambda_)
    v = steps.valid_t
    np.testing.assert_allclose(target[v], lambda_return[v], rtol=1e-9, atol=1e-8)


def test_on_policy_with_lambda_one_targets_are_n_step_returns():
    steps = drawn_steps().on_policy()
    target, _ = KERNELS["vtrace"](steps, 0.9, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(target, KERNELS["n_step_returns"](steps, 0.9, n=99)[0])


def test_lambda_zero_corrects_one_step():
    s = drawn_steps()
    target, advantage = KERNELS["vtrace"](s, 0.9, 0.0, 1.5, 0.7)
    error = s.r_t + 0.9 * ~s.terminated_t * s.v_t - s.v_tm1
    np.testing.assert_allclose(target, s.v_tm1 + np.minimum(s.rho_tm1, 1.5) * error)
    np.testing.assert_allclose(advantage, np.minimum(s.rho_tm1, 0.7) * error)


def test_gamma_zero_leaves_the_reward():
    s = drawn_steps()
    target, advantage = KERNELS["vtrace"](s, 0.0, 0.8, math.inf, math.inf)
    np.testing.assert_allclose(advantage, s.rho_tm1 * (s.r_t - s.v_tm1))
    np.testing.assert_allclose(target, s.v_tm1 + advantage)


def test_actions_that_the_target_policy_never_takes_change_nothing():
    s = replace(drawn_steps(), rho_tm1=np.zeros((12, 3)))
    target, advantage = KERNELS["vtrace"](s)
    np.testing.assert_array_equal(target, s.v_tm1)
    assert not advantage.any()


def test_each_clip_moves_its_own_result():
    s = drawn_steps()
    target, advantage = KERNELS["vtrace"](s, clip_rho=1.5, clip_pg_rho=1.5)
    same, other = KERNELS["vtrace"](s, clip_rho=1.5, clip_pg_rho=0.5)
    np.testing.assert_array_equal(target, same)
    large = s.rho_tm1 >= 1.5
    np.testing.assert_allclose(other[large], advantage[large] / 3)
    assert not np.allclose(KERNELS["vtrace"](s, clip_rho=0.5, clip_pg_rho=1.5)[0], target)


def test_infinity_clips_nothing():
    s = drawn_steps()
    unclipped = KERNELS["vtrace"](s, clip_rho=math.inf, clip_pg_rho=math.inf)
    most = float(s.rho_tm1.max())
    np.testing.assert_array_equal(unclipped, KERNELS["vtrace"](s, clip_rho=most, clip_pg_rho=most))


def test_a_ratio_that_is_not_a_number_is_not_hidden_by_its_clip():
    s = drawn_steps(ends=0.0)
    s.rho_tm1[5, 1] = math.nan
    target, advantage = KERNELS["vtrace"](s)
    assert np.isnan(target[:6, 1]).all()
    assert np.isnan(advantage[:6, 1]).all()
    assert np.isfinite(target[6:, 1]).all()
    assert np.isfinite(target[:, [0, 2]]).all()


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_with_lambda_and_clip_one_a_fragment_in_two_bootstraps_from_the_later_part(cut):
    s = drawn_steps()
    early, late = s.each(lambda a: a[:cut].copy()), s.each(lambda a: a[cut:])
    chosen = 0.9, 1.0, 1.0, 1.0
    whole, second = (KERNELS["vtrace"](each, *chosen) for each in (s, late))
    open_ = ~(early.terminated_t | early.truncated_t)[-1]
    early.v_t[-1] = np.where(open_, second.target[0], early.v_t[-1])
    first = KERNELS["vtrace"](early, *chosen)
    for i in range(2):
        np.testing.assert_allclose(whole[i], np.concatenate([first[i], second[i]]))


def test_derivatives_by_differences():
    """∂vsₛ/∂rₜ = γᵗ⁻ˢ cₛ ... cₜ₋₁ min(ρ̄, ρₜ) within the episode, and 0 beyond its end."""
    length, gamma, lambda_, clip_rho = 7, 0.9, 0.8, 1.5
    s = drawn_steps(length=length, width=1, ends=0.0)
    s.truncated_t[3] = True
    c = lambda_ * np.minimum(1.0, s.rho_tm1[:, 0])
    for later in range(length):
        shift = np.zeros((length, 1))
        shift[later] = 0.5
        up, down = (
            KERNELS["vtrace"](replace(s, r_t=s.r_t + d), gamma, lambda_, clip_rho)[0]
            for d in (shift, -shift)
        )
        expected = np.zeros(length)
        for t in range(0 if later <= 3 else 4, later + 1):
            ratio = min(clip_rho, s.rho_tm1[later, 0])
            expected[t] = gamma ** (later - t) * math.prod(c[t:later]) * ratio
        np.testing.assert_allclose((up - down)[:, 0], expected, atol=1e-12)


def test_without_a_clip_the_advantage_gives_the_gradient_of_the_expected_reward():
    """Σₐ μ(a) advantage(a) ∇ log π(a) is the gradient of Σₐ π(a) r(a), here by differences.

    One column is one action of a bandit, weighted by how often the behaviour policy takes it.
    """
    rng = np.random.default_rng(3)
    logits, reward = rng.normal(size=(2, 4))
    mu = rng.dirichlet(np.ones(4))

    def policy(logits):
        return np.exp(logits) / np.exp(logits).sum()

    ends, none = np.ones((1, 4), np.bool_), np.zeros((1, 4), np.bool_)
    value = np.full((1, 4), 0.7)
    _, [advantage] = vtrace(
        reward[None],
        value,
        value,
        (policy(logits) / mu)[None],
        ends,
        none,
        gamma=0.9,
        clip_pg_rho=math.inf,
    )
    got = (mu * advantage) @ (np.eye(4) - policy(logits))
    steps = 1e-6 * np.eye(4)
    expected = [(policy(logits + d) - policy(logits - d)) @ reward / 2e-6 for d in steps]
    np.testing.assert_allclose(got, expected, atol=1e-8)


@pytest.mark.parametrize("name", ["clip_rho", "clip_pg_rho"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_impossible_clips_are_refused(name, value):
    with pytest.raises(SettingError, match=rf"vtrace: {name}: expected a number above 0"):
        KERNELS["vtrace"](drawn_steps(), **{name: value})
