"""What is wrong is said: where, what was expected, what came, what to do."""

import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hotloop.envs.make import make_vec
from hotloop.envs.process import ProcessVectorEnv
from hotloop.errors import SettingError, ShapeError, TargetError
from hotloop.testing.synthetic import synthetic_fns
from support.sampled_envs import Sampled

BOX = spaces.Box(-1, 1, (3,), np.float32)
FNS = synthetic_fns(4)
ONE = partial(Sampled, BOX, BOX)
OTHER = partial(Sampled, BOX, spaces.Discrete(2))
OBS = partial(Sampled, spaces.Box(0, 1, (3,), np.float32), BOX)

SETTINGS = [
    ({"backend": "proces"}, r"backend: expected the name of.*'proces'; did you mean 'process'\?"),
    ({"backend": "process", "num_workers": 5}, r"num_workers: expected 1 to 4.*got 5"),
    ({"backend": "process", "num_workers": 0}, r"num_workers: expected 1 to 4.*got 0"),
    ({"backend": "process", "splits": 2, "num_workers": 3}, r"num_workers: expected 1 to 2.*2 spl"),
    ({"backend": "serial", "num_workers": 2}, r"'serial' has none, got 2; use backend='process'"),
    ({"backend": "serial", "batch_size": 5}, r"batch_size: expected 1 to num_envs=4, got 5"),
    ({"backend": "process", "batch_size": 0}, r"batch_size: expected 1 to num_envs=4, got 0"),
    ({"backend": "serial", "splits": 3}, r"splits: expected a divisor of num_envs=4.*got 3"),
    ({"backend": "process", "splits": 5}, r"splits: expected 1 to num_envs=4, got 5"),
    ({"backend": "serial", "splits": 2, "batch_size": 1}, r"splits=2 a batch is one of the groups"),
    ({"backend": "process", "restarts": -1}, r"restarts >= 0.*got -1"),
    ({"backend": "process", "timeout_s": 0}, r"timeout_s > 0 or None.*0"),
    ({"backend": "process", "threads": 0}, r"threads >= 1.*0"),
    ({"backend": "process", "restart": 3}, r"restart: backend 'process' has no such.*'restarts'\?"),
    ({"backend": "serial", "timeout_s": 3}, r"timeout_s: backend 'serial' has no such setting"),
    ({"backend": "auto", "restart": 3}, r"restart: backend 'auto' has no such.*mean 'restarts'\?"),
    ({"backend": "serial", "autoreset_mode": "later"}, r"'next_step', 'same_step' or 'disabled'"),
    ({"backend": "process", "autoreset_mode": "later"}, r"'disabled', got 'later'"),
    ({"num_envs": 3, "backend": "serial"}, r"num_envs: expected 4, one for each.*got 3"),
    ({"num_envs": 0}, r"num_envs: expected a number above 0, got 0"),
    ({"env_kwargs": {"a": 1}}, r"env_kwargs: expected none with functions"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=lambda x: str(x)[:40])
def test_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        make_vec(FNS, **settings)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_envs(backend):
    make = partial(make_vec, backend=backend)
    with pytest.raises(TargetError, match=r"'CartPol-v1'.*did you mean 'CartPole-v1'\?"):
        make("CartPol-v1", 2)
    with pytest.raises(TargetError, match=r"env 1: expected a function that makes.*got str"):
        make([ONE, "CartPole-v1"])
    with pytest.raises(TargetError, match=r"action space of env 1: expected env 0's, Box.*Discr"):
        make([ONE, OTHER])
    with pytest.raises(TargetError, match=r"observation space of env 2"):
        make([ONE, ONE, OBS])
    with pytest.raises(TargetError, match=r"expected a function that makes a gymnasium.Env.*list"):
        make([list])
    with pytest.raises(ZeroDivisionError) as raised:
        make([ONE, lambda: 1 / 0])
    assert "while making env 1" in raised.value.__notes__
    with pytest.raises(SettingError, match="expected 0"):
        make([])


def test_envs_of_other_workers_are_compared_too():
    with pytest.raises(TargetError, match=r"observation space of env 2: expected env 0's"):
        ProcessVectorEnv([ONE, ONE, OBS, OBS], num_workers=2)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_maker_that_cannot_be_sent(context):
    lock = threading.Lock()
    with pytest.raises(TargetError, match=r"cannot be pickled: .*lock.*context='fork'"):
        ProcessVectorEnv([lambda: lock], num_workers=1, context=context)


def test_a_lambda_can_be_sent():
    envs = ProcessVectorEnv([lambda: Sampled(BOX, BOX)], num_workers=1, context="spawn")
    assert envs.reset(seed=0)[0].shape == (1, 3)
    envs.close()


ACTIONS = [
    (BOX, np.zeros((2, 4), np.float32), r"actions: expected shape \(2, 3\).*got \(2, 4\); batch"),
    (BOX, np.zeros((3, 3), np.float32), r"actions: expected shape \(2, 3\).*got \(3, 3\)"),
    (BOX, np.zeros((2, 3), complex), r"actions: expected float32.*got complex128.*astype"),
    (BOX, [[1, 2, 3], [1, 2]], r"actions: expected an array, got values of several shapes"),
    (spaces.Discrete(2), np.zeros(2), r"actions: expected int64.*got float64; convert them"),
    (spaces.Discrete(2), 1, r"actions: expected shape \(2,\).*got \(\)"),
    (spaces.Dict(a=BOX), {"b": 1}, r"actions: expected a dict of \['a'\].*got \['b'\]"),
    (spaces.Dict(a=BOX), {"a": np.zeros(3)}, r"actions\['a'\]: expected shape \(2, 3\)"),
    (spaces.Tuple([BOX]), np.zeros((2, 3)), r"actions: expected a tuple of 1 batches, got ndarray"),
    (spaces.Tuple([BOX]), (np.zeros(3),), r"actions\[0\]: expected shape"),
    (spaces.Text(3), "ab", r"actions: expected 2 values of Text.*got 'ab'"),
    (spaces.Text(3), ("ab",), r"actions: expected 2 values of Text.*got \('ab',\)"),
]


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize(("space", "actions", "message"), ACTIONS, ids=lambda x: str(x)[:30])
def test_actions(backend, space, actions, message):
    envs = make_vec(partial(Sampled, BOX, space), 2, backend=backend, batch_size=1)
    envs.reset(seed=0)
    with pytest.raises(ShapeError, match=message):
        envs.step(actions)
    with pytest.raises(ShapeError, match=message):
        envs.send(actions, [0, 1])
    assert len(envs.step(envs.action_space.sample())[1]) == 2
    envs.close()


def test_what_an_info_or_observation_may_not_be_is_said_by_numpy_with_the_env():
    class Vector(Sampled):
        def step(self, action):
            return *super().step(action)[:1], np.zeros(2), False, False, {}

    for backend in ("serial", "process"):
        envs = make_vec([partial(Vector, BOX, BOX)] * 2, backend=backend)
        envs.reset(seed=0)
        with pytest.raises(ShapeError, match=r"rewards: expected one number an env.*reward_space"):
            envs.step(np.zeros((2, 3), np.float32))
        envs.close()


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_seeds_and_masks(backend):
    envs = make_vec(FNS, backend=backend)
    with pytest.raises(ValueError, match=r"num_envs=4 but got length=2"):
        envs.reset(seed=[1, 2])
    for mask, error in (
        ([True] * 4, TypeError),
        (np.ones(3, bool), ValueError),
        (np.ones(4), TypeError),
        (np.zeros(4, bool), ValueError),
    ):
        with pytest.raises(error, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    envs.reset(seed=[1, None, 3, None])
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="after a call to `close"):
        envs.reset()
