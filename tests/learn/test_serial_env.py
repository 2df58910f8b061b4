"""The serial vector env against Gymnasium's own, and its refusals."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs import SerialVectorEnv, make_env
from hotloop.errors import TargetError


class Countdown(gymnasium.Env):
    """Ends or is cut after a few steps, with an `info` of every shape an env may give."""

    observation_space = spaces.Box(-10, 10, (2, 3), np.float64)

    def __init__(self, action_space, seed_offset=0):
        self.action_space = action_space
        self.left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 6))
        return self.np_random.normal(size=(2, 3)), {"left": self.left}

    def step(self, action):
        self.left -= 1
        info = {"total": float(np.sum(action)), "nested": {"left": self.left}}
        obs = self.np_random.normal(size=(2, 3)) + np.sum(action)
        return obs, float(obs[0, 0]), self.left == 0, self.left == 1, info


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert got.keys() == expected.keys()
        for key in got:
            assert_same(got[key], expected[key])
    elif isinstance(got, tuple):
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(got, np.ndarray):
        assert got.dtype == expected.dtype
        if got.dtype == object:
            for one, other in zip(got, expected, strict=True):
                assert_same(one, other)
        else:
            np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.MultiDiscrete([2, 4]),
    spaces.MultiBinary(3),
]
MAKERS = [partial(Countdown, space) for space in ACTIONS] + [
    partial(make_env, env_id) for env_id in ("CartPole-v1", "Pendulum-v1", "MountainCar-v0")
]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: str(m.args[0]))
def test_engine_equivalence(maker):
    ours = SerialVectorEnv([maker] * 4)
    theirs = SyncVectorEnv([maker] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    ours.action_space.seed(3)
    assert_same(ours.reset(seed=7), theirs.reset(seed=7))
    ended = 0
    for _ in range(220):
        action = ours.action_space.sample()
        step = ours.step(action)
        assert_same(step, theirs.step(action))
        ended += int((step[2] | step[3]).sum())
    assert ended > 0
    assert_same(ours.reset(), theirs.reset())
    ours.close()
    theirs.close()


def test_returned_arrays_are_the_callers():
    envs = SerialVectorEnv([partial(make_env, "CartPole-v1")] * 2)
    first = envs.reset(seed=0)[0]
    kept = first.copy()
    second = envs.step(np.array([0, 1]))[0]
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
    envs.close()


def test_messages():
    with pytest.raises(TargetError, match=r"'CartPol-v1': .* did you mean 'CartPole-v1'\?"):
        make_env("CartPol-v1")
    with pytest.raises(TargetError, match=r"no_such_package:Env-v0"):
        make_env("no_such_package:Env-v0")
    with pytest.raises(TargetError, match=r"observations: expected one Box, got Discrete"):
        SerialVectorEnv([partial(make_env, "FrozenLake-v1")])
    with pytest.raises(TargetError, match=r"at least one env"):
        SerialVectorEnv([])
    with pytest.raises(TargetError, match=r"action space of env 1"):
        SerialVectorEnv([MAKERS[0], MAKERS[3]])
