"""Ape-X: what goes into the replay, what is learned from it, and how much."""

import logging
import os
import signal
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

import hotloop
from hotloop.errors import CheckpointError, SettingError, TargetError
from hotloop.learn.apex import Apex, ApexSettings
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.learn.evaluate import Evaluation
from hotloop.learn.learner import LossError
from hotloop.learn.policies.explorer import action_values
from hotloop.learn.training import train
from hotloop.loop.control import process_control
from hotloop.loop.state import Snapshot, unsupported_parts
from support.learner_envs import env_id

SMALL = {"num_envs": 3, "fragment_steps": 10, "backend": "serial"}
LEARNS = SMALL | {"learn_after": 50, "batch_size": 32, "target_every": 3}


@pytest.fixture
def make():
    made = []

    def learner(env="Bandit", **settings):
        made.append(Apex(ApexSettings(env_id=env_id(env), **settings)))
        return made[-1]

    yield learner
    for one in made:
        one.close()


def everything(learner):
    """All transitions in the replay, in the order in which they came, and their priorities."""
    state = learner.replay.state_dict()
    obs, action, reward, discount, next_obs = state["transitions"]
    return obs, action, reward, discount, next_obs, state["priority"]


# --- what goes in ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 20])
def test_transitions_are_the_windows_of_the_episodes(make, n):
    gamma = 0.9
    learner = make("Numbered", n_step=n, gamma=gamma, learn_after=5_000, **SMALL)
    for _ in range(6):
        learner.iterate()
    obs, action, reward, discount, next_obs, _ = everything(learner)
    assert len(obs) == 6 * 30, "a transition for every step"
    assert len(np.unique(obs, axis=0)) == len(obs)
    short = 0
    for row in range(len(obs)):
        seed, episode, at = obs[row].astype(int)
        length = 1 + (7 * seed + 5 * episode) % 6
        assert next_obs[row, :2].tolist() == [seed, episode], "never another episode's"
        k = int(next_obs[row, 2]) - at
        assert 1 <= k <= n
        ends = at + k == length
        short += k < n and not ends  # at the end of a fragment
        plain = sum(gamma**j * (episode + (at + j + 1) / 8) for j in range(k))
        # What is left are the actions, of which the first is known.
        rest = (reward[row] - plain) * 1024 - action[row]
        assert -0.05 <= rest <= 2 * sum(gamma**j for j in range(1, k)) + 0.05
        over = ends and episode % 2 == 0
        assert discount[row] == pytest.approx(0.0 if over else gamma**k)
    assert short <= 6 * 3 * (n - 1)


@pytest.mark.parametrize("settings", [{}, {"dueling": False}, {"normalise_observations": True}])
def test_first_priorities_are_those_of_the_actors_values(make, settings):
    learner = make("Numbered", learn_after=5_000, priority_exponent=1.0, **SMALL, **settings)
    learner.iterate()
    obs, action, reward, discount, next_obs, priority = everything(learner)
    if settings.get("normalise_observations"):
        return  # what was counted since changes the values: only that it works
    q = action_values(*learner.policy.outputs(obs), dueling=learner.settings.dueling)
    following = learner.value_of(next_obs)
    error = reward + discount * following - q[np.arange(len(q)), action]
    np.testing.assert_allclose(priority, np.abs(error) + 1e-6, rtol=1e-4, atol=1e-5)


def test_a_reward_that_is_no_number_is_not_learned_from(make):
    learner = make("NotANumber", **SMALL)
    with pytest.raises(LossError, match="finite rewards"):
        learner.iterate()
    assert len(learner.replay) == 0


# --- what is learned -------------------------------------------------------------------------


def plain_update(learner, drawn):
    """Loss, errors and gradient, sample by sample."""
    s, policy, target = learner.settings, learner.policy, learner.target
    batch, losses, errors = drawn.transitions, [], []

    def q_of(network, obs):
        outputs, value = network(policy.tensors(obs[None]))
        if not s.dueling:
            return outputs[0]
        return value[0] + outputs[0] - outputs[0].mean()

    for i in range(len(drawn.number)):
        with torch.no_grad():
            following = q_of(target, batch.next_obs[i])
            chooses = q_of(policy, batch.next_obs[i]) if s.double else following
            y = float(batch.reward[i] + batch.discount[i] * following[chooses.argmax()])
        error = y - q_of(policy, batch.obs[i])[int(batch.action[i])]
        size = error.abs()
        huber = 0.5 * error**2 if size <= 1 else size - 0.5
        losses.append(float(drawn.weight[i]) * huber)
        errors.append(float(error.detach()))
    loss = torch.stack(losses).mean()
    policy.grad.zero_()
    loss.backward()
    return float(loss.detach()), np.array(errors), policy.grad.clone()


@pytest.mark.parametrize(
    "settings", [{}, {"double": False}, {"dueling": False}, {"importance_exponent": 1.0}]
)
def test_an_update_is_the_plain_one(make, settings):
    learner = make("OneAction", max_grad_norm=1e9, **LEARNS | {"target_every": 1000}, **settings)
    for _ in range(6):
        learner.iterate()
    drawn = learner.replay.draw(40, np.random.default_rng(0), beta=0.7)
    loss, errors, grad = plain_update(learner, drawn)
    assert float(grad.norm()) > 1e-3
    np.testing.assert_allclose(learner._update(drawn), errors, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(learner.policy.grad, grad, rtol=1e-3, atol=1e-4)
    assert learner.figures()["td_loss"] == pytest.approx(loss, rel=1e-3)


@pytest.mark.long
def test_every_ingredient_changes_what_is_learned(make):
    changes = [
        {},
        {"double": False},
        {"dueling": False},
        {"n_step": 1},
        {"priority_exponent": 0.0},
        {"importance_exponent": 1.0},
        {"replay_ratio": 6.0},
        {"replay_size": 100},
        {"target_every": 5},
        {"epsilon": 0.9},
        {"epsilon_spread": 0.0},
        {"gamma": 0.5},
        {"learn_after": 80},
        {"batch_size": 16},
        {"normalise_values": True},
    ]
    found = []
    for change in changes:
        learner = make("OneAction", **LEARNS | change)
        for _ in range(8):
            learner.iterate()
        found.append(learner.policy.flat.detach().numpy().copy())
    for i in range(len(found)):
        for j in range(i):
            assert not np.allclose(found[i], found[j], atol=1e-7), (changes[i], changes[j])


def test_the_same_settings_give_the_same_bits_here(make):
    found = []
    for _ in range(2):
        learner = make("OneAction", **LEARNS)
        for _ in range(8):
            learner.iterate()
        found.append(learner.policy.flat.detach().numpy().copy())
    np.testing.assert_array_equal(*found)


def test_the_target_network_is_a_copy_of_now_and_then(make):
    learner = make(**LEARNS)
    copies, before = [], learner.target.flat.detach().clone()
    update = learner._update

    def watched(drawn, moved):
        errors = update(drawn, moved)
        copies.append(torch.equal(learner.target.flat, learner.policy.flat))
        return errors

    learner.update = watched
    for _ in range(10):
        learner.iterate()
    assert copies == [(step + 1) % 3 == 0 for step in range(len(copies))]
    assert len(copies) > 10
    assert not torch.equal(before, learner.target.flat)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 7.5])
def test_so_many_transitions_are_drawn_for_each_step(make, ratio):
    learner = make(replay_ratio=ratio, **LEARNS)
    drawn, draw = [], learner.draw

    def counted():
        drawn.append(learner.settings.batch_size)
        return draw()

    learner.draw = counted
    learner.iterate()
    assert not drawn, "30 of the 50 transitions to begin with"
    for _ in range(40):
        learner.iterate()
    steps = 40 * 30
    assert abs(sum(drawn) - ratio * steps) <= 32


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns(make, seed):
    learner = make(
        seed=seed, learning_rate=3e-3, gamma=0.5, replay_ratio=8.0, **LEARNS | {"num_envs": 6}
    )
    for _ in range(40):
        learner.iterate()
    evaluation = Evaluation.of(env_id("Bandit"))
    assert evaluation(learner.policy).mean() > 9.5, "of 10, which the best policy gets"
    evaluation.close()
    assert learner.progress.mean_return > 5, "of those that explore least"


@pytest.mark.parametrize("env", ["Mixed", "Masked"])
def test_other_observations_are_taken(make, env):
    learner = make(env, **LEARNS)
    for _ in range(4):
        learner.iterate()
    assert np.isfinite(learner.figures()["td_loss"])


# --- as a loop, and saved --------------------------------------------------------------------


@pytest.mark.long
def test_the_loop_can_be_measured(make):
    loop = make(**LEARNS | {"replay_ratio": 8.0}).loop()
    assert not unsupported_parts(loop.state)
    assert (loop.name, loop.unit, loop.batches) == (f"apex:{env_id('Bandit')}", "env steps", 8)
    stages = {stage.name for stage in hotloop.run_benchmark(loop, seconds=0.5).summary.stages}
    assert stages == {
        *("act", "env step", "store", "fragment wait", "broadcast"),
        *("insert", "draw", "update", "set priorities"),
    }


def test_an_update_is_repeated_when_its_state_is_put_back(make):
    learner = make(**LEARNS)
    for _ in range(5):
        learner.iterate()
    snapshot, found = Snapshot(learner.state), []
    for _ in range(2):
        for _ in range(4):
            learner._update(learner._draw())
        found.append(learner.policy.flat.detach().numpy().copy())
        snapshot.restore()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("with_replay", [False, True])
def test_it_is_saved_and_goes_on(make, with_replay):
    settings = LEARNS | {"save_replay": with_replay}
    learner, other = make("OneAction", **settings), make("OneAction", **settings)
    for _ in range(8):
        learner.iterate()
    other.load_state_dict(learner.state_dict())
    assert len(other.replay) == (len(learner.replay) if with_replay else 0)
    np.testing.assert_array_equal(learner.target.flat.detach(), other.target.flat.detach())
    if not with_replay:
        other.iterate()
        return
    for one in (learner, other):
        for _ in range(5):
            drawn = one._draw()
            one.replay.set_errors(drawn.number, one._update(drawn))
    np.testing.assert_array_equal(learner.policy.flat.detach(), other.policy.flat.detach())


@pytest.mark.parametrize(
    "change",
    [
        {"target": np.zeros(3, np.float32)},
        {"counts": {"owed": float("nan"), "optimizer_steps": 1}},
        {"counts": {"owed": 0.0, "optimizer_steps": -1}},
        {"replay": {}},
        {"replay": {"added": 5, "priority": np.ones(5), "transitions": []}},
        {"replay": {"added": "x", "priority": np.ones(5), "transitions": []}},
        {"replay": None},
    ],
)
def test_a_state_of_something_else_is_refused(make, change):
    learner = make(save_replay=True, **LEARNS)
    learner.iterate()
    state = learner.state_dict()
    with pytest.raises(CheckpointError, match="state of apex"):
        learner.load_state_dict({**state, **change})


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n_step", 0), ("replay_size", 0), ("replay_ratio", 0.0), ("replay_ratio", np.inf)),
        *(("epsilon", 1.5), ("epsilon_spread", -1.0), ("priority_exponent", 2.0)),
        *(("importance_exponent", -0.1), ("batch_size", 0), ("target_every", 0)),
        *(("learn_after", 60_000), ("learn_after", 0), ("max_lag", -1)),
        *(("replay_shards", -1), ("replay_shards", 3), ("prefetch", 1), ("prefetch", -1)),
    ],
)
def test_settings_are_refused_by_name(name, value):
    named = "replay_size" if (name, value) == ("replay_shards", 3) else name
    with pytest.raises(SettingError, match=f"apex: {named}"):
        ApexSettings(**{name: value})


def test_shards_need_processes_or_actors():
    with pytest.raises(SettingError, match=r"replay_shards: .*'serial'.*'process' or 'ray'"):
        ApexSettings(backend="serial", replay_shards=2)
    with pytest.raises(SettingError, match=r"multiple of replay_shards, 3.*such as 50001, got"):
        ApexSettings(replay_shards=3)
    assert ApexSettings().batches_ahead == 0
    assert ApexSettings(replay_shards=2).batches_ahead > 0
    assert ApexSettings(replay_shards=2, prefetch=0).batches_ahead == 0


def test_a_replay_that_does_not_fit_is_refused(make, monkeypatch):
    class Memory:
        available = 10_000

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory)
    with pytest.raises(SettingError, match=r"at most 200, as a transition takes 40 bytes"):
        make(replay_size=5000, **SMALL)


@pytest.mark.parametrize("env", ["AnyMove", "ManyActions", "Switches"])
def test_other_actions_are_refused(make, env):
    with pytest.raises(TargetError, match="Discrete action space"):
        make(env, **SMALL)


def test_what_has_not_changed_is_not_sent(make):
    learner = make(**LEARNS)
    versions = []
    for _ in range(4):
        learner.iterate()
        versions.append(learner.actors.collector.policy_version)
    assert versions == [0, 1, 2, 3], "30 of the 50 transitions to begin with"


@pytest.mark.long
def test_its_actors_act_in_processes(make):
    learner = make(**LEARNS | {"backend": "process", "num_envs": 4, "num_workers": 2})
    for _ in range(20):
        learner.iterate()
    state = learner.replay.state_dict()
    assert state["added"] == 20 * 20
    assert learner.figures()["lag_max"] <= learner.settings.max_lag
    assert learner.counts.optimizer_steps > 0


# --- a replay in shards ----------------------------------------------------------------------

SHARDS = LEARNS | {
    **{"backend": "process", "num_envs": 4, "num_workers": 2},
    **{"replay_size": 1000, "replay_shards": 2, "replay_ratio": 8.0},
}


@pytest.mark.long
def test_it_learns_from_shards(make):
    learner = make(**SHARDS | {"learning_rate": 3e-3, "gamma": 0.5, "target_every": 10})
    for _ in range(80):
        learner.iterate()
    figures = learner.figures()
    assert figures["replay_size"] == len(learner.replay) == 1000
    assert (figures["replay_shards"], figures["transitions_lost"]) == (2, 0)
    assert figures["lag_max"] <= learner.settings.max_lag
    evaluation = Evaluation.of(env_id("Bandit"))
    assert evaluation(learner.policy).mean() > 9.5, "of 10, which the best policy gets"
    evaluation.close()


@pytest.mark.long
def test_it_goes_on_without_a_shard(make, caplog):
    learner = make(**SHARDS)
    while len(learner.replay) < 500:
        learner.iterate()
    os.kill(learner.replay._messages._pool._shards[1].process.pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "hotloop"):
        while learner.replay.restarts_left == 3:
            learner.iterate()
    assert "replay shard 1: it died" in caplog.text
    before = learner.counts.optimizer_steps
    for _ in range(20):
        learner.iterate()
    assert learner.counts.optimizer_steps > before
    assert learner.figures()["transitions_lost"] >= 200


@pytest.mark.slow
def test_it_waits_for_transitions_where_all_were_lost(make):
    learner = make(**SHARDS | {"replay_shards": 1})
    while learner.counts.optimizer_steps < 10:
        learner.iterate()
    os.kill(learner.replay._messages._pool._shards[0].process.pid, signal.SIGKILL)
    while learner.replay.restarts_left == 3:
        learner.iterate()
    before = learner.counts.optimizer_steps
    while learner.counts.optimizer_steps < before + 20:
        learner.iterate()
    assert len(learner.replay) >= 50


@pytest.mark.parametrize("others", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_shards_are_saved_and_go_on_in_another_number(make, others):
    settings = SHARDS | {"save_replay": True}
    learner = make(**settings)
    for _ in range(10):
        learner.iterate()
    state = learner.state_dict()
    other = make(**settings | {"replay_shards": others})
    other.load_state_dict(state)
    assert len(other.replay) == len(learner.replay) == 10 * 20
    for mine, saved in zip(
        other.replay.state_dict()["transitions"], state["replay"]["transitions"], strict=True
    ):
        np.testing.assert_array_equal(mine, saved)
    for _ in range(3):
        other.iterate()


@pytest.mark.slow
def test_a_resumed_training_may_have_another_number_of_shards(tmp_path):
    settings = ApexSettings(
        env_id=env_id("Bandit"),
        **SHARDS | {"save_replay": True, "total_steps": 400, "target_return": 1e9},
    )
    path = tmp_path / "a.checkpoint"
    train(settings, checkpoint=path)
    more = replace(settings, replay_shards=1, prefetch=0, total_steps=800)
    result = train(more, checkpoint=path, resume=load_checkpoint(path))
    assert result.standing.env_steps >= 800
    assert result.standing.figures["replay_size"] == result.standing.env_steps


@pytest.mark.slow
def test_the_loop_with_shards_can_be_measured(make):
    loop = make(**SHARDS).loop()
    assert not unsupported_parts(loop.state)
    stages = {stage.name for stage in hotloop.run_benchmark(loop, seconds=0.5).summary.stages}
    assert {"insert", "draw", "update", "set priorities"} <= stages
    assert process_control().stages["draw"].effect == "effectful"
