"""Stacked frames are stored once and come back equal, bit for bit, over episodes' boundaries."""

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from hotloop.data import Layout
from hotloop.data.fragment import FragmentSpec
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, TargetError
from hotloop.rollout import StepCollector
from rollout.planted_envs import MODES, Stacked

NUMBER = Layout(np.dtype(np.float32), ())


def zeros(obs):
    return np.zeros(len(obs), np.int64)


def both_ways(make, steps, fragments, policy=zeros):
    """The same fragments with stacks stored whole and with every frame stored once."""
    whole, once = (
        StepCollector(make(), policy, fragment_steps=steps, frame_stack=stack, seed=3)
        for stack in (0, 4)
    )
    for _ in range(fragments):
        a, b = whole.collect(), once.collect()
        equal(a, b)
        buffers = []
        message = pickle.dumps(b, 5, buffer_callback=buffers.append)
        equal(a, pickle.loads(message, buffers=buffers))
    return a, b


def equal(a, b):
    for name in ("obs", "last_obs", "final_obs", "final_t", "final_b", "valid", "reward"):
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second, err_msg=name)
    for t in range(a.spec.steps):
        np.testing.assert_array_equal(a.next_obs(t), b.next_obs(t))


@pytest.mark.parametrize("mode", MODES)
def test_rebuilt_equal_in_every_autoreset_mode(mode):
    a, b = both_ways(lambda: SerialVectorEnv([Stacked] * 3, autoreset_mode=mode), 40, 3)
    assert a.episodes > 10
    assert b.nbytes < a.nbytes


def test_rebuilt_equal_in_groups():
    both_ways(lambda: SerialVectorEnv([Stacked] * 4, autoreset_mode="same_step", splits=2), 30, 3)


def test_frames_travel_once():
    """Where episodes are long, a quarter of the bytes and little more."""

    class Long(Stacked):
        def reset(self, **settings):
            obs = super().reset(**settings)
            self.left = 10_000
            return obs

    a, b = both_ways(lambda: SerialVectorEnv([Long] * 2, autoreset_mode="same_step"), 128, 2)
    frame = 6 * 5
    assert a.obs.nbytes == 128 * 2 * 4 * frame
    # One new frame a step; at the start of a fragment a stack for each env.
    assert b._counts[1] == 128 * 2 + 2 * 4


@pytest.mark.long
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
def test_rebuilt_equal_on_atari(mode):
    pytest.importorskip("ale_py")

    def make():
        env = gymnasium.make("ALE/Pong-v5", frameskip=1, max_episode_steps=60)
        return FrameStackObservation(AtariPreprocessing(env, noop_max=3), 4)

    a, b = both_ways(
        lambda: SyncVectorEnv([make] * 2, autoreset_mode=mode), 48, 2, lambda obs: np.array([2, 3])
    )
    assert a.episodes > 0
    assert b.nbytes < 0.45 * a.nbytes


def test_what_is_no_stack_is_refused():
    class Fresh(Stacked):
        def step(self, action):
            obs, *rest = super().step(action)
            self.frames = [self.frame() for _ in range(4)]
            return obs, *rest

    envs = SerialVectorEnv([Stacked, Fresh], autoreset_mode="same_step")
    collector = StepCollector(envs, zeros, fragment_steps=64, frame_stack=4, seed=0)
    with pytest.raises(TargetError, match=r"step \d+, column 1: expected the newest 3 frames"):
        collector.collect()


def test_a_final_observation_that_is_no_stack_is_refused():
    class Fresh(Stacked):
        def step(self, action):
            obs, reward, over, *rest = super().step(action)
            return (obs[::-1].copy() if over else obs), reward, over, *rest

    envs = SerialVectorEnv([Fresh], autoreset_mode="same_step")
    collector = StepCollector(envs, zeros, fragment_steps=64, frame_stack=4, seed=0)
    with pytest.raises(TargetError, match=r"column 0: expected the newest 3 frames"):
        collector.collect()


@pytest.mark.parametrize(
    ("space", "stack"),
    [
        (spaces.Box(0, 1, (4, 8, 8)), 3),
        (spaces.Box(0, 1, (1, 8)), 1),
        (spaces.Box(0, 1, (4,)), 4),
        (spaces.Dict({"a": spaces.Box(0, 1, (4, 8))}), 4),
    ],
    ids=str,
)
def test_observations_that_cannot_be_stacks_are_refused(space, stack):
    with pytest.raises(SettingError, match=rf"frame_stack={stack}: expected observations"):
        FragmentSpec(4, 2, Layout.of(space), NUMBER, frame_stack=stack)
