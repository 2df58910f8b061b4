"""An env of a user's own; it makes a file once a sweep has measured it in this process."""

import multiprocessing
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

# Longer than a round, so each round is one step to wake up and one that is measured.
STEP_S = 0.31
STEPS_UNTIL_MEASURED = 4  # one to prepare, one round of two, and the first of the next round


class SlowEnv(gymnasium.Env):
    """Waits."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if multiprocessing.parent_process() is None and self.steps >= STEPS_UNTIL_MEASURED:
            Path("measuring").touch()
        time.sleep(STEP_S)
        return np.zeros(1, np.float32), 0.0, False, False, {}


gymnasium.register("Slow-v0", entry_point=SlowEnv)
