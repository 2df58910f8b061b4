"""Greedy evaluation: what a policy can do, apart from how it explores while it learns.

The mean over the last training episodes is no proof: it can pass while greedy play is far worse.
So a policy is judged by its likeliest actions, on episodes of its own seeds, in envs of its own.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.envs.make import AnyEnv, make_env

EPISODES = 20
# Training seeds its envs with seed, seed + 1, ...: far enough away never to meet them.
FIRST_SEED = 1_000_000


class Greedy(Protocol):
    """A policy that can say its likeliest actions."""

    def greedy(self, obs: NDArray[np.float32]) -> NDArray[np.generic]:
        """The likeliest action for each observation, (B, ...) to (B, ...)."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Fixed episodes to judge policies of one env by; made once, used often."""

    envs: tuple[AnyEnv, ...]
    first_seed: int = FIRST_SEED

    @classmethod
    def of(cls, env_id: str, episodes: int = EPISODES) -> "Evaluation":
        """`episodes` episodes of `env_id`. Raises: TargetError if there is no such env."""
        return cls(tuple(make_env(env_id) for _ in range(episodes)))

    def __call__(self, policy: Greedy) -> NDArray[np.float64]:
        """The return of each episode, undiscounted, shape (episodes,). Draws no random number."""
        returns = np.zeros(len(self.envs))
        running = list(range(len(self.envs)))
        obs = np.stack(
            [env.reset(seed=self.first_seed + i)[0] for i, env in enumerate(self.envs)],
            dtype=np.float32,
        )
        while running:
            # Only the episodes that still run are stepped, all in one forward pass.
            still = []
            for i, action in zip(running, policy.greedy(obs[running]), strict=True):
                obs[i], reward, terminated, truncated, _ = self.envs[i].step(action)
                returns[i] += float(reward)
                if not (terminated or truncated):
                    still.append(i)
            running = still
        return returns

    def close(self) -> None:
        """Close the envs."""
        for env in self.envs:
            env.close()
