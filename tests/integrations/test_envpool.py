"""EnvPool behind Gymnasium's contract: seeds, autoreset, types, infos, batches, refusals."""

import pickle
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from hotloop.envs.process import ProcessVectorEnv
from hotloop.errors import SettingError, ShapeError, StateError, TargetError
from hotloop.integrations.envpool import EnvPoolVectorEnv, envpool_vector_env

pytest.importorskip("envpool")
make = partial(envpool_vector_env, num_threads=1)


def trajectory(envs, seed, steps=40):
    envs.reset(seed=seed)
    rng = np.random.default_rng(0)
    return np.array([envs.step(rng.integers(0, 2, envs.num_envs))[0] for _ in range(steps)])


def test_next_step_autoreset():
    envs = make("CartPole-v1", 3, max_episode_steps=4)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert envs.observation_space.shape == (3, 4)
    assert envs.action_space == gymnasium.spaces.MultiDiscrete([2, 2, 2])
    obs, infos = envs.reset(seed=5)
    assert infos["elapsed_step"].tolist() == [0, 0, 0]
    told = []
    for _ in range(6):
        obs, reward, terminated, truncated, infos = envs.step(np.array([0, 1, 0]))
        told.append((reward[0], terminated[0], truncated[0], infos["elapsed_step"][0]))
    assert told[2:] == [
        (1, False, False, 3),
        (1, False, True, 4),
        (0, False, False, 0),
        (1, False, False, 1),
    ]
    assert list(infos) == ["elapsed_step", "_elapsed_step"]
    assert infos["_elapsed_step"].tolist() == [True] * 3
    assert (obs.dtype, reward.dtype, terminated.dtype) == (np.float32, np.float64, np.bool_)
    envs.close()
    envs.close()


def test_seeds_given_to_reset_hold():
    envs = make("CartPole-v1", 3, seed=5)
    plain = trajectory(envs, None)
    np.testing.assert_array_equal(trajectory(envs, 5), plain)
    np.testing.assert_array_equal(trajectory(make("CartPole-v1", 3), 5), plain)
    np.testing.assert_array_equal(trajectory(envs, [5, 6, 7]), plain)
    assert not np.array_equal(trajectory(envs, 6), plain)
    assert not np.array_equal(trajectory(envs, None), trajectory(envs, None))
    start = make("CartPole-v1", 2).reset(seed=6)[0]
    np.testing.assert_array_equal(start, envs.reset(seed=5)[0][1:])


def test_a_pool_that_was_not_used_is_not_built_again():
    envs = make("CartPole-v1", 2, seed=9)
    pool = envs._pool
    first = envs.reset(seed=9)[0]
    assert envs._pool is pool
    envs.step(np.array([0, 1]))
    np.testing.assert_array_equal(envs.reset(seed=9)[0], first)
    assert envs._pool is not pool


def test_a_reset_of_some_envs():
    envs = make("CartPole-v1", 3, max_episode_steps=2)
    envs.reset(seed=0)
    envs.step(np.array([0, 1, 0]))
    before = envs.step(np.array([0, 1, 0]))[0]
    kept = before.copy()
    mask = np.array([True, False, True])
    obs, infos = envs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(before, kept)
    assert (np.abs(obs[mask]) <= 0.05).all()
    np.testing.assert_array_equal(obs[1], before[1])
    assert infos["_elapsed_step"].tolist() == mask.tolist()
    _, reward, _, _, infos = envs.step(np.array([0, 1, 0]))
    assert infos["elapsed_step"].tolist() == [1, 0, 1]  # only the one that was left autoresets
    assert reward.tolist() == [1, 0, 1]


@pytest.mark.parametrize("task", ["FrozenLake-v1", "Pendulum-v1", "Blackjack-v1"])
def test_types_are_those_of_the_spaces(task):
    envs = make(task, 2, seed=1)
    envs.action_space.seed(0)
    obs, _ = envs.reset()
    for _ in range(20):
        assert obs.dtype == envs.single_observation_space.dtype
        assert envs.observation_space.contains(obs)
        obs, *_ = envs.step(envs.action_space.sample())


def test_dict_observations():
    envs = make("CartpoleBalance-v1", 2, seed=1)
    assert set(envs.single_observation_space.spaces) == {"position", "velocity"}
    envs.reset()
    obs, *_ = envs.step(np.zeros((2, 1)))
    assert obs["position"].shape == (2, 3)
    obs, infos = envs.reset(options={"reset_mask": np.array([False, True])})
    assert obs["velocity"].shape == (2, 2)
    assert infos["_elapsed_step"].tolist() == [False, True]


def test_batches_of_those_that_are_ready():
    envs = make("CartPole-v1", 6, batch_size=2)
    assert envs.observation_space.shape == (6, 4)
    envs.async_reset(seed=3)
    whole = make("CartPole-v1", 6).reset(seed=3)[0]
    steps = np.zeros(6, int)
    seen = set()
    for _ in range(30):
        obs, reward, _, _, infos = envs.recv()
        rows = infos["env_id"]
        assert rows.dtype == np.int64
        assert len(obs) == len(reward) == len(rows) == 2
        for row, start in zip(rows, obs, strict=True):
            if steps[row] == 0:
                np.testing.assert_array_equal(start, whole[row])
        seen.update(rows.tolist())
        assert infos["_elapsed_step"].tolist() == [True, True]
        steps[rows] += 1
        if steps.sum() % 4:
            envs.send(np.array([0, 1]), rows)
        else:
            envs.send(np.array([0, 1]))
    assert seen == set(range(6))
    with pytest.raises(StateError, match=r"batch_size=2 of 6 envs expected async_reset"):
        envs.step(np.zeros(6, int))
    with pytest.raises(StateError, match="expected no env under way"):
        envs.async_reset()


def test_send_and_recv_of_a_whole_batch():
    envs, plain = make("CartPole-v1", 3), make("CartPole-v1", 3)
    envs.async_reset(seed=1)
    np.testing.assert_array_equal(envs.recv()[0], plain.reset(seed=1)[0])
    actions = np.array([1, 0, 1])
    for _ in range(30):
        envs.send(actions)
        got, expected = envs.recv(), plain.step(actions)
        for one, other in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)
    turned = np.array([2, 0, 1])
    envs.send(actions[turned], turned)
    got, expected = envs.recv(), plain.step(actions)
    assert got[4]["env_id"].tolist() == turned.tolist()
    np.testing.assert_array_equal(got[0], expected[0][turned])
    mask = {"reset_mask": np.array([True, False, False])}
    np.testing.assert_array_equal(envs.reset(options=mask)[0], plain.reset(options=mask)[0])
    with pytest.raises(StateError, match="a batch is all 3 envs, got 1"):
        envs.send(actions[:1], [0])


def test_returned_arrays_are_the_callers():
    envs = make("CartPole-v1", 2)
    first = envs.reset(seed=0)[0]
    kept = first.copy()
    for _ in range(50):
        envs.step(np.array([0, 1]))
    np.testing.assert_array_equal(first, kept)


def test_it_is_the_same_when_workers_carry_it():
    pool = ProcessVectorEnv([partial(make, "CartPole-v1", 3)] * 2, num_workers=2)
    try:
        np.testing.assert_array_equal(trajectory(pool, 3), trajectory(make("CartPole-v1", 6), 3))
    finally:
        pool.close()


def test_the_maker_can_be_sent_and_pictures_are_drawn():
    maker = partial(envpool_vector_env, "CartPole-v1", 2, num_threads=1, render_mode="rgb_array")
    envs = pickle.loads(pickle.dumps(maker))()
    assert isinstance(envs, EnvPoolVectorEnv)
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 2
    assert frames[0].shape == (400, 600, 3)
    assert make("CartPole-v1", 2).render() is None


def test_messages():
    with pytest.raises(TargetError, match=r"got 'CartPol-v1'; did you mean 'CartPole-v[01]'\?"):
        make("CartPol-v1", 2)
    for wrong in ({"num_envs": 0}, {"num_envs": 2, "batch_size": 3}):
        with pytest.raises(SettingError, match=f"{list(wrong)[-1]}: expected"):
            make("CartPole-v1", **wrong)
    for wrong in ({"colour": 3}, {"seed": 2**31}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            make("CartPole-v1", 2, **wrong)
    envs = make("CartPole-v1", 2)
    for too_early in (
        partial(envs.step, np.array([0, 1])),
        partial(envs.send, np.array([0, 1])),
        partial(envs.reset, options={"reset_mask": np.array([True, False])}),
    ):
        with pytest.raises(StateError, match="expected a reset before"):
            too_early()
    with pytest.raises(StateError, match="at least batch_size=2 envs under way, got 0"):
        envs.recv()
    envs.reset(seed=0)
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        envs.step(np.zeros(3, int))
    with pytest.raises(ShapeError, match="from 0 to 1, got 0 to 7"):
        envs.step(np.array([0, 7]))
    for rows in ([0, 0], [0, 2], [0.0, 1.0]):
        with pytest.raises(StateError, match="each once"):
            envs.send(np.array([0, 1]), rows)
    for options, error, words in (
        ({"low": 0}, SettingError, "only 'reset_mask'"),
        ({"reset_mask": [True, False]}, TypeError, "must be a numpy array"),
        ({"reset_mask": np.zeros(2, bool)}, ValueError, "must"),
    ):
        with pytest.raises(error, match=words):
            envs.reset(options=options)
    with pytest.raises(SettingError, match="no seed together"):
        envs.reset(seed=1, options={"reset_mask": np.array([True, False])})
    with pytest.raises(SettingError, match="a seed for every env"):
        envs.reset(seed=[1, None])
    with pytest.raises(SettingError, match="no options"):
        envs.async_reset(options={"low": 1})
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="after close"):
        envs.step(np.array([0, 1]))


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(TargetError, match="pip install envpool"):
        make("CartPole-v1", 2)
