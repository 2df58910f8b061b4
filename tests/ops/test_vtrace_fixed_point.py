"""V-trace learns the value that it should, in an MDP small enough to solve by linear algebra.

Temporal-difference learning with V-trace targets, on fragments that another policy collected,
converges to the value of the policy proportional to min(ρ̄ μ, π) (Espeholt et al. 2018, theorem 1).
Episodes end by termination and by truncation, and envs are reset in a step of their own.
"""

import math

import numpy as np
import pytest

from hotloop.ops import vtrace

STATES, ACTIONS, GAMMA = 4, 3, 0.8
STEPS, ENVS, UPDATES = 10, 256, 240
TOLERANCE = 0.05

_rng = np.random.default_rng(11)
NEXT = _rng.dirichlet(np.full(STATES, 0.5), (STATES, ACTIONS))  # P(x'|x, a)
TERMINATION = _rng.uniform(0.0, 0.2, (STATES, ACTIONS))
REWARD = _rng.uniform(-1.0, 1.0, (STATES, ACTIONS))
PI = _rng.dirichlet(np.full(ACTIONS, 0.4), STATES)
MU = 0.7 * _rng.dirichlet(np.full(ACTIONS, 0.4), STATES) + 0.3 / ACTIONS
TRUNCATION = 0.1


def exact_values(policy: np.ndarray) -> np.ndarray:
    """V of the equation V = r_π + γ P_π V, where a termination has no next value."""
    reward = (policy * REWARD).sum(1)
    move = (policy[..., None] * (1 - TERMINATION)[..., None] * NEXT).sum(1)
    return np.linalg.solve(np.eye(STATES) - GAMMA * move, reward)


def limited_policy(clip_rho: float) -> np.ndarray:
    """The policy proportional to min(ρ̄ μ, π)."""
    weights = np.minimum(clip_rho * MU, PI)
    return weights / weights.sum(1, keepdims=True)


class Envs:
    """B copies of the MDP under μ, each reset by the step after its episode's end."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.integers(STATES, size=ENVS)
        self.over = np.zeros(ENVS, np.bool_)
        self._next, self._mu = NEXT.cumsum(-1), MU.cumsum(-1)

    def _draw(self, cumulative: np.ndarray) -> np.ndarray:
        uniform = self.rng.random((ENVS, 1))
        return np.minimum((uniform > cumulative).sum(1), cumulative.shape[1] - 1)

    def fragment(self) -> dict[str, np.ndarray]:
        """x_tm1, x_t, a_tm1, r_t and flags, (T, B) each; rewards of reset steps are not numbers."""
        rows = []
        for _ in range(STEPS):
            before, reset = self.state, self.over
            action = self._draw(self._mu[before])
            arrived = self._draw(self._next[before, action])
            terminated = ~reset & (self.rng.random(ENVS) < TERMINATION[before, action])
            truncated = ~reset & ~terminated & (self.rng.random(ENVS) < TRUNCATION)
            reward = np.where(reset, math.nan, REWARD[before, action])
            self.state = np.where(reset, self.rng.integers(STATES, size=ENVS), arrived)
            self.over = terminated | truncated
            rows.append((before, self.state, action, reward, terminated, truncated, ~reset))
        names = ("x_tm1", "x_t", "a_tm1", "r_t", "terminated_t", "truncated_t", "valid_t")
        return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def learned_values(
    clip_rho: float, *, lambda_: float = 1.0, ratio_one: bool = False, seed: int = 0
) -> np.ndarray:
    """Values after many updates towards V-trace targets, averaged over the second half of them."""
    envs, value, late = Envs(seed), np.zeros(STATES), []
    for update in range(UPDATES):
        f = envs.fragment()
        rho = (PI / MU)[f["x_tm1"], f["a_tm1"]]
        target, _ = vtrace(
            f["r_t"],
            value[f["x_tm1"]],
            value[f["x_t"]],
            np.ones_like(rho) if ratio_one else rho,
            f["terminated_t"],
            f["truncated_t"],
            gamma=GAMMA,
            lambda_=lambda_,
            clip_rho=clip_rho,
            valid_t=f["valid_t"],
        )
        visited, targets = f["x_tm1"][f["valid_t"]], target[f["valid_t"]]
        visits = np.bincount(visited, minlength=STATES)
        mean = np.bincount(visited, targets, minlength=STATES) / np.maximum(visits, 1)
        value = value + 0.2 * np.where(visits > 0, mean - value, 0.0)
        if update >= UPDATES // 2:
            late.append(value)
    return np.mean(late, axis=0)


def furthest(values: np.ndarray, clip_rho: float) -> float:
    """The largest distance of any state's value to the exact one."""
    return float(np.abs(values - exact_values(limited_policy(clip_rho))).max())


@pytest.mark.parametrize("clip_rho", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("lambda_", [1.0, 0.7])
def test_values_converge_to_those_of_the_limited_policy(clip_rho, lambda_):
    assert furthest(learned_values(clip_rho, lambda_=lambda_), clip_rho) < TOLERANCE


@pytest.mark.parametrize("clip_rho", [0.5, 1.0, 10.0])
def test_with_ratios_forced_to_one_they_do_not(clip_rho):
    """Then it is the behaviour policy that is valued, whatever the target policy is."""
    values = learned_values(clip_rho, ratio_one=True)
    assert furthest(values, clip_rho) > 3 * TOLERANCE
    np.testing.assert_allclose(values, exact_values(MU), atol=TOLERANCE)


def test_the_three_limits_are_told_apart():
    """The exact values differ by far more than the tolerance, so that each test above has sense."""
    exact = [exact_values(limited_policy(clip)) for clip in (0.5, 1.0, 10.0)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(exact[one] - exact[other]).max() > 2 * TOLERANCE
    np.testing.assert_allclose(limited_policy(1e9), PI)
