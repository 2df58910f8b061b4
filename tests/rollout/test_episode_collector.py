"""EpisodeCollector: whole episodes, as planted, and no preference for short ones."""

import numpy as np
import pytest

from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError
from hotloop.rollout import EpisodeCollector, StepCollector
from rollout.planted_envs import (
    MODES,
    Everything,
    LongIsGood,
    length_of,
    planted_vec,
    policy,
    truth,
)


@pytest.mark.parametrize("mode", MODES)
def test_planted_episodes(mode):
    collector = EpisodeCollector(planted_vec(3, mode), policy, seed=4, chunk_steps=7)
    episodes = collector.collect(11)
    assert [episode.env_id for episode in episodes] == [0] * 4 + [1] * 4 + [2] * 3
    truths = [truth(4 + b) for b in range(3)]
    numbers = [0, 0, 0]
    for episode in episodes:
        b = episode.env_id
        seed, number = 4 + b, numbers[b]
        numbers[b] += 1
        assert len(episode) == length_of(seed, number)
        expected = [next(truths[b]) for _ in range(len(episode))]
        assert episode.obs[:-1].astype(int).tolist() == [list(e[0]) for e in expected]
        assert episode.obs[-1].tolist() == [seed, number, len(episode)]
        assert episode.action.tolist() == [e[1] for e in expected]
        assert episode.reward.tolist() == [e[2] for e in expected]
        assert episode.total == sum(e[2] for e in expected)
        assert (episode.terminated, episode.truncated) == expected[-1][3:]
        np.testing.assert_array_equal(episode.extras["log_prob"], -episode.obs[:-1, 2])
        assert episode.versions.tolist() == [0] * len(episode)
    assert collector.env_steps >= sum(map(len, episodes))


def test_every_call_begins_new_episodes():
    collector = EpisodeCollector(planted_vec(2), policy, seed=4, chunk_steps=50)
    first = collector.collect(2)
    second = collector.collect(2)
    assert all(episode.obs[0, 2] == 0 for episode in first + second)
    assert second[0].obs[0, 1] > first[0].obs[0, 1]


def test_every_kind_of_space():
    def act(obs):
        here = obs["pair"][0]
        return (here % 4, np.zeros((len(here), 2), np.float32)), {}

    envs = SerialVectorEnv([Everything] * 2, autoreset_mode="next_step")
    episodes = EpisodeCollector(envs, act, chunk_steps=2).collect(4)
    for episode in episodes:
        assert episode.obs["pair"][1].tolist() == ["", "x", "xx", "xxx"]
        assert episode.obs["place"][:, 0].tolist() == [0, 1, 2, 3]
        assert episode.action[0].tolist() == [0, 1, 2]
        assert episode.total == 6


def zeros(obs):
    return np.zeros(len(obs), np.int64)


def test_means_are_not_biased_towards_short_episodes():
    """Return and length go together; the true mean is 0.5."""
    envs = SerialVectorEnv([LongIsGood] * 20, autoreset_mode="same_step")
    episodes = EpisodeCollector(envs, zeros, seed=0, chunk_steps=64).collect(600)
    mean = np.mean([episode.total for episode in episodes])
    error = 0.5 / np.sqrt(600)
    assert abs(mean - 0.5) < 4 * error

    # The control: of the same envs, the first n that end, n of them again and again.
    first_finished = []
    for seed in range(30):
        envs = SerialVectorEnv([LongIsGood] * 20, autoreset_mode="same_step")
        fragment = StepCollector(envs, zeros, fragment_steps=64, seed=seed * 20).collect()
        first_finished += fragment.endings["return"][:20].tolist()
    assert len(first_finished) == 600
    assert np.mean(first_finished) < 0.5 - 10 * error


def test_messages():
    with pytest.raises(SettingError, match="n: expected a number above 0, got 0"):
        EpisodeCollector(planted_vec(2), policy).collect(0)
