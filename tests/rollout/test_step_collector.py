"""StepCollector: exactly the planted transitions, in every mode, in groups or all at once."""

import itertools
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing

from hotloop import Loop
from hotloop.data import leaves, tree_map
from hotloop.envs import make_vec
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, TargetError
from hotloop.loop import drive
from hotloop.loop.control import process_control
from hotloop.loop.state import Snapshot
from hotloop.rollout import StepCollector, steps
from hotloop.rollout.buffering import MIN_WINDOWS, TRIAL_S, BufferingTrial
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.settings import SimplifySettings
from rollout.planted_envs import (
    MODES,
    Everything,
    PlantedEnv,
    TwoRewards,
    length_of,
    planted_vec,
    policy,
    truth,
)


def transitions(fragment, b):
    """The valid transitions of one column, as the truth has them, and where each arrived."""
    for t in range(fragment.spec.steps):
        if fragment.valid[t, b]:
            yield (
                (
                    tuple(fragment.obs[t, b].astype(int).tolist()),
                    int(fragment.action[t, b]),
                    float(fragment.reward[t, b]),
                    bool(fragment.terminated[t, b]),
                    bool(fragment.truncated[t, b]),
                ),
                tuple(fragment.all_next_obs[t, b].astype(int).tolist()),
            )


def check_truth(collector, fragments, width, seed=5):
    """Every number of the fragments against the planted envs."""
    truths = [truth(seed + b) for b in range(width)]
    finished, steps = [[] for _ in range(width)], 0
    for _ in range(fragments):
        fragment = collector.collect()
        assert fragment.env_ids.tolist() == list(range(width))
        np.testing.assert_array_equal(fragment.extras["log_prob"], -fragment.obs[..., 2])
        np.testing.assert_array_equal(fragment.extras["state"], fragment.obs[..., :2] * 2)
        ended = 0
        for b in range(width):
            for got, arrived in transitions(fragment, b):
                expected = next(truths[b])
                assert got == expected
                (first, episode, at), *_ = expected
                assert arrived == (first, episode, at + 1)
                steps += 1
                if got[3] or got[4]:
                    ended += 1
                    finished[b].append(episode)
            here = fragment.final_b == b
            for t, obs in zip(fragment.final_t[here], fragment.final_obs[here], strict=True):
                np.testing.assert_array_equal(obs, fragment.next_obs(t)[b])
        assert fragment.episodes == ended == len(fragment.episode_lengths)
        for record in fragment.endings:
            first, episode = (int(n) for n in fragment.obs[record["t"], record["b"], :2])
            assert record["length"] == length_of(first, episode)
    assert finished == [list(range(len(episodes))) for episodes in finished]
    assert collector.counts.env_steps == collector.counts.transitions == steps
    assert collector.counts.episodes == sum(map(len, finished)) > 10
    assert collector.counts.fragments == fragments


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["gymnasium", "hotloop", "hotloop in place"])
def test_planted_transitions(mode, engine):
    if engine == "gymnasium":
        envs = SyncVectorEnv([PlantedEnv] * 3, autoreset_mode=AutoresetMode[mode.upper()])
    else:
        envs = planted_vec(3, mode, copy=engine == "hotloop")
    check_truth(StepCollector(envs, policy, fragment_steps=17, seed=5), 4, 3)


@pytest.mark.parametrize("splits", [2, 3])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("copy", [True, False])
def test_planted_transitions_in_groups(mode, splits, copy):
    envs = planted_vec(6, mode, splits=splits, copy=copy)
    collector = StepCollector(envs, policy, fragment_steps=17, double_buffer=True, seed=5)
    assert collector.double_buffer
    check_truth(collector, 4, 6)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_groups_give_the_fragments_that_all_at_once_give(mode):
    collectors = [
        StepCollector(
            planted_vec(4, mode, splits=2), policy, fragment_steps=11, double_buffer=way, seed=2
        )
        for way in (False, True)
    ]
    for _ in range(5):
        one, other = (collector.collect() for collector in collectors)
        for name in ("obs", "last_obs", "action", "reward", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.endings, other.endings)
        for name, values in one.extras.items():
            np.testing.assert_array_equal(values, other.extras[name])


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_planted_transitions_in_groups_of_processes(mode):
    envs = make_vec(
        [PlantedEnv] * 4, backend="process", num_workers=2, autoreset_mode=mode, splits=2
    )
    try:
        collector = StepCollector(envs, policy, fragment_steps=17, double_buffer=True, seed=5)
        check_truth(collector, 4, 4)
        collector = StepCollector(envs, policy, fragment_steps=17, seed=5)  # both ways in turn
        check_truth(collector, 6, 4)
    finally:
        envs.close()


def test_policy_is_called_for_a_group_while_the_other_steps():
    sizes, under_way = [], []
    envs = planted_vec(4, splits=2)

    def watched(obs):
        sizes.append(len(obs))
        under_way.append(int(envs._busy.sum()))
        return policy(obs)

    collector = StepCollector(envs, watched, fragment_steps=8, double_buffer=True)
    collector.collect()
    sizes.clear(), under_way.clear()
    collector.collect()
    assert sizes == [2] * 16
    assert under_way == [0] + [2] * 15
    assert not envs._busy.any()  # nothing is under way between fragments


class Elsewhere(SerialVectorEnv):
    """Stands for envs that step elsewhere: by `now_s`, a group is ready 4 ms after it was sent."""

    now_s = 0.0

    def send(self, actions, env_ids=None):
        super().send(actions, env_ids)
        self.due = [*getattr(self, "due", ()), self.now_s + 0.004]

    def recv(self):
        self.now_s = max(self.now_s, self.due.pop(0))
        return super().recv()

    def step(self, actions):
        self.now_s += 0.004
        return super().step(actions)


@pytest.mark.parametrize("pays", [True, False])
def test_auto_measures_and_keeps_the_faster(pays, monkeypatch):
    """A policy whose time goes with the batch is hidden; one that always takes as long is not."""
    envs = Elsewhere([PlantedEnv] * 4, autoreset_mode="same_step", splits=2)
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=lambda: envs.now_s))

    def slow(obs):
        envs.now_s += 0.001 * len(obs) if pays else 0.008
        return policy(obs)

    collector = StepCollector(envs, slow, fragment_steps=12, double_buffer="auto", seed=5)
    assert collector.double_buffer is None
    assert "measuring" in collector.reason
    check_truth(collector, 14, 4)  # measured on fragments that count
    assert collector.double_buffer is pays
    assert ("double buffering pays" if pays else "does not pay") in collector.reason
    assert f"{8 if pays else 12} ms without" in collector.reason


def test_trial_alternates_and_ends():
    trial, ways = BufferingTrial(), []
    while not trial.over:
        ways.append(trial.buffered)
        trial.note(0.03 if trial.buffered else 0.04, 10)
    assert ways[:8] == [False, True, True, False, False, True, True, False]
    assert sum(ways) * 2 == len(ways) >= 2 * MIN_WINDOWS
    assert trial.spent_s >= TRIAL_S
    assert trial.verdict()[0]
    trial.seconds = {False: [1.0] * 4, True: [0.99] * 4}
    assert not trial.verdict()[0]  # one in a hundred is not worth a second call


def test_double_buffering_that_is_not_possible_is_refused_or_explained():
    with pytest.raises(SettingError, match=r"double_buffer=True: .* make it with splits=2"):
        StepCollector(planted_vec(4), policy, fragment_steps=4, double_buffer=True)
    auto = StepCollector(planted_vec(4), policy, fragment_steps=4)
    assert auto.double_buffer is False
    assert "splits=2" in auto.reason
    with pytest.raises(SettingError, match="reset themselves"):
        StepCollector(
            planted_vec(4, "disabled", splits=2), policy, fragment_steps=4, double_buffer=True
        )


def test_every_kind_of_space():
    def act(obs):
        here = obs["pair"][0]
        return (here % 4, np.full((len(here), 2), 0.5, np.float32)), {"here": here}

    for splits in (1, 2):
        envs = SerialVectorEnv([Everything] * 2, autoreset_mode="same_step", splits=splits)
        collector = StepCollector(envs, act, fragment_steps=4, double_buffer=splits == 2)
        collector.collect()
        fragment = collector.collect()  # its first step is the second of an episode
        assert fragment.obs["pair"][1][:, 0].tolist() == ["x", "xx", "", "x"]
        assert fragment.obs["place"][:, 1, 0].tolist() == [1, 2, 0, 1]
        assert fragment.action[0][:, 1].tolist() == [1, 2, 0, 1]
        assert fragment.reward[:, 0].tolist() == [3, 4, 2, 3]
        assert fragment.last_obs["pair"][1].tolist() == ["xx", "xx"]
        assert fragment.final_obs["pair"][1].tolist() == ["xxx", "xxx"]
        assert fragment.episode_returns.tolist() == [9, 9]
        assert fragment.extras["here"][:, 0].tolist() == [1, 2, 0, 1]
        assert len(list(leaves(fragment.action))) == 2


@pytest.mark.parametrize("splits", [1, 2])
def test_stored_types_and_the_actions_that_envs_receive(splits):
    """The stored action is the policy's own; envs receive what `to_env` makes of it."""
    received = []

    def to_env(action):
        received.append(np.floor(action).astype(np.int64))
        return received[-1]

    def fractional(obs):
        return policy(obs)[0] + 0.5, {}

    collector = StepCollector(
        planted_vec(4, splits=splits),
        fractional,
        fragment_steps=6,
        double_buffer=splits == 2,
        dtypes={"obs": np.float32, "action": np.float64, "reward": np.float16},
        to_env=to_env,
    )
    fragment = collector.collect()
    assert fragment.obs.dtype == np.float32
    assert fragment.action.dtype == np.float64
    assert fragment.reward.dtype == np.float16
    assert (fragment.action % 1 == 0.5).all()
    expected = np.sort(np.floor(fragment.action).ravel())
    np.testing.assert_array_equal(np.sort(np.concatenate(received)), expected)


def test_types_that_do_not_fit_are_refused():
    with pytest.raises(SettingError, match="got 'rewards'; did you mean 'reward'"):
        StepCollector(planted_vec(2), policy, fragment_steps=4, dtypes={"rewards": np.float32})
    with pytest.raises(SettingError, match="'obs': expected none with frame_stack"):
        StepCollector(
            planted_vec(2), policy, fragment_steps=4, dtypes={"obs": np.float32}, frame_stack=3
        )


def test_steps_of_envs_in_other_processes_are_never_replaced():
    envs = make_vec([PlantedEnv] * 2, backend="process", num_workers=1)
    try:
        collector = StepCollector(envs, policy, fragment_steps=4)
        names = ("_act", "_step", "_send", "_wait", "_store")
        effects = [getattr(collector, name).stage.effect for name in names]
        assert effects == ["stateful", *["effectful"] * 4]
        assert collector.state == []
    finally:
        envs.close()
    collector = StepCollector(planted_vec(2), policy, fragment_steps=4)
    assert collector._step.stage.effect == collector._store.stage.effect == "stateful"
    assert collector.state == [collector]


def test_vector_rewards_of_any_vector_env():
    collector = StepCollector(TwoRewards(), zeros, fragment_steps=5)
    collector.collect()
    fragment = collector.collect()
    assert fragment.reward.shape == (5, 2, 2)
    assert fragment.reward[:, 1].tolist() == [[6, -6], [7, -7], [8, -8], [9, -9], [10, -10]]
    assert fragment.episode_returns.tolist() == [[15, -15]] * 2 + [[24, -24]] * 2
    assert fragment.episode_lengths.tolist() == [3, 3, 3, 3]
    assert fragment.final_obs.tolist() == [[3]] * 4


@pytest.mark.parametrize("mode", MODES)
def test_next_observations_of_all_steps_are_those_of_each(mode):
    collector = StepCollector(planted_vec(2, mode), policy, fragment_steps=30)
    for follows_reset in (True, False):
        fragment = collector.collect()
        assert len(fragment.endings) > 5
        each = [fragment.next_obs(t) for t in range(30)]
        np.testing.assert_array_equal(fragment.all_next_obs, each)
        assert fragment.follows_reset == follows_reset
    collector.reset()
    assert collector.collect().follows_reset
    with_text = SerialVectorEnv([Everything] * 2, autoreset_mode=mode)
    nested = StepCollector(with_text, act_on_everything, fragment_steps=7).collect()
    for t in range(7):
        one = leaves(tree_map(lambda rows, t=t: rows[t], nested.all_next_obs))
        for got, expected in zip(one, leaves(nested.next_obs(t)), strict=True):
            np.testing.assert_array_equal(got, expected)


def act_on_everything(obs):
    number = len(obs["place"])
    return (np.zeros(number, np.int64), np.zeros((number, 2), np.float32)), {}


def test_versions_are_stamped_where_they_change():
    versions = itertools.count()
    collector = StepCollector(planted_vec(2), policy, fragment_steps=6, policy_version=10)

    def changing(obs):
        if next(versions) == 3:
            collector.update(changing, 11)
        return policy(obs)

    collector.policy = changing
    assert collector.collect().versions.tolist() == [10, 10, 10, 11, 11, 11]
    collector.update(policy, 12)
    fragment = collector.collect()
    assert fragment.versions.tolist() == [12] * 6
    assert fragment.policy_version == 12


def test_a_step_lost_with_a_worker_is_no_transition():
    class Loses(SerialVectorEnv):
        def step(self, actions):
            self.n = getattr(self, "n", 0) + 1
            if self.n == 3:
                self._group.lose(1, self.last[1])
            got = super().step(actions)
            self.last = got[0]
            return got

    for mode in ("same_step", "next_step", "disabled"):
        envs = Loses([PlantedEnv] * 2, autoreset_mode=mode)
        collector = StepCollector(envs, policy, fragment_steps=5, seed=2)
        fragment = collector.collect()
        assert not fragment.valid[2, 1]
        assert fragment.truncated[2, 1]
        lost = fragment.endings[fragment.endings["lost"]]
        assert lost[["t", "b"]].tolist() == [(2, 1)]
        assert fragment.env_steps == fragment.valid.sum()
        # It arrived where it was: nothing else is known.
        np.testing.assert_array_equal(fragment.next_obs(2)[1], fragment.obs[2, 1])


def test_frames_count_what_the_simulator_plays():
    def made(**settings):
        return SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.SAME_STEP
        )

    assert StepCollector(made(), zeros, fragment_steps=10).collect().frames == 10
    assert StepCollector(made(), zeros, fragment_steps=10, frame_skip=5).collect().frames == 50


def test_frame_skip_is_taken_from_the_spec():
    pytest.importorskip("ale_py")

    def made():
        return AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1), noop_max=1)

    envs = SyncVectorEnv([made], autoreset_mode=AutoresetMode.SAME_STEP)
    collector = StepCollector(envs, lambda obs: np.zeros(1, np.int64), fragment_steps=3)
    assert collector.collect().frames == 12
    assert collector.counts.frames == 12


def test_errors_say_what_to_do():
    envs = planted_vec(2)
    envs.metadata = {}
    with pytest.raises(TargetError, match=r"metadata\['autoreset_mode'\]: expected"):
        StepCollector(envs, policy, fragment_steps=4)
    with pytest.raises(SettingError, match="fragment_steps: expected a number above 0, got 0"):
        StepCollector(planted_vec(2), policy, fragment_steps=0)
    silent = TwoRewards()
    step = silent.step
    silent.step = lambda actions: (*step(actions)[:4], {})
    with pytest.raises(TargetError, match=r"env 0: .* in step 2: expected infos\['final_obs'\]"):
        StepCollector(silent, zeros, fragment_steps=4).collect()
    collector = StepCollector(planted_vec(2), lambda obs: (obs, 1, 2), fragment_steps=4)
    with pytest.raises(TargetError, match="policy: expected an action or"):
        collector.collect()


def test_state_is_complete():
    """Putting the collector back repeats what followed, to the bit."""
    envs = SerialVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode="same_step")
    rng = np.random.default_rng(1)

    class Drawing:
        def __init__(self):
            self.rng = rng

        def __call__(self, obs):
            return self.rng.integers(0, 2, len(obs))

    collector = StepCollector(envs, Drawing(), fragment_steps=30, seed=1)
    collector.collect()
    snapshot = Snapshot([collector])
    outcomes = []
    for _ in range(2):
        fragment = [collector.collect().copy() for _ in range(3)][-1]
        outcomes.append((fragment.obs, fragment.action, fragment.endings, collector.counts))
        snapshot.restore()
    for one, other in zip(outcomes[0][:3], outcomes[1][:3], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_loop_around_it_can_be_measured():
    envs = SerialVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, autoreset_mode="same_step")
    collector = StepCollector(envs, policy_of_cartpole, fragment_steps=32, seed=1)
    loop = Loop(body=lambda: collector.collect().env_steps, unit="env steps", state=[collector])
    control = process_control()
    experiment = Experiment(control, SimplifySettings(budget=9.0, aa_pairs=1))
    drive(loop, experiment.run(loop), control)
    stages = {stage.name: stage for stage in experiment.record.stages}
    assert {"act", "env step", "store"} <= {n for n, s in stages.items() if s.replaceable}
    assert experiment.record.ns
    envs.close()


def zeros(obs):
    return np.zeros(len(obs), np.int64)


def policy_of_cartpole(obs):
    return (obs[:, 2] > 0).astype(np.int64)
