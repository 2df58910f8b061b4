"""Greedy evaluation on envs of every kind of observation, and of episodes that never end."""

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hotloop.errors import SettingError, TargetError
from hotloop.learn import ppo
from hotloop.learn.evaluate import Evaluation
from hotloop.learn.policies.policy import make_policy
from support.policies import IMAGE_FIRST, MIXED, masked

OBSERVATIONS = {
    "image": IMAGE_FIRST,
    "mixed": MIXED,
    "masked": masked(spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float64)]), 4),
    "masked image": masked(IMAGE_FIRST, 4),
}


class Planted(gymnasium.Env):
    """Any observations; an allowed action gives 1, a forbidden one is an error.

    Episodes last as many steps as their seed's last digit says, and one more; of seeds that end
    in 9 they never end.
    """

    action_space = spaces.Discrete(4)

    def __init__(self, space):
        self.observation_space = space

    def _observation(self):
        obs = self.observation_space.sample()
        self.allowed = np.ones(4, np.int8)
        if isinstance(obs, dict) and "action_mask" in obs:
            self.allowed = np.zeros(4, np.int8)
            self.allowed[[self.steps % 4, 3]] = 1
            obs["action_mask"] = self.allowed
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
            self.length = seed % 10 + 1
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        assert self.allowed[action], "a forbidden action"
        self.steps += 1
        over = self.steps == self.length and self.length < 10
        return self._observation(), 1.0, over, False, {}


@pytest.fixture(params=OBSERVATIONS)
def planted(request):
    """The id of an env with these observations, and their space."""
    space, env_id = OBSERVATIONS[request.param], "HotloopPlanted-v0"
    gymnasium.register(env_id, lambda: Planted(space))
    yield env_id, space
    del gymnasium.registry[env_id]


def test_every_kind_of_observation_is_evaluated(planted):
    env_id, space = planted
    evaluation = Evaluation.of(env_id, episodes=4)
    policy = make_policy(space, Planted.action_space, seed=3)
    for _ in range(2):  # the seeds are fixed, so that it repeats itself
        assert evaluation(policy).tolist() == [1, 2, 3, 4]
    evaluation.close()


def test_ppo_learns_from_every_kind_of_observation(planted):
    """Episodes that are cut, minibatches, and actions that the masks allow."""
    env_id, _ = planted
    gymnasium.registry[env_id].max_episode_steps = 3
    settings = ppo.PPOSettings(env_id=env_id, num_envs=2, fragment_steps=4, epochs=2, minibatches=2)
    learner = ppo.PPO(settings)
    before = learner.policy.flat.detach().clone()
    for _ in range(2):
        assert learner.iterate() == 8
    assert learner.policy.flat.isfinite().all()
    assert (learner.policy.flat != before).any()
    learner.envs.close()


def test_an_episode_that_never_ends_is_cut_and_said(caplog):
    env_id = "HotloopPlanted-v0"
    gymnasium.register(env_id, lambda: Planted(spaces.Discrete(2)))
    try:
        evaluation = Evaluation.of(env_id, episodes=10, max_steps=25)
        with caplog.at_level(logging.WARNING, "hotloop"):
            returns = evaluation(make_policy(spaces.Discrete(2), Planted.action_space))
    finally:
        del gymnasium.registry[env_id]
    assert returns.tolist() == [*range(1, 10), 25]
    [record] = caplog.records
    assert "1 of 10 episodes had not ended after 25 steps" in record.getMessage()
    assert "mean 25" in record.getMessage()
    caplog.clear()
    evaluation = Evaluation(evaluation.envs[:9], max_steps=9)  # the last one ends just in time
    assert evaluation(make_policy(spaces.Discrete(2), Planted.action_space)).sum() == 45
    assert not caplog.records


def test_messages():
    with pytest.raises(TargetError, match=r"'CartPole-v7'"):
        Evaluation.of("CartPole-v7")
    with pytest.raises(SettingError, match="evaluation: episodes: expected a whole number"):
        Evaluation.of("CartPole-v1", episodes=0)
    with pytest.raises(SettingError, match="evaluation: max_steps: expected a whole number"):
        Evaluation.of("CartPole-v1", max_steps=0)
