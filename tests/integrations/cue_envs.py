"""Envs for other libraries' learners: a course that is known in advance, and one to be learned."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hotloop.envs.serial import SerialVectorEnv


class Course(gymnasium.Env[Any, Any]):
    """Observes (number, episode, step); even episodes terminate, odd ones are truncated.

    Its number and not a seed says which episodes it has, and to reset it twice is to reset it once:
    so it is the same to libraries that seed and reset in different ways. With `nested` it observes
    the same as nested Dicts.
    """

    action_space = spaces.Discrete(3)

    def __init__(self, number: int, nested: bool = False) -> None:
        self.number, self.nested = number, nested
        self.episode, self.at = -1, 1
        vector = spaces.Box(-1e6, 1e6, (3,), np.float32)
        step = spaces.Box(-1e6, 1e6, (1,), np.float64)
        self.observation_space: Any = vector
        if nested:
            self.observation_space = spaces.Dict(
                all=vector, parts=spaces.Dict(step=step, pair=spaces.Box(-99, 99, (2, 1), np.int64))
            )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode += self.at > 0
        self.at = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        over = self.at == 1 + (7 * self.number + 5 * self.episode) % 6
        even = self.episode % 2 == 0
        reward = 100.0 * self.episode + self.at + 0.25 * int(action)
        return self.obs(), reward, over and even, over and not even, {}

    def obs(self) -> Any:
        vector = np.array([self.number, self.episode, self.at], np.float32)
        if not self.nested:
            return vector
        pair = np.array([[self.number], [self.episode]], np.int64)
        return {"all": vector, "parts": {"step": np.array([self.at], np.float64), "pair": pair}}


class Cue(gymnasium.Env[Any, Any]):
    """Shows one of three cues; an action earns 1 if it was that of the cue. Acting at random: 1/3.

    Episodes of 1 to 12 steps; half of them terminate, the others are truncated.
    """

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 13))
        self.terminates = bool(self.np_random.integers(2))
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        reward = float(int(action) == self.cue)
        self.left -= 1
        over = self.left == 0
        return self.obs(), reward, over and self.terminates, over and not self.terminates, {}

    def obs(self) -> Any:
        self.cue = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.cue]


def courses(nested: bool = False, mode: str = "same_step") -> SerialVectorEnv:
    """Two of them, as every worker has them."""
    return SerialVectorEnv(
        [lambda: Course(0, nested), lambda: Course(1, nested)], autoreset_mode=mode
    )


def cues() -> SerialVectorEnv:
    """Four of them."""
    return SerialVectorEnv([Cue] * 4, autoreset_mode="same_step")
