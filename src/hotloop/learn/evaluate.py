"""Greedy evaluation: how good a policy is, apart from how it explores while it learns.

The mean over the last training episodes can pass while greedy play is far worse. So a policy is
evaluated by its likeliest actions, on episodes with seeds and envs of their own.
"""

import logging
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree
from hotloop.envs.ids import AnyEnv, make_env
from hotloop.errors import expect_whole

EPISODES = 20
# Training seeds its envs with seed, seed + 1, ...: these are far enough away.
FIRST_SEED = 1_000_000
# Half an hour of an Atari game at 60 frames a second, longer than any usual time limit.
MAX_STEPS = 108_000
_LOG = logging.getLogger("hotloop")


class Greedy(Protocol):
    """A policy with a likeliest action."""

    def greedy(self, obs: Tree) -> NDArray[Any]:
        """Return the likeliest action for each observation, trees of (B, ...) to (B, ...)."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Fixed episodes by which policies for one env are evaluated; made once, used often.

    max_steps: an episode that has not ended after so many steps counts with its return until
    then, and a warning is logged.
    """

    envs: tuple[AnyEnv, ...]
    first_seed: int = FIRST_SEED
    max_steps: int = MAX_STEPS

    @classmethod
    def of(
        cls, env_id: str, episodes: int = EPISODES, *, max_steps: int = MAX_STEPS
    ) -> "Evaluation":
        """Make `episodes` envs.

        Raises: TargetError if there is no such env, SettingError for numbers below 1.
        """
        expect_whole("evaluation: episodes", episodes, 1)
        expect_whole("evaluation: max_steps", max_steps, 1)
        return cls(tuple(make_env(env_id) for _ in range(episodes)), max_steps=max_steps)

    def __call__(self, policy: Greedy) -> NDArray[np.float64]:
        """Return the undiscounted return of each episode, (episodes,). Draws no random number."""
        returns = np.zeros(len(self.envs))
        layout = Layout.of(self.envs[0].observation_space)
        running = list(range(len(self.envs)))
        obs = [env.reset(seed=self.first_seed + i)[0] for i, env in enumerate(self.envs)]
        for _ in range(self.max_steps):
            # Only the episodes that still run are stepped, all in one forward pass.
            actions = policy.greedy(layout.stack([obs[i] for i in running]))
            still = []
            for i, action in zip(running, actions, strict=True):
                obs[i], reward, terminated, truncated, _ = self.envs[i].step(action)
                returns[i] += float(reward)
                if not (terminated or truncated):
                    still.append(i)
            running = still
            if not running:
                return returns
        _LOG.warning(
            "evaluation: %d of %d episodes had not ended after %d steps; what they had returned "
            "until then counts (mean %.6g). Give the env a time limit",
            len(running),
            len(self.envs),
            self.max_steps,
            returns[running].mean(),
        )
        return returns

    def close(self) -> None:
        """Close the envs."""
        for env in self.envs:
            env.close()
