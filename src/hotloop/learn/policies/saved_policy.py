"""The policy of a checkpoint, without the learner: how good it is, played greedily."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from hotloop.envs.ids import AnyEnv, make_env
from hotloop.errors import expect_whole
from hotloop.learn.checkpoint import Checkpoint
from hotloop.learn.evaluate import EPISODES, FIRST_SEED, Evaluation
from hotloop.learn.learner import policy_for
from hotloop.learn.policies.policy import Policy
from hotloop.learn.state import expect_alike


@dataclass(frozen=True)
class GreedyEpisodes:
    """Episodes that a policy has played by its likeliest actions, (K,) each."""

    returns: NDArray[np.float64]  # undiscounted
    lengths: NDArray[np.int64]  # steps


def saved_policy(checkpoint: Checkpoint) -> Policy:
    """Make the policy of a checkpoint.

    Raises: TargetError if its env does not exist here; CheckpointError if its parameters do not
    fit the env's spaces.
    """
    env = make_env(checkpoint.settings.env_id)
    try:
        policy = policy_for(checkpoint.settings, env.observation_space, env.action_space)
    finally:
        env.close()
    state: Any = checkpoint.state.get("policy")
    expect_alike(state, policy.state_dict(), "policy")
    policy.load_state_dict(state)
    return policy


def evaluate(
    checkpoint: Checkpoint, *, episodes: int = EPISODES, seed: int = FIRST_SEED
) -> GreedyEpisodes:
    """Play a policy greedily. seed: of the first episode; the next one has the next number.

    Raises: SettingError for numbers that do not fit; as `saved_policy`.
    """
    expect_whole("episodes", episodes, 1)
    expect_whole("seed", seed, 0)
    policy = saved_policy(checkpoint)
    evaluation = Evaluation.of(checkpoint.settings.env_id, episodes)
    counted = tuple(_StepCount(env) for env in evaluation.envs)
    evaluation = dataclasses.replace(evaluation, envs=counted, first_seed=seed)
    try:
        returns = evaluation(policy)
    finally:
        evaluation.close()
    return GreedyEpisodes(returns, np.array([env.steps for env in counted], np.int64))


class _StepCount(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of its only episode."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.env.step(action)
