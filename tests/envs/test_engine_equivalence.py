"""Serial equals Gymnasium's own, and processes equal serial: bit for bit, whatever the spaces."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import (
    FlattenObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    TimeLimit,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import support.faulty_envs as faulty
from hotloop.envs.ids import make_env
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.testing.conformance import ConformanceSettings, check
from support.equivalence import BOX, COMMON, DISCRETE, NESTED, any_space, drive, same_results
from support.often import examples
from support.sampled_envs import INFOS, Sampled
from support.trees import assert_same

MODES = list(AutoresetMode)
plans = st.fixed_dictionaries(
    {
        "observation_space": any_space,
        "action_space": any_space,
        "length": st.integers(1, 4),
        "infos": st.sampled_from(INFOS),
        "rewards": st.sampled_from([(), (), (2,)]),
    }
)
modes = st.sampled_from(MODES)


def close(engines):
    for envs in engines:
        envs.close()


# --- serial against Gymnasium ---------------------------------------------------------------------


@settings(max_examples=examples(80), **COMMON)
@given(
    plan=plans, num_envs=st.integers(1, 6), mode=modes, seed=st.integers(0, 99), copy=st.booleans()
)
def test_serial_equals_gymnasium(plan, num_envs, mode, seed, copy):
    # Gymnasium itself knows no vector rewards.
    fns = [partial(Sampled, **plan | {"rewards": ()})] * num_envs
    theirs = SyncVectorEnv(fns, autoreset_mode=mode, copy=copy)
    ours = SerialVectorEnv(fns, autoreset_mode=mode, copy=copy)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    drive([theirs, _IntsAsGymnasium(ours)], seed=seed, reset_at=7)
    close([theirs, ours])


class _IntsAsGymnasium:
    """Nothing is changed: the envs here take Python's and NumPy's integers for the same."""

    def __init__(self, envs):
        self.reset, self.step = envs.reset, envs.step


# --- processes against serial ---------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=examples(30), **COMMON)
@given(
    plan=plans,
    num_envs=st.integers(1, 6),
    workers=st.integers(1, 3),
    mode=modes,
    seed=st.integers(0, 99),
    copy=st.booleans(),
)
def test_processes_equal_serial(plan, num_envs, workers, mode, seed, copy):
    fns = [partial(Sampled, **plan)] * num_envs
    serial = SerialVectorEnv(fns, autoreset_mode=mode, copy=copy)
    process = ProcessVectorEnv(
        fns, num_workers=min(workers, num_envs), autoreset_mode=mode, copy=copy, context="fork"
    )
    try:
        assert process.observation_space == serial.observation_space
        assert process.action_space == serial.action_space
        assert process.metadata == serial.metadata
        drive([serial, process], seed=seed, reset_at=7)
    finally:
        close([serial, process])


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_processes_that_are_not_forked_equal_serial(context):
    fns = [partial(Sampled, NESTED, NESTED, 3, "nested")] * 3
    serial = SerialVectorEnv(fns)
    process = ProcessVectorEnv(fns, num_workers=2, context=context)
    try:
        drive([serial, process], reset_at=5)
    finally:
        close([serial, process])


@pytest.mark.parametrize("mode", MODES)
def test_split_and_partial_engines_step_and_reset_as_a_whole_too(mode):
    fns = [partial(Sampled, NESTED, DISCRETE, 3, "sometimes")] * 4
    engines = [
        SerialVectorEnv(fns, autoreset_mode=mode),
        SerialVectorEnv(fns, autoreset_mode=mode, batch_size=1),
        SerialVectorEnv(fns, autoreset_mode=mode, splits=2),
        ProcessVectorEnv(fns, autoreset_mode=mode, num_workers=2, batch_size=3),
        ProcessVectorEnv(fns, autoreset_mode=mode, num_workers=2, splits=2),
        ProcessVectorEnv(fns, autoreset_mode=mode, num_workers=1, splits=4),
    ]
    try:
        drive(engines, steps=20, reset_at=9)
    finally:
        close(engines)


WIDE = spaces.Dict(a=BOX, b=spaces.Box(-1, 1, (2,), np.float32), c=DISCRETE)


@pytest.mark.parametrize("dtypes", ["ff", "dd", "fd", "df"])
def test_floats_stay_as_exact_as_they_come(dtypes):
    fns = [partial(Sampled, BOX, WIDE)] * 3
    draw = np.random.default_rng(0)
    engines = [
        SyncVectorEnv(fns),
        SerialVectorEnv(fns),
        ProcessVectorEnv(fns, num_workers=2),
    ]

    def actions(number):
        # Widths change from step to step, and back.
        one, two = dtypes if number % 3 else "ff"
        return {
            "a": draw.normal(size=(3, 3)).astype(one),
            "b": draw.normal(size=(3, 2)).astype(two),
            "c": draw.integers(0, 3, 3),
        }

    try:
        drive(engines, actions=actions)
    finally:
        close(engines)


@pytest.mark.parametrize("mode", MODES)
def test_vector_rewards_survive(mode):
    fns = [partial(Sampled, BOX, DISCRETE, rewards=(2, 3))] * 3
    serial = SerialVectorEnv(fns, autoreset_mode=mode)
    process = ProcessVectorEnv(fns, num_workers=2, autoreset_mode=mode)
    try:
        drive([serial, process])
        process.reset(seed=1)
        reward = process.step(np.array([0, 1, 2]))[1]
        assert reward.shape == (3, 2, 3)
        assert reward.any()
    finally:
        close([serial, process])


def _base(**kwargs):
    return Sampled(BOX, DISCRETE, **kwargs)


WRAPPED = {
    "limit": lambda: TimeLimit(_base(length=6), 4),
    "all_checks": lambda: TimeLimit(OrderEnforcing(PassiveEnvChecker(_base())), 3),
    "flat_outside": lambda: FlattenObservation(
        TimeLimit(OrderEnforcing(Sampled(spaces.Dict(a=BOX, b=DISCRETE), DISCRETE)), 3)
    ),
    "flat_inside": lambda: TimeLimit(
        OrderEnforcing(FlattenObservation(Sampled(spaces.Dict(a=BOX, b=DISCRETE), DISCRETE))), 3
    ),
    "limit_in_checks": lambda: PassiveEnvChecker(OrderEnforcing(TimeLimit(_base(), 2))),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_envs(name, mode):
    fns = [WRAPPED[name]] * 3
    engines = [
        SyncVectorEnv(fns, autoreset_mode=mode),
        SerialVectorEnv(fns, autoreset_mode=mode),
        ProcessVectorEnv(fns, num_workers=2, autoreset_mode=mode),
    ]
    try:
        drive(engines, steps=15, reset_at=8)
    finally:
        close(engines)


def test_episode_statistics_come_home():
    fns = [lambda: RecordEpisodeStatistics(TimeLimit(_base(length=9), 4))] * 3
    engines = [SerialVectorEnv(fns), ProcessVectorEnv(fns, num_workers=2)]
    try:
        same_results(engines, lambda envs: envs.reset(seed=3))
        ended = 0
        for _ in range(20):
            steps = [envs.step(np.array([0, 1, 2])) for envs in engines]
            for step in steps:
                if "episode" in step[4]:
                    del step[4]["episode"]["t"], step[4]["episode"]["_t"]  # wall time
                    ended += 1
            assert_same(steps[1], steps[0])
        assert ended
    finally:
        close(engines)


REAL = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "InvertedPendulum-v5"]


@pytest.mark.parametrize("env_id", [*REAL, pytest.param("ALE/Pong-v5", marks=pytest.mark.slow)])
def test_real_envs(env_id):
    if env_id.startswith("ALE/"):
        gymnasium.register_envs(pytest.importorskip("ale_py"))
    fns = [partial(make_env, env_id)] * 3
    modes = [AutoresetMode.SAME_STEP] if env_id.startswith("ALE/") else MODES
    for mode in modes:
        engines = [
            SyncVectorEnv(fns, autoreset_mode=mode),
            SerialVectorEnv(fns, autoreset_mode=mode),
            ProcessVectorEnv(fns, num_workers=2, autoreset_mode=mode),
        ]
        try:
            drive(engines, steps=60, seed=3, reset_at=50)
        finally:
            close(engines)


def test_attributes_and_calls():
    fns = [partial(Sampled, BOX, DISCRETE, length) for length in (2, 3, 4)]
    engines = [
        SyncVectorEnv(fns),
        SerialVectorEnv(fns),
        ProcessVectorEnv(fns, num_workers=2),
        ProcessVectorEnv(fns, num_workers=3),
    ]
    try:
        same_results(engines, lambda envs: envs.reset(seed=3))
        for act in (
            lambda envs: envs.get_attr("length"),
            lambda envs: envs.np_random_seed,
            lambda envs: envs.set_attr("length", [5, 6, 7]),
            lambda envs: envs.get_attr("length"),
            lambda envs: envs.set_attr("length", 9),
            lambda envs: envs.call("length"),
            lambda envs: envs.call("reset", seed=4),
            lambda envs: [r.bit_generator.state for r in envs.np_random],
            lambda envs: envs.step(np.array([1, 0, 2])),
        ):
            same_results(engines, act)
        for envs in engines[1:]:
            with pytest.raises(ValueError, match="length equal to the number of environments"):
                envs.set_attr("length", [1, 2])
    finally:
        close(engines)


QUICK = ConformanceSettings(steps=60, max_steps=300, misuse=False)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 2}, {"splits": 2}], ids=str)
@pytest.mark.parametrize("engine", [SerialVectorEnv, partial(ProcessVectorEnv, num_workers=2)])
def test_conformance(engine, kwargs, mode):
    make = partial(engine, [faulty.Sound] * 4, autoreset_mode=mode, **kwargs)
    report = check(make, single=faulty.Sound, settings=QUICK)
    assert not report.warnings, str(report)
    skipped = {finding.name for finding in report.findings if finding.outcome == "skipped"}
    assert skipped == {"misuse"}, str(report)
