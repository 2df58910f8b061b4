"""Atari games as learners see them: shapes, frames, and an actor that plays."""

import gymnasium
import numpy as np
import pytest

from hotloop.envs import make_vec
from hotloop.envs.ids import env_spec, make_env
from hotloop.rollout import StepCollector

pytest.importorskip("ale_py")

PONG = "hotloop.integrations.atari:Atari84/Pong-v5"


def test_a_game_is_four_grey_frames() -> None:
    env = make_env(PONG)
    obs, _ = env.reset(seed=1)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert obs.shape == (4, 84, 84)
    for _ in range(3):
        before = obs
        obs, _, _, _, _ = env.step(env.action_space.sample())
        np.testing.assert_array_equal(obs[:3], before[1:])
    env.close()


def test_every_game_of_version_5_has_its_twin() -> None:
    env_spec(PONG)  # registers
    games = {name[4:] for name in gymnasium.registry if name.startswith("ALE/") and "-v5" in name}
    twins = {name[8:] for name in gymnasium.registry if name.startswith("Atari84/")}
    assert twins == games
    assert len(games) > 100


def test_a_step_counts_four_frames_and_frames_are_stored_once() -> None:
    envs = make_vec(PONG, 2, backend="serial", autoreset_mode="same_step")
    collector = StepCollector(
        envs, lambda obs: np.zeros(len(obs), np.int64), fragment_steps=8, seed=0, frame_stack=4
    )
    fragment = collector.collect()
    assert fragment.obs.shape == (8, 2, 4, 84, 84)
    assert fragment.frames == 4 * 16
    assert fragment.nbytes < fragment.obs.nbytes / 2
    envs.close()
