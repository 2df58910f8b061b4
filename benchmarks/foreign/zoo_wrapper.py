"""An env wrapper for a training by RL Zoo: it ranks all observations so far after each step."""

import gymnasium as gym
import numpy as np

KEPT = 1_000


class Ranked(gym.Wrapper):
    """Tells where each observation stands among the last ones, which nobody asks for."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = np.zeros((KEPT, 4), np.float32)
        self.count = 0

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.seen[self.count % KEPT] = obs
        self.count += 1
        info["rank"] = np.argsort(self.seen, axis=0).argsort(axis=0)[(self.count - 1) % KEPT]
        return obs, reward, terminated, truncated, info
