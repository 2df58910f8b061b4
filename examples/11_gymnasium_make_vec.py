"""You will see a policy learn to balance a pole: the mean return rises.

    python examples/11_gymnasium_make_vec.py
    hotloop benchmark examples/11_gymnasium_make_vec.py --seconds 2

The vector env comes from Gymnasium's own `make_vec` and carries Gymnasium's own wrapper; which
engine steps the envs is an argument: "serial", "process", "ray", or "auto" to have it measured.
"""

import gymnasium
import numpy as np
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import hotloop

envs = gymnasium.make_vec(
    "hotloop.envs:hotloop/Vec-v0",
    num_envs=32,
    env_id="CartPole-v1",
    backend="serial",
    autoreset_mode="same_step",
)
envs = RecordEpisodeStatistics(envs)
rng, weights = np.random.default_rng(0), np.zeros(4)
scale = np.array([2.4, 2.0, 0.2, 2.0])
obs, _ = envs.reset(seed=0)
for update in hotloop.iterations(range(40), unit="env steps", units=lambda _: 100 * envs.num_envs):
    features, surprises, ends = [], [], []
    for _ in range(100):
        x = obs / scale
        right = 1 / (1 + np.exp(-x @ weights))
        action = (rng.random(len(x)) < right).astype(np.int64)
        obs, _, terminated, truncated, _ = envs.step(action)
        features.append(x), surprises.append(action - right), ends.append(terminated | truncated)
    # Reward to go counts the steps left; what lies beyond the last step is not known.
    to_go = np.zeros((101, envs.num_envs))
    for t in reversed(range(100)):
        to_go[t] = 1 + np.where(ends[t], 0, 0.97 * to_go[t + 1])
    advantage = to_go[:-1] - to_go[:-1].mean()
    gradient = np.einsum("tb,tb,tbi->i", advantage, surprises, features)
    weights += 0.5 * gradient / np.linalg.norm(gradient)
    if update % 9 == 0:
        print(f"update {update:2d}  mean return {np.mean(envs.return_queue):6.1f}")
envs.close()
