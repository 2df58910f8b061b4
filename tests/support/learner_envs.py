"""Envs for learners, also for those whose actors are other processes, which import this module.

`env_id("Bandit")` is the id of a class of this file. What a test plants in all processes at once
it says in environment variables: worker processes inherit them.
"""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

GATE = "HOTLOOP_TEST_GATE"
"""A file; an env of seed `FIRST_SEED` steps once it is there."""
STEPS = "HOTLOOP_TEST_STEPS"
"""A file to which every step of a `Counted` adds one byte."""
FIRST_SEED = 1


def env_id(name: str) -> str:
    """The id under which workers find the class of that name."""
    return f"{__name__}:Hotloop{name}-v0"


class Bandit(gymnasium.Env[Any, Any]):
    """Observes one of three contexts; the action of the same number earns 1, others nothing."""

    observation_space: Any = spaces.Box(0, 1, (3,), np.float32)
    action_space: Any = spaces.Discrete(3)
    length = 10
    """Steps of an episode, all of which the best policy is paid for."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed
        self.at = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        reward = self.reward(action)
        return self.obs(), reward, self.at == self.length, False, {}

    def obs(self) -> Any:
        self.context = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.context]

    def reward(self, action: Any) -> float:
        return float(action == self.context)


class Counted(Bandit):
    """Adds a byte to a file in every step."""

    def __init__(self) -> None:
        self.file = os.open(os.environ[STEPS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def step(self, action: Any) -> Any:
        os.write(self.file, b".")
        return super().step(action)

    def close(self) -> None:
        os.close(self.file)


class Gated(Bandit):
    """The env of the first seed steps once the gate is there."""

    def step(self, action: Any) -> Any:
        while self.seed == FIRST_SEED and not Path(os.environ[GATE]).exists():
            time.sleep(0.001)
        return super().step(action)


class NotANumber(Bandit):
    """Its fifth reward of every episode is not a number."""

    def reward(self, action: Any) -> float:
        return float("nan") if self.at == 5 else super().reward(action)


class Infinite(Bandit):
    """Its fifth reward of every episode is infinite."""

    def reward(self, action: Any) -> float:
        return float("inf") if self.at == 5 else super().reward(action)


class Shuffled(Bandit):
    """Pays as often as the `Bandit` pays for actions at random, whatever the action is."""

    def reward(self, action: Any) -> float:
        return float(self.np_random.integers(3) == 0)


class Raises(Bandit):
    """Raises in the third episode of the env of the first seed."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.seed == FIRST_SEED and self.episodes == 3:
            raise ZeroDivisionError("the planted fault")
        return super().step(action)


class ManyActions(Bandit):
    """A walk in the plane, two actions at a time; ends at a border, and is cut after 7 steps."""

    observation_space = spaces.Box(-50, 50, (2,), np.float64)
    action_space = spaces.MultiDiscrete([3, 2])

    def obs(self) -> Any:
        if self.at == 0:
            self.place = self.np_random.normal(size=2)
        return self.place.copy()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.at += 1
        self.place = self.place + self.move(action) + 0.1 * self.np_random.normal(size=2)
        over = bool(np.abs(self.place).max() > 2.5)
        return self.obs(), float(1 - np.square(self.place).sum()), over, self.at == 7, {}

    def move(self, action: Any) -> Any:
        return np.asarray(action, np.float64) - [1.0, 0.5]


class OneAction(ManyActions):
    """The walk with four actions."""

    action_space = spaces.Discrete(4)

    def move(self, action: Any) -> Any:
        return np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])[action]


class AnyMove(ManyActions):
    """The walk with actions of two numbers."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def move(self, action: Any) -> Any:
        return 0.5 * np.asarray(action, np.float64)


class Switches(ManyActions):
    """The walk with two switches."""

    action_space = spaces.MultiBinary(2)


class Pixels(Bandit):
    """The context as an image."""

    observation_space = spaces.Box(0, 255, (3, 36, 36), np.uint8)

    def obs(self) -> Any:
        context = super().obs()
        return np.broadcast_to((255 * context).astype(np.uint8)[:, None, None], (3, 36, 36))


class Mixed(Bandit):
    """The context as an image, beside numbers."""

    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (3, 36, 36), np.uint8),
        speed=spaces.Box(-1, 1, (2,), np.float64),
        gear=spaces.Discrete(3),
    )

    def obs(self) -> Any:
        context = super().obs()
        camera = np.broadcast_to((255 * context).astype(np.uint8)[:, None, None], (3, 36, 36))
        return {"camera": camera, "speed": np.zeros(2), "gear": self.context}


class Masked(Bandit):
    """The context, and which two of three actions are allowed: never that of number at % 3."""

    observation_space = spaces.Dict(
        observation=spaces.Box(0, 1, (3,), np.float32), action_mask=spaces.MultiBinary(3)
    )

    def obs(self) -> Any:
        context = super().obs()
        self.allowed = np.arange(3) != self.at % 3
        return {"observation": context, "action_mask": self.allowed.astype(np.int8)}

    def step(self, action: Any) -> Any:
        assert self.allowed[action]
        return super().step(action)


class Words(Bandit):
    """Observations that no policy takes."""

    observation_space = spaces.Text(8)

    def obs(self) -> Any:
        return "word"


class TwoStates(Bandit):
    """Two states; action 1 leaves for the other one, action 0 stays. State 1 earns 1 a step."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    end = 0.1
    """Probability that a step ends the episode, and also that it cuts it."""

    def obs(self) -> Any:
        if self.at == 0:
            self.state = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.state]

    def step(self, action: Any) -> Any:
        self.at += 1
        reward = float(self.state)
        self.state = self.state ^ int(action)
        drawn = self.np_random.random()
        return self.obs(), reward, drawn < self.end, self.end <= drawn < 2 * self.end, {}


class Numbered(Bandit):
    """Observes (seed, episode, step); the reward says the same. Odd episodes are cut."""

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
    episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode += 1
        return super().reset(seed=seed)

    def obs(self) -> Any:
        return np.array([self.seed, self.episode, self.at], np.float32)

    def step(self, action: Any) -> Any:
        self.at += 1
        over = self.at == 1 + (7 * self.seed + 5 * self.episode) % 6
        even = self.episode % 2 == 0
        reward = self.episode + self.at / 8 + int(action) / 1024
        return self.obs(), reward, over and even, over and not even, {}


for _made in (
    *(Bandit, Counted, Gated, NotANumber, Infinite, Raises, Pixels, Mixed, Masked, Words),
    *(OneAction, ManyActions, AnyMove, Switches, TwoStates, Numbered, Shuffled),
):
    gymnasium.register(f"Hotloop{_made.__name__}-v0", _made)
