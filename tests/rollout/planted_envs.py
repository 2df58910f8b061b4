"""Envs whose every transition is known in advance, and policies that depend on one env only."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hotloop.envs.serial import SerialVectorEnv

MODES = [mode.name.lower() for mode in AutoresetMode]


def length_of(seed: int, episode: int) -> int:
    return 1 + (7 * seed + 5 * episode) % 6


class PlantedEnv(gymnasium.Env[Any, Any]):
    """Observes (seed, episode, step); even episodes terminate, odd ones are truncated."""

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.seed, self.episode, self.at = -1, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.at = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        over = self.at == length_of(self.seed, self.episode)
        even = self.episode % 2 == 0
        reward = 100.0 * self.episode + self.at + 0.25 * int(action)
        return self.obs(), reward, over and even, over and not even, {}

    def obs(self) -> Any:
        return np.array([self.seed, self.episode, self.at], np.float32)


def policy(obs: Any) -> tuple[Any, dict[str, Any]]:
    """The action is a function of one env's observation; so is what else is put out."""
    action = obs.sum(1).astype(np.int64) % 3
    return action, {"log_prob": (-obs[:, 2]).astype(np.float32), "state": obs[:, :2] * 2}


def pid_policy(obs: Any) -> tuple[Any, dict[str, Any]]:
    """`policy`, which also tells in which process it acts."""
    action, extras = policy(obs)
    return action, {**extras, "pid": np.full(len(obs), os.getpid())}


def truth(seed: int) -> Iterator[tuple[tuple[int, int, int], int, float, bool, bool]]:
    """(seed, episode, step), action, reward, terminated, truncated: for ever."""
    for episode in itertools.count():
        length = length_of(seed, episode)
        for at in range(length):
            action = (seed + episode + at) % 3
            over, even = at + 1 == length, episode % 2 == 0
            reward = 100.0 * episode + at + 1 + 0.25 * action
            yield (seed, episode, at), action, reward, over and even, over and not even


class Stacked(gymnasium.Env[Any, Any]):
    """Four stacked frames of noise; the first stack of an episode repeats its first frame."""

    observation_space = spaces.Box(0, 255, (4, 6, 5), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.frames = [self.frame()] * 4
        self.left = int(self.np_random.integers(1, 9))
        return np.stack(self.frames), {}

    def step(self, action: Any) -> Any:
        self.frames = [*self.frames[1:], self.frame()]
        self.left -= 1
        return np.stack(self.frames), 1.0, self.left == 0, False, {}

    def frame(self) -> Any:
        return self.np_random.integers(0, 256, (6, 5), dtype=np.uint8)


class Everything(gymnasium.Env[Any, Any]):
    """Nested observations with text, and nested actions."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-9, 9, (2,), np.float64),
            "pair": spaces.Tuple((spaces.Discrete(100), spaces.Text(8))),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.obs(), self.at + float(action[1].sum()), self.at == 3, False, {}

    def obs(self) -> Any:
        return {"place": np.full(2, self.at, np.float64), "pair": (self.at, "x" * self.at)}


class TwoRewards(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector env of another library: two envs with rewards (t, -t), episodes of three steps."""

    num_envs = 2
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  # as Gymnasium has it
    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.at = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        self.at += 1
        over = np.full(2, self.at % 3 == 0)
        final = np.full(2, None, object)
        final[:] = [np.full(1, 3, np.float32)] * 2
        infos = {"final_obs": final} if over.any() else {}
        reward = np.tile([self.at, -self.at], (2, 1))
        obs = np.full((2, 1), self.at % 3, np.float32)
        return obs, reward, over, np.zeros(2, np.bool_), infos


class LongIsGood(gymnasium.Env[Any, Any]):
    """Half of the episodes last 2 steps and return 0, half 20 and return 1: the mean is 0.5."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.good = bool(self.np_random.integers(2))
        self.left = 20 if self.good else 2
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        over = self.left == 0
        return np.zeros(1, np.float32), float(over and self.good), over, False, {}


class Faulty(PlantedEnv):
    """Raises or kills its process at the third episode of the env with a given seed."""

    def __init__(self, what: str, seed: int) -> None:
        super().__init__()
        self.what, self.bad_seed = what, seed

    def step(self, action: Any) -> Any:
        if self.seed == self.bad_seed and self.episode == 2:
            if self.what == "raise":
                raise ZeroDivisionError("the planted fault")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Gated(PlantedEnv):
    """With the seed 0, steps once the gate, a file, is there: slow for as long as is wanted."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.gate = Path(gate)

    def step(self, action: Any) -> Any:
        while self.seed == 0 and not self.gate.exists():
            time.sleep(0.001)
        return super().step(action)


def planted_vec(width: int, mode: str = "same_step", **settings: Any) -> SerialVectorEnv:
    return SerialVectorEnv([PlantedEnv] * width, autoreset_mode=mode, **settings)


def faulty(what: str, seed: int, width: int = 2) -> SerialVectorEnv:
    return SerialVectorEnv([partial(Faulty, what, seed)] * width, autoreset_mode="same_step")


def gated(gate: str) -> SerialVectorEnv:
    return SerialVectorEnv([partial(Gated, gate)] * 2, autoreset_mode="same_step")


class Counting:
    """Puts out how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, obs: Any) -> Any:
        self.calls += 1
        return np.zeros(len(obs), np.int64), {"calls": np.full(len(obs), self.calls)}


class Scaled:
    """Counts how often it is pickled; its weight is put out with every step."""

    pickled = 0

    def __init__(self) -> None:
        self.weight = 0.0

    def __reduce__(self) -> Any:
        Scaled.pickled += 1
        return Scaled, ()

    def load_weights(self, weights: Any) -> None:
        self.weight = weights["w"]

    def __call__(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.int64), {"weight": np.full(len(obs), self.weight)}


class Doubled(Scaled):
    """Another policy that takes the same weights."""

    def __reduce__(self) -> Any:
        return Doubled, ()

    def load_weights(self, weights: Any) -> None:
        self.weight = 2 * weights["w"]


class Weighted(Scaled):
    """Acts as the truth has it, and puts out its weight."""

    def __reduce__(self) -> Any:
        return Weighted, ()

    def __call__(self, obs: Any) -> Any:
        action, extras = policy(obs)
        return action, {**extras, "weight": np.full(len(obs), self.weight)}


def check_weights_behind_a_policy(collector: Any) -> None:
    """Weights of one policy, another policy, and its weights: all sent before a worker looks."""
    collector.collect()
    collector.update({"w": 1.0})
    collector.update(Doubled())
    assert collector.update({"w": 3.0}) == 3
    while (fragment := collector.collect()[0]).policy_version < 3:
        pass
    assert (fragment.extras["weight"] == 6.0).all()


def check_truth(fragments: Any, seeds: Any = None) -> dict[int, Any]:
    """Each worker's fragments, in order, hold what its envs are planted to do."""
    truths: dict[int, Any] = {}
    for fragment in fragments:
        for b, env_id in enumerate(fragment.env_ids.tolist()):
            seed = env_id if seeds is None else seeds[env_id]
            expected = truths.setdefault(env_id, truth(seed))
            for t in range(fragment.spec.steps):
                got = (
                    tuple(fragment.obs[t, b].astype(int).tolist()),
                    int(fragment.action[t, b]),
                    float(fragment.reward[t, b]),
                    bool(fragment.terminated[t, b]),
                    bool(fragment.truncated[t, b]),
                )
                assert got == next(expected)
    return truths


def worker_of(fragment: Any) -> int:
    return int(fragment.env_ids[0]) // 2
