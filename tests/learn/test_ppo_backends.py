"""PPO on every backend: the same parameters, stages that can be measured, no process left."""

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import hotloop
from hotloop.benchmark.warmup import warm_up
from hotloop.envs import make_vec
from hotloop.errors import SettingError
from hotloop.learn import ppo
from hotloop.learn.training import train
from hotloop.loop import drive
from hotloop.loop.control import process_control
from hotloop.loop.declared_state import sort_state
from hotloop.loop.state import unsupported_parts
from hotloop.simplify.effect_check import check_effects
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from support.wait import wait_until

SMALL = {"num_envs": 4, "fragment_steps": 16, "epochs": 2, "seed": 5}
PROCESS = {**SMALL, "backend": "process", "num_workers": 2}


class Fails(gymnasium.Env):
    """Raises in its fifth step, or interrupts as Ctrl-C does."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            raise ValueError("planted")
        return np.zeros(1, np.float32), 0.0, False, False, {}


class TwoImages(Fails):
    """Observations that PPO's policy cannot take."""

    observation_space = spaces.Box(-1, 1, (2, 3, 3), np.float32)


@pytest.fixture
def registered():
    gymnasium.register("HotloopFails-v0", Fails)
    gymnasium.register("HotloopTwoImages-v0", TwoImages)
    yield
    del gymnasium.registry["HotloopFails-v0"], gymnasium.registry["HotloopTwoImages-v0"]


@pytest.fixture
def children():
    """The processes that a test starts; all of them must have ended after it."""
    before = set(psutil.Process().children(recursive=True))

    def started():
        return set(psutil.Process().children(recursive=True)) - before

    yield started
    wait_until(lambda: not started(), "the worker processes have ended")


def parameters_after(iterations, **settings):
    learner = ppo.PPO(ppo.PPOSettings(**settings))
    try:
        steps = sum(learner.iterate() for _ in range(iterations))
        assert steps == learner.progress.env_steps == 64 * iterations
    finally:
        learner.envs.close()
    return learner.policy.flat.detach().numpy().copy()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_same_bits_in_processes(env_id, children):
    expected = parameters_after(15, **SMALL, env_id=env_id)
    np.testing.assert_array_equal(parameters_after(15, **PROCESS, env_id=env_id), expected)


def test_double_buffering_repeats_itself(children):
    first, again = (parameters_after(4, **PROCESS, double_buffer=True) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.isfinite(first).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of Box2D's bindings
@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3"])
def test_each_stage_changes_what_the_loop_declares(env_id, children):
    """Envs that cannot be put back, as those that Box2D simulates, are declared to go on."""
    loop = ppo.PPO(ppo.PPOSettings(**SMALL, env_id=env_id)).loop()
    try:
        state, notices = sort_state(loop.state, loop.may_go_on)
        assert not state.stuck
        assert ["SwigPyObject" in notice for notice in notices] == [True] * len(state.going_on)
        control, record = process_control(), Record()
        deadline_ns = control.clock.now_ns() + 60_000_000_000
        drive(loop, warm_up(control.clock.now_ns, limit_s=1.0), control)
        drive(loop, check_effects(control, record, state, deadline_ns), control)
        assert record.broken == []
        assert set(control.checks) == {"act", "env step", "store", "advantages", "update"}
    finally:
        loop.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("double_buffer", "effectful"),
    [(False, {"env step", "store"}), (True, {"env send", "env wait", "store"})],
)
def test_the_loop_can_be_measured_with_envs_elsewhere(double_buffer, effectful, children):
    loop = ppo.PPO(ppo.PPOSettings(**PROCESS, double_buffer=double_buffer)).loop()
    assert not unsupported_parts(loop.state)
    try:
        stages = [s.name for s in hotloop.run_benchmark(loop, seconds=0.5).summary.stages]
        assert set(stages) == effectful | {"act", "advantages", "update"}
        control = process_control()
        experiment = Experiment(control, SimplifySettings(budget=6.0, aa_pairs=1))
        drive(loop, experiment.run(loop), control)
        record = experiment.record
        assert {s.name for s in record.stages if s.replaceable} <= {"act", "advantages", "update"}
        assert effectful <= {s.name for s in record.stages if s.effect == "effectful"}
        assert record.ns
    finally:
        loop.close()


def test_training_evaluates_as_in_one_process(children):
    results = [
        train(ppo.PPOSettings(**settings, total_steps=192, evaluate_every=64))
        for settings in (SMALL, PROCESS)
    ]
    for name in ("env_steps", "mean_return"):
        one, other = (getattr(result, name) for result in results)
        np.testing.assert_array_equal(one, other)
    assert results[0].env_steps.tolist() == [64, 128, 192]


def test_workers_end_when_an_env_raises(registered, children):
    with pytest.raises(ValueError, match="planted"):
        train(ppo.PPOSettings(**PROCESS, env_id="HotloopFails-v0"))


def test_workers_end_when_training_is_interrupted(children):
    def interrupt(_point):
        assert len(children()) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(ppo.PPOSettings(**PROCESS), on_iteration=interrupt)


def test_workers_end_when_the_learner_cannot_be_made(registered, children):
    with pytest.raises(hotloop.errors.TargetError, match="expected images of at least 36 x 36"):
        ppo.PPO(ppo.PPOSettings(**PROCESS, env_id="HotloopTwoImages-v0"))


def test_what_auto_chose_is_logged(caplog):
    caplog.set_level("INFO", "hotloop")
    loop = ppo.PPO(ppo.PPOSettings(**SMALL, backend="auto")).loop()
    assert loop.body() == 64
    loop.close()
    assert any("envs run in" in message for message in caplog.messages)


def test_double_buffering_is_left_out_where_auto_keeps_the_envs_here(caplog, monkeypatch):
    caplog.set_level("INFO", "hotloop")
    monkeypatch.setattr(
        ppo, "make_vec", lambda *args, **kwargs: make_vec(*args, **{**kwargs, "backend": "serial"})
    )
    learner = ppo.PPO(ppo.PPOSettings(**SMALL, backend="auto", double_buffer=True))
    assert learner.collector.double_buffer is False
    assert any("no double buffering" in message for message in caplog.messages)
    learner.envs.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "proces"}, "'proces'.*did you mean 'process'"),
        ({"double_buffer": True}, "double_buffer: expected none with backend 'serial'.* got True"),
        ({"num_workers": 2}, "num_workers: expected none with backend 'serial'.* got 2"),
        ({"backend": "process", "num_workers": 0}, "num_workers: expected a whole number of 1"),
        ({"backend": "process", "num_workers": 9}, "num_workers"),
        (
            {"backend": "process", "num_envs": 7, "double_buffer": True},
            "num_envs: expected an even number with double_buffer.* got 7",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message, children):
    with pytest.raises(SettingError, match=message):
        ppo.PPO(ppo.PPOSettings(**settings)).loop()
