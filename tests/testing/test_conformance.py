"""The conformance kit: sound envs pass whole, and each planted fault is named by its own check."""

import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import support.faulty_envs as faulty
from hotloop.envs.ids import make_env
from hotloop.errors import SettingError, TargetError
from hotloop.testing.conformance import ConformanceSettings, Finding, Report, check, lifecycle
from hotloop.testing.conformance.trees import mismatches, same
from hotloop.testing.synthetic import SyntheticEnv, SyntheticSettings, SyntheticVectorEnv

# The process of the misuse check costs its start: the checks of misuse themselves ask for it.
QUICK = ConformanceSettings(steps=60, max_steps=300, misuse=False)
MODES = list(AutoresetMode)
NESTED = spaces.Dict(
    a=spaces.Discrete(3), b=spaces.Tuple((spaces.Box(-1e9, 1e9, (7,), np.float64),))
)


def look(make, settings=QUICK, **kwargs):
    return check(make, settings=settings, raise_on_failure=False, **kwargs)


def names(findings):
    return {finding.name for finding in findings}


@pytest.mark.parametrize(
    "make",
    [
        faulty.Sound,
        faulty.Driven,
        partial(gymnasium.make, "CartPole-v1"),
        partial(gymnasium.make, "Pendulum-v1"),
        partial(gymnasium.make, "FrozenLake-v1"),
        partial(SyntheticEnv, SyntheticSettings(observation_space=NESTED, episode_steps=(2, 9))),
        partial(SyntheticEnv, SyntheticSettings(observation_space=spaces.Text(4))),
    ],
    ids=["sound", "driven", "cartpole", "pendulum", "frozenlake", "nested", "text"],
)
def test_a_sound_env_passes(make):
    report = look(make)
    assert report.passed, str(report)
    assert not report.warnings, str(report)
    skipped = names(f for f in report.findings if f.outcome == "skipped")
    assert skipped - {"int_actions"} == {"misuse"}


@pytest.mark.slow
def test_an_atari_env_passes():
    gymnasium.register_envs(ale_py)
    settings = ConformanceSettings(steps=20, max_steps=30, misuse=False)
    report = look(partial(make_env, "ALE/Pong-v5"), settings)
    assert report.passed, str(report)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "single",
    [
        partial(make_env, "CartPole-v1"),
        faulty.Driven,
        partial(SyntheticEnv, SyntheticSettings(observation_space=NESTED, episode_steps=(2, 9))),
    ],
    ids=["cartpole", "driven", "nested"],
)
def test_gymnasiums_sync_vector_env_passes(mode, single):
    report = look(partial(SyncVectorEnv, [single] * 3, autoreset_mode=mode), single=single)
    assert report.passed, str(report)
    assert not report.warnings, str(report)
    skipped = names(f for f in report.findings if f.outcome == "skipped")
    assert skipped == {"misuse", "partial_env_id", "partial_rows", "partial_busy"}


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_async_vector_env_passes(mode):
    report = look(
        partial(AsyncVectorEnv, [faulty.Sound] * 2, autoreset_mode=mode), single=faulty.Sound
    )
    assert report.passed, str(report)


def test_native_vector_envs_pass():
    make = partial(
        gymnasium.make_vec, "CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point"
    )
    report = look(make)
    assert report.passed, str(report)
    # One generator for all envs: their number changes what each of them sees.
    assert names(report.warnings) == {"seed_per_env"}
    for mode in MODES:
        synthetic = look(partial(SyntheticVectorEnv, 3, autoreset_mode=mode))
        assert synthetic.passed, str(synthetic)


def test_partial_batches_pass():
    report = look(faulty.vector(faulty.Ready), single=faulty.Sound)
    assert report.passed, str(report)
    assert names(f for f in report.findings if f.outcome == "skipped") == {"misuse"}


ENV_FAULTS = [
    (faulty.OwnBuffer, "obs_kept", "the observation of step 0 was changed by step 1"),
    (faulty.WideDtype, "obs_dtype", "step 1: expected float32, got float64"),
    (faulty.WrongShape, "obs_shape", r"reset: expected the shape \(3,\), got \(1, 3\)"),
    (faulty.OutOfBounds, "obs_bounds", r"entry \[\d\]: expected -0.5 to 0.5, got"),
    (faulty.NotANumber, "obs_bounds", r"step 1: entry \[1\]: .* got nan"),
    (faulty.ArrayReward, "reward", r"step 1: got an array \(1,\) of float64"),
    (faulty.NanReward, "reward", "step 1: got nan"),
    (faulty.WholeFlags, "flags", r"step 1: terminated: got 0 \(int\)"),
    (faulty.NoInfo, "info", r"step 1: got None"),
    (faulty.ObsOnlyReset, "reset_returns", r"reset: got an array \(3,\)"),
    (faulty.FourValues, "step_returns", "step 1: got a tuple of 4"),
    (faulty.OldSignature, "reset_signature", "options"),
    (faulty.NoActionSpace, "spaces", "action_space is None"),
    (faulty.BreaksDown, "runs", "ZeroDivisionError: of all things"),
    (faulty.GlobalNoise, "determinism", "the same env, .* differs from step 1 on"),
    (faulty.KeepsState, "determinism", "the first observation differs"),
    (faulty.SeedsItself, "generator_kept", "took a new seed from elsewhere"),
    (faulty.RepeatsItself, "generator_kept", "repeats the episode that the seed began"),
    (faulty.NumpyActionsOnly, "actions", r"0 \(int\): AttributeError"),
    (faulty.TooFewActions, "actions", r"2 \(int\): IndexError"),
    (faulty.IntsAreSpecial, "int_actions", "0 does something else as an int"),
    (faulty.WritesActions, "actions", "in the caller's own array"),
    (faulty.ClosesOnce, "close", r"the second close\(\) raised OSError: closed already"),
    (faulty.UndeclaredMode, "render_modes", "render_mode is 'human'"),
]


@pytest.mark.parametrize(
    ("make", "name", "got"), ENV_FAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_an_envs_fault_is_named_by_its_check_alone(make, name, got):
    report = look(make)
    assert names(report.failures) == {name}, str(report)
    assert not report.warnings, str(report)
    assert re.search(got, report.failures[0].got), report.failures[0].got


def test_what_breaks_no_contract_is_a_warning():
    report = look(faulty.UnusedSeed)
    assert report.passed
    assert names(report.warnings) == {"seed_used"}
    lock = threading.Lock()
    report = look(lambda: (lock, faulty.Sound())[1])
    assert report.passed
    assert names(report.warnings) == {"pickle"}
    assert "cannot pickle '_thread.lock' object" in report.warnings[0].got


def test_an_env_without_an_end_is_told():
    ends = next(f for f in look(faulty.NeverEnds).findings if f.name == "ends")
    assert (ends.outcome, ends.got) == ("skipped", "no episode ended within 300 steps")


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (faulty.LeavesThread, "thread 'left over'"),
        (faulty.LeavesProcess, r"process \d+ \(sleep 600"),
    ],
)
def test_what_close_leaves_behind_is_named(make, got, monkeypatch):
    monkeypatch.setattr(lifecycle, "GRACE_S", 0.05)
    made = []

    def make_and_keep():
        made.append(make())
        return made[-1]

    try:
        report = look(make_and_keep)
    finally:
        for env in made:
            if make is faulty.LeavesProcess:
                env.child.kill()
                env.child.wait()
            else:
                env.end.set()
    assert names(report.failures) == {"leaks"}, str(report)
    assert re.search(got, report.failures[0].got), report.failures[0].got


@pytest.mark.parametrize(
    ("make", "timeout_s", "got"),
    [
        (faulty.DiesBeforeReset, 100, "a step before the reset: the process died, exit code 9"),
        pytest.param(
            faulty.HangsAfterEnd,
            20,  # the process has to start before
            "steps after the end: no end within 20 s",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_crash_outside_of_an_episode_is_survived_and_named(make, timeout_s, got):
    report = look(make, ConformanceSettings(steps=20, max_steps=100, timeout_s=timeout_s))
    assert names(report.failures) == {"misuse"}, str(report)
    assert report.failures[0].got == got


@pytest.mark.long
def test_misuse_without_a_crash_passes():
    for make in (faulty.Sound, faulty.vector()):
        report = look(make, ConformanceSettings(steps=20, max_steps=100))
        assert report.passed, str(report)
        assert next(f for f in report.findings if f.name == "misuse").outcome == "passed"


def drop(key):
    """Forgets an entry of the infos."""

    def change(env, returned):
        returned[-1].pop(key, None)
        return returned

    return faulty.altered(change)


def with_part(index, change, on="step"):
    """Changes one of the returned values."""

    def changed(env, returned):
        return *returned[:index], change(returned[index]), *returned[index + 1 :]

    return faulty.altered(changed, on)


NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
WIDE = with_part(0, lambda obs: obs.astype(np.float64))
SHORT_MASK = with_part(4, lambda infos: {**infos, "_x": np.ones(2, np.bool_)})
LISTED = with_part(4, lambda infos: {**infos, "x": [1.0, 1.0, 1.0], "_x": np.ones(3, np.bool_)})
VECTOR_FAULTS = {
    "wide": (faulty.vector(WIDE), "obs_dtype", "step 1: expected float32, got float64"),
    "shape": (
        faulty.vector(with_part(0, lambda obs: obs.T, on="reset"), env=faulty.Pair),
        "obs_shape",
        r"reset: expected the shape \(3, 2\), got \(2, 3\)",
    ),
    "bounds": (
        faulty.vector(env=faulty.OutOfBounds),
        "obs_bounds",
        "entry .* expected -0.5 to 0.5",
    ),
    "views": (faulty.vector(copy=False), "arrays_kept", "the observations of reset changed"),
    "rewards": (faulty.vector(faulty.OwnRewards, env=faulty.Paid), "arrays_kept", "the rewards of"),
    "list": (faulty.vector(with_part(1, list)), "reward", "step 1: got list"),
    "whole": (faulty.vector(with_part(1, np.int64)), "reward", r"an array \(3,\) of int64"),
    "flags": (faulty.vector(with_part(3, np.uint8)), "flags", "truncated: got an array .* uint8"),
    "mask": (faulty.vector(drop("_x")), "infos", r"step 1: infos\['x'\] has no mask"),
    "short": (faulty.vector(SHORT_MASK), "infos", r"infos\['_x'\]: a mask of \(3,\) bools is due"),
    "listed": (
        faulty.vector(LISTED),
        "infos",
        r"infos\['x'\]: an array of 3 rows is due, got list",
    ),
    "four": (faulty.vector(faulty.altered(lambda _, moved: moved[:4])), "step_returns", "tuple"),
    "mode": (faulty.vector(faulty.declaring(None)), "autoreset_mode", "is None"),
    "same as next": (faulty.vector(faulty.declaring(NEXT), SAME), "autoreset", "final_obs"),
    "next as same": (faulty.vector(faulty.declaring(SAME), NEXT), "autoreset", "is due for envs"),
    "same as none": (faulty.vector(faulty.declaring(DISABLED), SAME), "autoreset", "final_obs"),
    "acts": (faulty.vector(faulty.ActsOnReset), "autoreset", "depends on the action"),
    "pays": (faulty.vector(faulty.PaysOnReset), "autoreset", r"rewards \[1.0.*\] instead of 0"),
    "flagged": (faulty.vector(faulty.FlagsOnReset), "autoreset", "an end is flagged"),
    "no final": (faulty.vector(drop("final_obs"), SAME), "infos,autoreset", "final_obs"),
    "no final info": (faulty.vector(faulty.NoFinalInfo, SAME), "autoreset", "final_info"),
    "shows final": (faulty.vector(faulty.ShowsFinal, SAME), "autoreset", "the old episode's last"),
    "ignores": (faulty.vector(faulty.MaskIgnored, DISABLED), "autoreset", "another env changed"),
    "disturbs": (faulty.vector(faulty.MaskDisturbs, DISABLED), "autoreset", "was disturbed"),
    "unseeded": (faulty.vector(faulty.ForgetsSeed), "determinism", "differs at step 0"),
    "other": (
        faulty.vector(faulty.OtherReward, SAME, faulty.Paid),
        "single_equal",
        "env 1: reward",
    ),
    "once": (faulty.vector(faulty.CloseOnceVector), "close", "OSError: closed already"),
    "busy": (faulty.vector(faulty.BusyAccepted), "partial_busy", r"a second send to envs \[0, 1\]"),
    "ids": (faulty.vector(faulty.IdsUntold), "partial_env_id", r"infos\['env_id'\] is None"),
    "swapped": (faulty.vector(faulty.RowsSwapped), "partial_rows", "env 0, its step 1: depends on"),
    "rotated": (faulty.vector(faulty.IdsRotated), "partial_rows", "differs from a plain env's"),
    "placed": (faulty.vector(faulty.ActionsByPlace), "partial_rows", "depends on the order"),
}


@pytest.mark.parametrize("fault", VECTOR_FAULTS)
def test_a_vector_envs_fault_is_named_by_its_check_alone(fault):
    make, name, got = VECTOR_FAULTS[fault]
    report = look(make, single=make().env_fns[0])
    assert names(report.failures) == set(name.split(",")), str(report)
    assert not report.warnings, str(report)
    assert re.search(got, report.failures[-1].got), report.failures[-1].got


def test_envs_that_share_a_seed_are_a_warning():
    report = look(faulty.vector(faulty.OneSeed))
    assert report.passed
    assert names(report.warnings) == {"seed_per_env"}


def test_the_failure_carries_the_whole_report():
    with pytest.raises(TargetError) as raised:
        check(faulty.WideDtype, settings=QUICK)
    text = str(raised.value)
    assert text.startswith("WideDtype: 1 failed, 1 skipped, 21 passed\n")
    for line in (
        "  failed   obs_dtype",
        "           expected  observations have the dtype of observation_space",
        "           got       step 1: expected float32, got float64",
        "           to do     cast, for instance with np.asarray",
        "  skipped  misuse             not asked for (misuse=False)",
        "  passed   flags              terminated and truncated are bools",
    ):
        assert line in text.splitlines()
    assert check(faulty.Sound, settings=QUICK).passed


def test_a_maker_that_makes_no_env_is_a_finding():
    for make, got in ((lambda: 3, "int 3"), (lambda: 1 / 0, "ZeroDivisionError: division")):
        with pytest.raises(TargetError, match=got):
            check(make)


def test_settings_are_refused_before_anything_runs():
    with pytest.raises(SettingError, match=r"max_steps: expected a number above 0, got 0"):
        ConformanceSettings(max_steps=0)


def test_a_report_passes_unless_something_failed():
    fine = Finding("a", "passed", "x")
    assert Report("env", (fine, Finding("b", "warning", "x"), Finding("c", "skipped", "x"))).passed
    assert not Report("env", (fine, Finding("b", "failed", "x"))).passed


@pytest.mark.parametrize(
    ("space", "value", "aspects"),
    [
        (NESTED, {"a": 1, "b": (np.zeros(7),)}, []),
        (NESTED, {"a": 1, "b": [np.zeros(7)]}, ["shape"]),
        (NESTED, {"a": 5, "b": (np.zeros(7, np.float32),)}, ["bounds", "dtype"]),
        (NESTED, {"a": 1}, ["shape"]),
        (spaces.Discrete(3), 1.0, ["dtype"]),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), ["bounds"]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2], np.int32), ["dtype"]),
        (spaces.Box(0, 1, (2,)), [0.0, 1.0], ["shape"]),
        (spaces.Text(3), "four", ["shape"]),
    ],
)
def test_each_departure_from_a_space_is_named(space, value, aspects):
    assert [mismatch.aspect for mismatch in mismatches(space, value)] == aspects


def test_trees_are_compared_by_value():
    tree = {"a": (np.array([1.0, np.nan]), [1]), "b": np.array([None, "x"], object)}
    assert same(tree, {"a": (np.array([1.0, np.nan]), [1]), "b": np.array([None, "x"], object)})
    for other in (
        {"a": tree["a"]},
        {**tree, "b": np.array([None, "y"], object)},
        {**tree, "a": (np.array([1.0, 2.0]), [1])},
        {**tree, "a": (np.array([1.0, np.nan]),)},
    ):
        assert not same(tree, other)


@pytest.mark.long
def test_the_example_shows_the_fault_and_the_mended_env():
    example = Path(__file__).parents[2] / "examples" / "06_conformance.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True
    )
    faulty_report, mended_report = done.stdout.split("MendedTank: ")
    assert faulty_report.startswith("Tank: 1 failed")
    assert "failed   obs_kept" in faulty_report
    assert "failed" not in mended_report
