"""Envs of any space, whose every returned bit depends on seed, step and the action as it came."""

import copy
import zlib

import gymnasium
import numpy as np
from gymnasium import spaces

INFOS = ("none", "numbers", "arrays", "nested", "sometimes")


class Words(gymnasium.Space):
    """A space of one's own, without shape: lists of words."""

    def __init__(self, words=("a", "bc", "def")):
        super().__init__(None, None)
        self.words = words

    def sample(self, mask=None, probability=None):
        count = int(self.np_random.integers(0, 4))
        return [self.words[k] for k in self.np_random.integers(0, len(self.words), count)]

    def contains(self, x):
        return isinstance(x, list) and all(word in self.words for word in x)

    def __eq__(self, other):
        return isinstance(other, Words) and self.words == other.words


def number_of(action):
    """A number of an action's bits and types."""
    if isinstance(action, dict):
        parts = [(key, number_of(part)) for key, part in sorted(action.items())]
    elif isinstance(action, tuple | list):
        parts = [number_of(part) for part in action]
    elif isinstance(action, np.ndarray):
        return zlib.crc32(f"{action.dtype}{action.shape}".encode() + action.tobytes())
    elif isinstance(action, int | np.integer):
        return int(action)
    else:
        parts = action
    return zlib.crc32(repr(parts).encode())


class Sampled(gymnasium.Env):
    """Draws what it returns from its spaces; see above."""

    def __init__(self, observation_space, action_space, length=3, infos="none", rewards=()):
        self.observation_space = observation_space
        self.action_space = action_space
        self.length, self.infos = length, infos
        self._source = copy.deepcopy(observation_space)
        if rewards:
            self.reward_space = spaces.Box(-1, 1, rewards, np.float32)
        self._rewards = rewards

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._source.seed(int(self.np_random.integers(2**31)))
        self.steps, self.ends_at = 0, int(self.np_random.integers(1, 2 * self.length))
        self.last = 0
        info = self._info()
        if options:
            info["options"] = sorted(options)
        return self._source.sample(), info

    def step(self, action):
        self.steps += 1
        self.last = number_of(action)
        reward = (self.last % 1000) / 7 + float(self.np_random.random())
        if self._rewards:
            reward = np.full(self._rewards, reward, np.float32)
        over = self.steps >= self.ends_at
        kind = int(self.np_random.integers(3))
        obs = self._source.sample()
        return obs, reward, over and kind != 1, over and kind != 0, self._info()

    def _info(self):
        draw = self.np_random
        if self.infos == "none":
            return {}
        info = {"steps": self.steps, "share": float(draw.random()), "last": self.last}
        if self.infos == "arrays":
            info |= {"place": draw.normal(size=(2, 3)).astype(np.float32), "word": "x" * self.steps}
        if self.infos == "nested":
            info |= {"a": {"b": {"c": float(draw.random())}, "flag": self.steps % 2 == 0}}
        if self.infos == "sometimes" and draw.random() < 0.6:
            return {"rare": float(draw.random())} if draw.random() < 0.5 else {}
        return info
