"""Greedy evaluation: how good a policy is, apart from how it explores while it learns.

The mean over the last training episodes can pass while greedy play is far worse. So a policy is
evaluated by its likeliest actions, on episodes with seeds and envs of their own.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.envs.ids import AnyEnv, make_env

EPISODES = 20
# Training seeds its envs with seed, seed + 1, ...: these are far enough away.
FIRST_SEED = 1_000_000


class Greedy(Protocol):
    """A policy with a likeliest action."""

    def greedy(self, obs: NDArray[np.float32]) -> NDArray[np.generic]:
        """Return the likeliest action for each observation, (B, ...) to (B, ...)."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Fixed episodes by which policies for one env are evaluated; made once, used often."""

    envs: tuple[AnyEnv, ...]
    first_seed: int = FIRST_SEED

    @classmethod
    def of(cls, env_id: str, episodes: int = EPISODES) -> "Evaluation":
        """Make `episodes` envs. Raises: TargetError if there is no such env."""
        return cls(tuple(make_env(env_id) for _ in range(episodes)))

    def __call__(self, policy: Greedy) -> NDArray[np.float64]:
        """Return the undiscounted return of each episode, (episodes,). Draws no random number."""
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
