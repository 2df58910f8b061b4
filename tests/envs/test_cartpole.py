"""The compiled CartPole against Gymnasium's, bit for bit, and its refusals."""

import copy
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs.cartpole import CartPoleVectorEnv
from hotloop.envs.cartpole_kernel import AHEAD
from hotloop.envs.process import ProcessVectorEnv
from hotloop.errors import SettingError, ShapeError, StateError, TargetError

MODES = {mode.name.lower(): mode for mode in AutoresetMode}


def gymnasium_envs(num_envs, mode, **kwargs):
    make = partial(gymnasium.make, "CartPole-v1", disable_env_checker=True, **kwargs)
    return SyncVectorEnv([make] * num_envs, autoreset_mode=MODES[mode])


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert list(got) == list(expected)
        for key in got:
            assert_same(got[key], expected[key])
    elif isinstance(got, tuple):
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(got, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if got.dtype == object:
            for one, other in zip(got, expected, strict=True):
                assert_same(one, other)
        else:
            assert got.tobytes() == expected.tobytes()
    else:
        assert got == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rules", [{}, {"sutton_barto_reward": True, "max_episode_steps": 12}])
def test_equals_gymnasium_bit_for_bit(mode, rules):
    ours = CartPoleVectorEnv(5, autoreset_mode=mode, **rules)
    theirs = gymnasium_envs(5, mode, **rules)
    for name in ("observation_space", "action_space", "single_observation_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.metadata["autoreset_mode"] == MODES[mode]
    assert_same(ours.reset(seed=11), theirs.reset(seed=11))
    rng = np.random.default_rng(0)
    terminations = truncations = 0
    for _ in range(400):
        actions = rng.integers(0, 2, 5)
        got = ours.step(actions)
        assert_same(got, theirs.step(actions))
        terminations, truncations = terminations + got[2].sum(), truncations + got[3].sum()
        ended = got[2] | got[3]
        if mode == "disabled" and ended.any():
            reset = (o.reset(options={"reset_mask": ended.copy()}) for o in (ours, theirs))
            assert_same(*reset)
    assert terminations > 20
    assert bool(truncations) == bool(rules)


def test_equals_gymnasium_over_many_start_states():
    """More episodes than are drawn ahead, so the random numbers go on where they stopped."""
    ours, theirs = CartPoleVectorEnv(2, 1), gymnasium_envs(2, "next_step", max_episode_steps=1)
    assert_same(ours.reset(seed=3), theirs.reset(seed=3))
    for _ in range(5 * AHEAD):
        assert_same(ours.step(np.array([0, 1])), theirs.step(np.array([0, 1])))
    assert_same(ours.reset(), theirs.reset())
    assert_same(ours.reset(seed=[4, None]), theirs.reset(seed=[4, None]))
    assert_same(ours.reset(), theirs.reset())


def test_states_equal_gymnasiums_in_double_precision():
    """A policy that balances: whole episodes of 500 steps, to the truncation."""
    ours = CartPoleVectorEnv(4, autoreset_mode="disabled")
    single = [gymnasium.make("CartPole-v1") for _ in range(4)]
    obs, _ = ours.reset(seed=0)
    for i, env in enumerate(single):
        env.reset(seed=i)
    lengths = np.zeros(4)
    for t in range(500):
        actions = (obs @ np.array([0.0, 0.1, 1.0, 0.5]) > 0).astype(np.int64)
        obs, reward, terminated, truncated, _ = ours.step(actions)
        for i, env in enumerate(single):
            _, expected, fell, cut, _ = env.step(actions[i])
            assert (reward[i], terminated[i], truncated[i]) == (expected, fell, cut)
            assert ours._state[:4, i].tobytes() == env.unwrapped.state.tobytes()
        lengths += 1
        assert truncated.all() == (t == 499)
    assert (lengths == 500).all()


@pytest.mark.parametrize("mode", MODES)
def test_reset_options_equal_gymnasiums(mode):
    ours, theirs = CartPoleVectorEnv(3, autoreset_mode=mode), gymnasium_envs(3, mode)
    for seed, options in (
        (2, {"low": -0.2, "high": 0.2}),
        (None, {"high": 0.01}),
        (None, {"reset_mask": np.array([True, False, True])}),
        (9, {"reset_mask": np.array([False, False, True]), "low": 0.0}),
        (None, {}),
        (5, {"low": 3.0, "high": 3.0}),
    ):
        both = [o.reset(seed=seed, options=dict(options)) for o in (ours, theirs)]
        assert_same(*both)
        for _ in range(2 if mode != "disabled" else 1):
            assert_same(ours.step(np.array([1, 0, 1])), theirs.step(np.array([1, 0, 1])))


def test_a_pending_reset_is_lifted_by_a_masked_reset():
    ours, theirs = CartPoleVectorEnv(2), gymnasium_envs(2, "next_step")
    for envs in (ours, theirs):
        envs.reset(seed=0)
        envs.reset(seed=0, options={"reset_mask": np.array([True, False]), "low": 3, "high": 3})
        assert envs.step(np.array([0, 0]))[2].tolist() == [True, False]
    mask = {"reset_mask": np.array([True, False])}
    assert_same(ours.reset(options=dict(mask)), theirs.reset(options=dict(mask)))
    assert_same(ours.step(np.array([0, 1])), theirs.step(np.array([0, 1])))


def test_returned_arrays_are_the_callers_unless_asked_otherwise():
    for keep in (True, False):
        envs = CartPoleVectorEnv(2, copy=keep, autoreset_mode="same_step")
        first = envs.reset(seed=0)[0]
        second, *rest = envs.step(np.array([0, 1]))
        third, *others, _ = envs.step(np.array([0, 1]))
        assert np.shares_memory(first, second) == np.shares_memory(second, third) == (not keep)
        assert not any(np.shares_memory(a, b) for a, b in zip(rest, others, strict=False))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8, np.uint64, ">i8"])
def test_actions_of_every_integer_type(kind):
    ours, plain = CartPoleVectorEnv(4), CartPoleVectorEnv(4)
    ours.reset(seed=1), plain.reset(seed=1)
    actions = np.array([0, 9, 1, 9, 1, 9, 0, 9], kind)[::2]
    actions.flags.writeable = False
    assert_same(ours.step(actions), plain.step(np.array([0, 1, 1, 0])))
    assert_same(ours.step([1, 0, 0, 1]), plain.step(np.array([1, 0, 0, 1])))


def test_it_can_be_copied_and_sent_to_another_process():
    envs = CartPoleVectorEnv(3)
    envs.reset(seed=1)
    actions = np.array([0, 1, 1])
    for other in (copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))):
        for _ in range(60):
            last = other.step(actions)
    for _ in range(60):
        expected = envs.step(actions)
    assert_same(last, expected)


def test_it_is_the_same_when_workers_carry_it():
    actions = np.random.default_rng(0).integers(0, 2, (40, 6))
    pool = ProcessVectorEnv(
        [partial(CartPoleVectorEnv, 3, autoreset_mode="same_step")] * 2, num_workers=2
    )
    whole = CartPoleVectorEnv(6, autoreset_mode="same_step")
    try:
        assert_same(pool.reset(seed=3), whole.reset(seed=3))
        for action in actions:
            assert_same(pool.step(action), whole.step(action))
    finally:
        pool.close()


def test_close_and_description():
    envs = CartPoleVectorEnv(2, max_episode_steps=200)
    assert envs.spec.id == "CartPole-v1"
    assert envs.spec.max_episode_steps == 200
    assert envs.render_mode is None
    envs.close()
    envs.close()
    assert envs.closed


def test_messages():
    for setting in ({"num_envs": 0}, {"num_envs": 1.5}, {"max_episode_steps": 0}):
        with pytest.raises(SettingError, match=f"{next(iter(setting))}: expected an integer from"):
            CartPoleVectorEnv(**setting)
    with pytest.raises(SettingError, match=r"autoreset_mode: expected .* got 'sometimes'"):
        CartPoleVectorEnv(autoreset_mode="sometimes")
    envs = CartPoleVectorEnv(2, autoreset_mode="disabled")
    with pytest.raises(StateError, match="before the first reset"):
        envs.step(np.array([0, 1]))
    with pytest.raises(StateError, match="reset all envs once before"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset(seed=0)
    for actions in (np.zeros(3, int), np.zeros((2, 1), int), np.zeros(2), np.zeros(2, bool), 1):
        with pytest.raises(ShapeError, match=r"expected integers of shape \(2,\)"):
            envs.step(actions)
    for bad in (2, -1):
        before = envs._state.copy()
        with pytest.raises(TargetError, match=rf"action of env 1: .* got {bad}"):
            envs.step(np.array([0, bad]))
        np.testing.assert_array_equal(envs._state[:4], before[:4])
    for options in ({"low": "a"}, {"low": None}, {"low": 1.0}, {"high": float("nan")}):
        with pytest.raises(SettingError, match="options"):
            envs.reset(options=options)
    for mask in ([True, False], np.zeros(2, bool), np.ones(3, bool), np.ones(2)):
        with pytest.raises((TypeError, ValueError), match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    envs.reset(options={"low": 3.0, "high": 3.0})
    envs.step(np.array([0, 0]))
    with pytest.raises(StateError, match="env 0: its episode has ended and autoreset is disabled"):
        envs.step(np.array([0, 0]))
