"""Envs for trainings that are interrupted or killed: one says how far it is, one pays no number."""

from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Slow(gymnasium.Env):
    """Goes nowhere; makes the file `stepping` once it has been stepped for a while."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 400:
            Path("stepping").touch()
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action), False, False, {}


class NanReward(Slow):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self.steps > 40 else reward, *rest


class Words(Slow):
    """Observations that no policy takes."""

    observation_space = spaces.Text(3)


gymnasium.register("Slow-v0", entry_point=Slow, max_episode_steps=10)
gymnasium.register("NanReward-v0", entry_point=NanReward, max_episode_steps=10)
gymnasium.register("Words-v0", entry_point=Words, max_episode_steps=10)
