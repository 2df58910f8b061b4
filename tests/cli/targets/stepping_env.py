"""An env that makes a file once a worker process has stepped it for a while."""

import multiprocessing
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class SteppingEnv(gymnasium.Env):
    """Goes nowhere."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if multiprocessing.parent_process() is not None and self.steps == 100:
            Path("stepping").touch()
        return np.zeros(1, np.float32), 0.0, False, False, {}


gymnasium.register("Stepping-v0", entry_point=SteppingEnv, max_episode_steps=5)
