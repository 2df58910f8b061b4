"""You will see env steps a second of a collector, what its fragments hold, and what holds it back.

    python examples/07_step_collector.py
    hotloop simplify examples/07_step_collector.py:make_loop --budget 10

A `StepCollector` steps a vector env with a policy and fills one fragment, T steps of B envs, over
and over. Where the vector env is split, it steps one half while the policy computes for the other.
"""

import time

import numpy as np

import hotloop
from hotloop.envs import make_vec
from hotloop.rollout import StepCollector


class Balance:
    """Pushes the cart to the side to which the pole falls, with some noise."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        falling = obs[:, 2] + 0.5 * obs[:, 3]
        right = 1 / (1 + np.exp(-20 * falling))
        action = (self.rng.random(len(obs)) < right).astype(np.int64)
        return action, {"log_prob": np.log(np.where(action == 1, right, 1 - right))}


def make_collector() -> StepCollector:
    envs = make_vec("CartPole-v1", 16, backend="serial", autoreset_mode="same_step", splits=2)
    return StepCollector(envs, Balance(), fragment_steps=128, seed=0)


def make_loop() -> hotloop.Loop:
    collector = make_collector()
    return hotloop.Loop(
        body=lambda: collector.collect().env_steps, unit="env steps", state=collector.state
    )


if __name__ == "__main__":
    collector = make_collector()
    start = time.perf_counter()
    while time.perf_counter() - start < 2:
        fragment = collector.collect()
    print(f"{collector.counts.env_steps / (time.perf_counter() - start):,.0f} env steps/s")
    print(collector.counts)
    print(collector.reason)
    print(f"a fragment: obs {fragment.obs.shape}, {fragment.episodes} episodes ended in it")
    print(f"mean return of these: {fragment.episode_returns.mean():.0f}")
