"""Synthetic envs: what they cost, number and break is what their settings say."""

import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.errors import SettingError, ShapeError, TargetError
from hotloop.testing.synthetic import (
    Counters,
    Duration,
    Failure,
    Ledger,
    SyntheticEnv,
    SyntheticSettings,
    SyntheticVectorEnv,
    read_counters,
    synthetic_fns,
)
from support.clock import FakeClock

SPACES = {
    "bytes": None,
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "float32": spaces.Box(-np.inf, np.inf, (3, 2), np.float32),
    "int32": spaces.Box(-(2**30), 2**30, (9,), np.int32),
    "dict": spaces.Dict(
        small=spaces.Discrete(3),
        tall=spaces.Tuple((spaces.Box(-1, 1, (9,)), spaces.Box(-1e9, 1e9, (6,), np.float64))),
    ),
    "bounded": spaces.Box(-1, 1, (9,), np.float32),
    "discrete": spaces.Discrete(4),
    "text": spaces.Text(5),
}


def drive(env, steps, seed=5):
    """(observations, rewards, flags, infos) of `steps` steps, episodes begun as they end."""
    seen = [env.reset(seed=seed)]
    for step in range(steps):
        moved = env.step(step % 2)
        seen.append(moved)
        if moved[2] or moved[3]:
            seen.append(env.reset())
    return seen


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other)


@pytest.mark.parametrize("name", SPACES)
def test_everything_follows_from_the_seed(name):
    settings = SyntheticSettings(
        observation_space=SPACES[name], episode_steps=(2, 9), reward=(-1.0, 1.0)
    )
    one, other = SyntheticEnv(settings), SyntheticEnv(settings)
    first = drive(one, 40)
    drive(other, 7, seed=99)
    again = drive(other, 40)
    assert same(first, again)
    assert not same(first, drive(SyntheticEnv(settings), 40, seed=6))
    assert all(settings.space.contains(moved[0]) for moved in first)


@pytest.mark.parametrize("name", SPACES)
def test_counters_say_where_every_observation_comes_from(name):
    settings = SyntheticSettings(observation_space=SPACES[name], episode_steps=3)
    envs = SyncVectorEnv(synthetic_fns(4, settings))
    obs, infos = envs.reset(seed=1)
    ledger = Ledger()
    ledger.add(read_counters(obs, infos))
    for step in range(1, 20):
        actions = np.array([0, 1, 1, 0])
        obs, _, _, _, infos = envs.step(actions)
        counters = read_counters(obs, infos)
        ledger.add(counters)
        position = step % 4
        assert counters.env_id.tolist() == [0, 1, 2, 3]
        assert counters.step.tolist() == [position] * 4
        assert counters.episode.tolist() == [1 + step // 4] * 4
        assert counters.action.tolist() == (actions.tolist() if position else [-1] * 4)
    assert ledger.transitions == 4 * 15


def test_bounded_spaces_carry_the_counters_in_the_infos_only():
    assert "counters" not in SyntheticEnv().reset(seed=0)[1]
    for name in ("bounded", "discrete", "text"):
        env = SyntheticEnv(SyntheticSettings(observation_space=SPACES[name]), env_id=7)
        obs, info = env.reset(seed=0)
        assert info["counters"][1] == 7
        with pytest.raises(ShapeError, match="none that does"):
            read_counters(np.asarray([obs]))


def test_actions_are_told_apart_by_value_not_by_type():
    for action_space in (spaces.Box(-1, 1, (3,), seed=1), spaces.MultiDiscrete([3, 4], seed=1)):
        env = SyntheticEnv(SyntheticSettings(action_space=action_space))
        env.reset(seed=0)
        action, other = action_space.sample(), action_space.sample()
        numbers = [
            read_counters(env.step(handed)[0][None]).action[0]
            for handed in (action, action.astype(np.float64), other)
        ]
        assert numbers[0] == numbers[1] != numbers[2]


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"step": 3, "total": 3}, "lost"),
        ({"step": 1, "total": 1}, "doubled"),
        ({"episode": 3, "step": 0, "total": 1}, "an episode lost"),
        ({"step": 2, "total": 3}, "another life"),
    ],
)
def test_the_ledger_finds_what_went_wrong(change, got):
    def row(episode=1, step=2, total=2, env_id=4):
        return Counters(*(np.array([x]) for x in (env_id, episode, step, total, 0)))

    ledger = Ledger()
    ledger.add(row(step=1, total=1))
    with pytest.raises(TargetError, match="env 4: expected"):
        ledger.add(row(**change))
    ledger.add(row())
    ledger.restarted(4)
    ledger.add(row(episode=1, step=0, total=0))
    assert ledger.transitions == 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("name", ["bytes", "float32"])
def test_fast_equals_plain(mode, ending, name):
    settings = SyntheticSettings(
        observation_space=SPACES[name],
        episode_steps=(1, 6),
        reward=(0.0, 2.0),
        ending=ending,
        info={"lives": 3, "nested": {"x": 1.5}},
        action_space=spaces.MultiDiscrete([3, 3]),
    )
    fast = SyntheticVectorEnv(5, settings, autoreset_mode=mode)
    plain = SyncVectorEnv(synthetic_fns(5, settings), autoreset_mode=mode)
    assert fast.observation_space == plain.observation_space
    assert same(fast.reset(seed=3), plain.reset(seed=3))
    ends = 0
    for _ in range(40):
        actions = plain.action_space.sample()
        got, expected = fast.step(actions), plain.step(actions)
        for one, other in zip(got[:4], expected[:4], strict=True):
            assert one.dtype == other.dtype
        ended = expected[2] | expected[3]
        ends += ended.sum()
        finals = [infos.pop("final_obs", [None]) for infos in (got[4], expected[4])]
        assert same(list(finals[0]), list(finals[1]))
        assert same(got, expected)
        if mode == AutoresetMode.DISABLED and ended.any():
            masks = [{"reset_mask": ended.copy()} for _ in range(2)]
            assert same(fast.reset(options=masks[0]), plain.reset(options=masks[1]))
    assert ends > 20
    assert same(fast.reset(), plain.reset())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_ledger_follows_the_vector_env(mode):
    envs = SyntheticVectorEnv(
        6, SyntheticSettings(episode_steps=(1, 4)), first_env_id=10, autoreset_mode=mode
    )
    ledger = Ledger(mode)
    ledger.add(read_counters(envs.reset(seed=0)[0]))
    for _ in range(30):
        ledger.add(read_counters(envs.step(np.zeros(6, np.int64))[0]))
    total = read_counters(envs.reset()[0]).total
    assert ledger.transitions == total.sum() > 60


def test_durations_are_what_was_set():
    clock = FakeClock()
    settings = SyntheticSettings(
        step=Duration(0.002), reset=Duration(0.5, kind="busy"), episode_steps=50
    )
    env = SyntheticEnv(settings, clock=clock)
    start = clock.now_ns()
    env.reset(seed=0)
    reset_at = clock.now_ns()
    env.step(0)
    assert reset_at - start == pytest.approx(0.5e9, rel=1e-6)
    assert clock.now_ns() - reset_at == pytest.approx(0.002e9, rel=1e-6)
    assert clock.thread_cpu_ns() >= 0.5e9 * 0.99


def test_a_vector_step_lasts_as_long_as_one_envs():
    clock = FakeClock()
    envs = SyntheticVectorEnv(48, SyntheticSettings(step=Duration(0.01)), clock=clock)
    envs.reset(seed=0)
    start = clock.now_ns()
    envs.step(np.zeros(48, np.int64))
    assert clock.now_ns() - start == pytest.approx(0.01e9, rel=1e-6)


def test_drawn_durations_have_their_median_and_stragglers():
    rng = np.random.default_rng(0)
    spread = Duration(2.0, spread=0.5)
    assert np.median([spread.draw_s(rng) for _ in range(4000)]) == pytest.approx(2.0, rel=0.05)
    stragglers = Duration(1.0, straggler_share=0.1, straggler_factor=7.0)
    drawn = np.array([stragglers.draw_s(rng) for _ in range(4000)])
    assert set(np.unique(drawn)) == {1.0, 7.0}
    assert (drawn == 7.0).mean() == pytest.approx(0.1, abs=0.02)
    assert {stragglers.draw_s(rng, parallel=200) for _ in range(20)} == {7.0}


def test_durations_do_not_change_what_is_returned():
    timed = SyntheticSettings(
        step=Duration(1e-7, spread=1.0, straggler_share=0.2), episode_steps=(2, 9)
    )
    assert same(
        drive(SyntheticEnv(timed), 30),
        drive(SyntheticEnv(SyntheticSettings(episode_steps=(2, 9))), 30),
    )


def test_an_imprecise_sleep_is_right_on_average(monkeypatch):
    clock = FakeClock()
    # A machine that wakes sleepers 0.3 ms late.
    late = lambda seconds: clock.wait_ns(seconds * 1e9 + 300_000)  # noqa: E731
    monkeypatch.setattr("hotloop.testing.synthetic.behaviour.time.sleep", late)
    settings = SyntheticSettings(step=Duration(0.001, precise=False), episode_steps=99)
    env = SyntheticEnv(settings, clock=clock)
    env.reset(seed=0)
    start = clock.now_ns()
    for _ in range(50):
        env.step(0)
    assert 0 <= clock.now_ns() - start - 50e6 <= 300_000


def test_observations_are_copies():
    env = SyntheticEnv()
    obs, _ = env.reset(seed=0)
    kept = obs.copy()
    later = env.step(1)[0]
    np.testing.assert_array_equal(obs, kept)
    assert not np.shares_memory(obs, later)


def test_a_step_outside_of_an_episode_is_refused():
    env = SyntheticEnv(SyntheticSettings(episode_steps=1))
    with pytest.raises(ResetNeeded, match="before the reset"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ResetNeeded, match="after the end"):
        env.step(0)
    envs = SyntheticVectorEnv(2, SyntheticSettings(episode_steps=1), autoreset_mode="Disabled")
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros(2, np.int64))
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match=r"\[0, 1\]"):
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("call", ["step", "reset"])
@pytest.mark.parametrize("vector", [False, True])
def test_a_planned_error_comes_in_its_env_at_its_call(call, vector):
    failure = Failure("raise", at=3, env_id=1, call=call)
    settings = SyntheticSettings(episode_steps=1, failures=(failure,))
    envs = SyntheticVectorEnv(3, settings) if vector else SyncVectorEnv(synthetic_fns(3, settings))
    envs.reset(seed=0)
    # Episodes of one step: the calls after the first reset step, reset, step, ...
    for _ in range(3 + (call == "step")):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match=f"env 1: planned failure in {call} 3"):
        envs.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("vector", [False, True])
def test_failures_count_over_a_life_counters_from_a_seed(vector):
    settings = SyntheticSettings(failures=(Failure("raise", at=4),))
    envs = SyntheticVectorEnv(2, settings) if vector else SyncVectorEnv(synthetic_fns(2, settings))
    for _ in range(3):
        assert read_counters(envs.reset(seed=0)[0]).episode.tolist() == [1, 1]
        assert read_counters(envs.step(np.zeros(2, np.int64))[0]).total.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="env 0: planned failure in step 4"):
        envs.step(np.zeros(2, np.int64))


def test_a_marker_lets_a_failure_happen_once(tmp_path):
    failure = Failure("raise", at=2, once_marker=str(tmp_path / "failed"))
    settings = SyntheticSettings(failures=(failure,))
    with pytest.raises(RuntimeError, match="planned"):
        drive(SyntheticEnv(settings, env_id=0), 5)
    drive(SyntheticEnv(settings, env_id=1), 5)


def test_a_hang_ends_when_told():
    drive(SyntheticEnv(SyntheticSettings(failures=(Failure("hang", at=2, hang_s=0.01),))), 5)


@pytest.mark.parametrize(
    ("kind", "code"), [("exit", 3), ("kill", -9), ("segfault", -11)], ids=lambda x: str(x)
)
def test_a_process_dies_as_planned(kind, code, tmp_path):
    marker = tmp_path / "died"
    failure = f"Failure({kind!r}, 2, once_marker={str(marker)!r})"
    script = f"""
from hotloop.testing.synthetic import *
env = SyntheticEnv(SyntheticSettings(failures=({failure},)))
env.reset(seed=0); env.step(0); env.step(0)
print("lived")
"""
    command = [sys.executable, "-c", script]
    died = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (died.returncode, died.stdout) == (code, "")
    assert marker.exists()


def test_makers_and_envs_can_be_pickled():
    settings = SyntheticSettings(episode_steps=3, info={"x": 1})
    for maker in pickle.loads(pickle.dumps(synthetic_fns(2, settings))):
        env = maker()
        drive(env, 4)
        copied = pickle.loads(pickle.dumps(env))
        assert same(copied.step(0), env.step(0))
    vector = SyntheticVectorEnv(2, settings)
    vector.reset(seed=0)
    copied = pickle.loads(pickle.dumps(vector))
    assert same(copied.step(np.zeros(2, np.int64)), vector.step(np.zeros(2, np.int64)))


def test_gymnasiums_own_checker_agrees():
    from gymnasium.utils.env_checker import check_env

    settings = SyntheticSettings(observation_space=SPACES["int32"], reward=(-1.0, 1.0))
    env = SyntheticEnv(settings)
    env.spec = gymnasium.envs.registration.EnvSpec("Synthetic-v0", entry_point=lambda: env)
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Duration(-1.0), r"Duration.seconds: .* got -1.0"),
        (lambda: Duration(1.0, kind="nap"), r"kind: expected 'sleep' or 'busy', got 'nap'"),
        (lambda: Duration(1.0, straggler_share=2.0), r"straggler_share: expected 0 to 1"),
        (lambda: Failure("explode", at=1), r"kind: .* got 'explode'"),
        (lambda: Failure("raise", at=0), r"at: expected a call's number, from 1, got 0"),
        (lambda: Failure("raise", at=1, call="close"), r"call: .* got 'close'"),
        (lambda: SyntheticSettings(episode_steps=(5, 2)), r"episode_steps: .* got \(5, 2\)"),
        (lambda: SyntheticSettings(obs_bytes=8), r"obs_bytes: expected at least 48.* got 8"),
        (lambda: SyntheticSettings(ending="done"), r"ending: .* got 'done'"),
        (lambda: SyntheticVectorEnv(0), r"num_envs: expected 1 or more, got 0"),
        (
            lambda: SyntheticVectorEnv(2, SyntheticSettings(observation_space=spaces.Discrete(2))),
            r"observation space: expected a Box .* got Discrete\(2\)",
        ),
    ],
)
def test_messages(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_seeds_of_another_number_are_refused():
    with pytest.raises(ValueError, match="num_envs=2 but got length=1"):
        SyntheticVectorEnv(2).reset(seed=[1])
