"""IMPALA: its critic learns the value that V-trace promises, and its policy learns CartPole."""

import numpy as np
import pytest
import torch

from hotloop.learn import impala
from hotloop.learn.correction import corrected
from hotloop.learn.evaluate import Evaluation
from hotloop.learn.impala import IMPALA, IMPALASettings
from support.learner_envs import TwoStates, env_id

GAMMA = 0.8
STATES = np.eye(2, dtype=np.float32)
TARGET = np.array([[0.1, 0.9], [0.9, 0.1]])  # to state 1, and to stay there
TOLERANCE = 0.1


def exact_values(policy):
    """V = r + γ (1 − P(end)) P V of `TwoStates`, where action a leads from state s to s xor a."""
    move = np.array([[policy[s][s ^ after] for after in range(2)] for s in range(2)])
    return np.linalg.solve(np.eye(2) - GAMMA * (1 - TwoStates.end) * move, [0.0, 1.0])


def limited(policy, behaviour, clip_rho):
    """The policy proportional to min(ρ̄ μ, π) (Espeholt et al. 2018, theorem 1)."""
    weights = np.minimum(clip_rho * behaviour, policy)
    return weights / weights.sum(1, keepdims=True)


def probabilities(policy):
    logits = policy.outputs(STATES)[0]
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def act_by(policy, wanted):
    """Fit the actor to probabilities; the critic shares nothing with it."""
    adam = torch.optim.Adam([policy.flat], 0.01)
    target = torch.from_numpy(np.log(wanted).astype(np.float32))
    for _ in range(300):
        policy.grad.zero_()
        outputs, _ = policy(policy.tensors(STATES))
        (torch.log_softmax(outputs, 1) - target).square().sum().backward()
        adam.step()
    np.testing.assert_allclose(probabilities(policy), wanted, atol=0.02)


def learned_values(clip_rho, *, ratio_one=False):
    """Values of the critic after fragments that the first policy acted in, ever further behind.

    The policy that is learned about stays what it is: what its gradient is limited to is nothing.
    """
    settings = IMPALASettings(
        **{"env_id": env_id("TwoStates"), "backend": "serial", "gamma": GAMMA},
        **{"num_envs": 32, "fragment_steps": 10, "clip_rho": clip_rho, "clip_pg_rho": 1e-30},
        **{"learning_rate": 5e-3, "anneal": True, "total_steps": 250 * 320, "hidden_size": 16},
        max_lag=1000,
        normalise_values=False,
        entropy_weight=0.0,
        trace_lambda=1.0,
    )
    learner = IMPALA(settings)
    behaviour = probabilities(learner.policy)
    act_by(learner.policy, TARGET)
    target = probabilities(learner.policy)
    learner.actors.publish = lambda: None
    with pytest.MonkeyPatch.context() as patch:
        if ratio_one:
            patch.setattr(impala, "corrected", with_ratios_of_one)
        for _ in range(250):
            learner.iterate()
    learner.close()
    np.testing.assert_allclose(probabilities(learner.policy), target, atol=1e-5)
    return learner.value_of(STATES), target, behaviour


def with_ratios_of_one(settings, steps, value, rho, value_of, **limits):
    return corrected(settings, steps, value, np.ones_like(rho), value_of, **limits)


@pytest.mark.long
@pytest.mark.parametrize("clip_rho", [0.5, 1.0, 10.0])
def test_the_critic_learns_the_values_of_the_limited_policy(clip_rho):
    values, target, behaviour = learned_values(clip_rho)
    expected = exact_values(limited(target, behaviour, clip_rho))
    np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)
    assert np.abs(exact_values(behaviour) - expected).min() > 3 * TOLERANCE


@pytest.mark.long
def test_with_ratios_of_one_it_learns_those_of_the_behaviour_policy():
    values, target, behaviour = learned_values(1.0, ratio_one=True)
    np.testing.assert_allclose(values, exact_values(behaviour), rtol=0, atol=TOLERANCE)
    expected = exact_values(limited(target, behaviour, 1.0))
    assert np.abs(values - expected).min() > 3 * TOLERANCE


def greedy_mean(settings, env_steps):
    learner, evaluation = IMPALA(settings), Evaluation.of(settings.env_id)
    while learner.progress.env_steps < env_steps:
        learner.iterate()
    learner.close()
    mean = float(evaluation(learner.policy).mean())
    evaluation.close()
    return mean


@pytest.mark.long
def test_learns_cartpole():
    """Rounding differs between processors, and with it the course of each seed: the middle one of
    three must learn. Of seeds 1 to 12 the lowest reached 135 after 30,000 steps, the median 187 and
    the highest 442; a policy that always pushes the same way stays upright for 9 steps.
    """
    means = [greedy_mean(IMPALASettings(backend="serial", seed=seed), 30_000) for seed in (1, 2, 3)]
    assert sorted(means)[1] > 60, means
