"""You will see a policy learn CartPole from fragments that two worker processes collect.

    python examples/08_fragment_collector.py

Each worker has a copy of the policy beside its envs: no message is sent for a step, and no worker
waits for the slowest. Each fragment says which version of the policy acted. With `backend="ray"`
the workers may be on other machines.
"""

import time
from functools import partial

import numpy as np

from hotloop.data import Fragment
from hotloop.envs import make_vec
from hotloop.rollout import FragmentCollector


class Linear:
    """Pushes right with probability σ(w · obs)."""

    def __init__(self) -> None:
        self.weights, self.rng = np.zeros(4), np.random.default_rng()

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)  # else both workers draw the same

    def load_weights(self, weights: np.ndarray) -> None:
        self.weights = weights

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        right = 1 / (1 + np.exp(-obs @ self.weights))
        return (self.rng.random(len(obs)) < right).astype(np.int64), {"right": right}


def ascent(f: Fragment) -> np.ndarray:
    """REINFORCE: E[(a − π) obs · advantage], the gradient of the return."""
    to_go, following = np.zeros_like(f.reward), np.zeros(f.spec.envs)
    for t in reversed(range(f.spec.steps)):
        following = f.reward[t] + 0.98 * following * ~(f.terminated[t] | f.truncated[t])
        to_go[t] = following
    advantage = (to_go - to_go.mean()) / (to_go.std() + 1e-8)
    return ((f.action - f.extras["right"]) * advantage)[..., None] * f.obs


if __name__ == "__main__":
    make_envs = partial(make_vec, "CartPole-v1", 16, backend="serial", autoreset_mode="same_step")
    policy, start, lengths = Linear(), time.perf_counter(), [0.0]
    with FragmentCollector(make_envs, policy, fragment_steps=256, num_workers=2) as collector:
        while np.mean(lengths[-10:]) < 300 and time.perf_counter() - start < 25:
            (fragment,) = collector.collect()
            policy.weights = policy.weights + 4.0 * ascent(fragment).mean((0, 1))
            version = collector.update(policy.weights)
            lengths.append(fragment.env_steps / max(1, fragment.episodes))
            if version % 20 == 0:
                print(f"update {version}: {np.mean(lengths[-10:]):.0f} steps an episode")
    rate = collector.counts.env_steps / (time.perf_counter() - start)
    print(f"{np.mean(lengths[-10:]):.0f} steps an episode, {rate:,.0f} env steps/s")
