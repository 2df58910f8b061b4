"""Where the policy acts: every learner at the head, beside its envs, or with a server."""

import copy
import logging
import os
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import ClassVar

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from hotloop.errors import SettingError, WorkerError
from hotloop.learn import places
from hotloop.learn.actors import Actors
from hotloop.learn.algorithms import learner_type
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.learn.places import first_as_fast, placed
from hotloop.learn.policies.actor import Weights
from hotloop.learn.policies.policy import make_policy
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.learn.steps import Steps
from hotloop.learn.training import Trainer, train
from hotloop.rollout import FragmentCollector
from support.learner_envs import env_id
from support.wait import wait_until

ALGORITHMS = ("ppo", "appo", "impala", "apex")
ELSEWHERE = ("envs", "server")
WORKERS = {"backend": "process", "num_workers": 2}
SMALL = {"num_envs": 4, "fragment_steps": 10, **WORKERS}


@pytest.fixture
def make():
    """Makes learners; sees that nothing of them is left."""
    before = set(psutil.Process().children(recursive=True))

    def running():
        return [
            child
            for child in set(psutil.Process().children(recursive=True)) - before
            if child.is_running()
        ]

    with ExitStack() as stack:

        def made(algorithm, **settings):
            kind = learner_type(algorithm)
            learner = kind(kind.settings_type(**{**SMALL, **settings}))
            stack.callback(learner.close)
            return learner

        yield made
    wait_until(lambda: not running(), "workers and servers have ended")


# --- every learner in every place ----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "place"),
    # That appo and apex act beside their envs stands in tests of their own.
    [
        *((algorithm, "server") for algorithm in ALGORITHMS),
        *(("ppo", place) for place in ("head", "envs")),
        *((algorithm, "head") for algorithm in ("impala", "apex")),
    ],
)
def test_every_learner_learns_from_steps_of_every_place(make, algorithm, place):
    extra = {"learn_after": 20, "batch_size": 16} if algorithm == "apex" else {}
    learner = make(algorithm, policy_at=place, **extra)
    learner.wait_until_started()
    before = learner.policy.flat.detach().clone()
    steps = sum(learner.iterate() for _ in range(6))
    assert learner.progress.env_steps == steps > 0
    assert not torch.equal(learner.policy.flat, before)
    figures = learner.figures()
    assert ("server_batch_rows" in figures) == (place == "server")
    if place == "server":
        assert 0 < figures["server_batch_rows"] <= 4
        assert 0 < figures["server_busy"] < 1


@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_at_the_head_no_fragment_is_late(make, algorithm):
    learner = make(algorithm, policy_at="head")
    for _ in range(4):
        learner.iterate()
        assert learner.figures()["lag_max"] == 0
    assert learner.in_flight == 0


@pytest.mark.long
@pytest.mark.parametrize("place", ELSEWHERE)
def test_ppo_elsewhere_is_on_policy(make, place):
    """Every step was acted by the parameters that learn from it."""
    learner = make("ppo", policy_at=place)
    for update in range(4):
        fragments = learner._collect()
        assert [int(f.env_ids[0]) for f in fragments] == [0, 2]
        for fragment in fragments:
            assert (fragment.versions == update).all()
            _, value = learner.policy.outputs(fragment.obs.reshape(-1, *fragment.obs.shape[2:]))
            np.testing.assert_allclose(
                fragment.extras["value"].ravel(), value, rtol=1e-4, atol=1e-5
            )
        steps = Steps.of(fragments)
        learner.update(steps, *learner.advantages(steps))
        learner.collector.update(learner.policy.weights())


@pytest.mark.long
def test_a_server_that_is_replaced_acts_by_the_newest_parameters(make):
    learner = make("ppo", policy_at="server")
    for update in range(5):
        if update in (1, 3):
            server = learner.collector._workers._server._home._programs[0].process
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
        fragments = learner._collect()
        assert {int(version) for f in fragments for version in f.versions} == {update}
        learner.collector.update(learner.policy.weights())


@pytest.mark.long
def test_ppo_beside_the_envs_is_repeatable_to_the_bit(make):
    parameters = []
    for _ in range(2):
        learner = make("ppo", policy_at="envs")
        for _ in range(4):
            learner.iterate()
        parameters.append(learner.policy.flat.detach().clone())
    assert torch.equal(*parameters)


@pytest.mark.slow
def test_a_resumed_ppo_beside_its_envs_meets_the_unbroken_one(tmp_path):
    settings = PPOSettings(
        **SMALL, policy_at="envs", total_steps=240, anneal=False, evaluate_every=10_000
    )
    whole, part = tmp_path / "whole.checkpoint", tmp_path / "part.checkpoint"
    train(settings, checkpoint=whole, checkpoint_every=120)
    train(replace(settings, total_steps=120), checkpoint=part, checkpoint_every=120)
    saved = load_checkpoint(part)
    with Trainer(settings, checkpoint=part, checkpoint_every=120, resume=saved) as trainer:
        trainer.run()
    one, other = load_checkpoint(whole), load_checkpoint(part)
    np.testing.assert_array_equal(
        one.state["policy"]["parameters"], other.state["policy"]["parameters"]
    )


@pytest.mark.long
def test_only_with_a_server_ppo_promises_no_bits(make):
    assert make("ppo", policy_at="envs").synchronous
    assert not make("ppo", policy_at="server").synchronous


@pytest.mark.parametrize("place", ["envs", pytest.param("server", marks=pytest.mark.slow)])
def test_ppo_goes_on_when_a_worker_is_killed(make, place, caplog):
    learner = make("ppo", policy_at=place)
    learner.iterate()
    pool = learner.collector._workers
    os.kill(getattr(pool, "_pool", pool)._workers[0].process.pid, signal.SIGKILL)
    for _ in range(3):
        assert learner.iterate() == 40
    assert "fragment worker 0: it died" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("place", ["head", *ELSEWHERE])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_learner_solves_its_task_in_every_place(algorithm, place):
    settings = learner_type(algorithm).settings_type
    made = settings(**WORKERS, policy_at=place, target_return=300, total_steps=400_000)
    assert train(made).solved


# --- steps side by side --------------------------------------------------------------------------


def test_steps_side_by_side_are_those_of_the_fragments():
    learner = PPO(PPOSettings(env_id=env_id("Bandit"), num_envs=4, fragment_steps=10))
    try:
        fragments = [learner.collector.collect().copy() for _ in range(2)]
        joined = Steps.of(fragments)
        alone = [learner.advantages(fragment) for fragment in fragments]
        together = learner.advantages(joined)
        for part in range(2):
            np.testing.assert_array_equal(
                together[part], np.concatenate([one[part] for one in alone], axis=1)
            )
        np.testing.assert_array_equal(
            joined.last_obs, np.concatenate([f.last_obs for f in fragments])
        )
        np.testing.assert_array_equal(
            joined.obs, np.concatenate([f.obs for f in fragments], axis=1)
        )
    finally:
        learner.close()


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "settings", "said"),
    [
        ("ppo", {"policy_at": "haed"}, r"policy_at: expected 'head', .* got 'haed'.*'head'"),
        ("ppo", {"backend": "serial", "policy_at": "envs"}, "policy_at: expected 'head' with back"),
        ("impala", {"backend": "serial", "policy_at": "head"}, "policy_at: expected 'envs' with"),
        ("ppo", {"backend": "auto", "policy_at": "server"}, "expected 'head' with backend 'auto'"),
        ("ppo", {"backend": "process", "server_batch": 4}, "server_batch: expected none with pol"),
        (
            "impala",
            {"server_deadline_s": 0.1},
            "server_deadline_s: expected none with policy_at 'envs', which needs no inference",
        ),
        ("appo", {"policy_at": "head", "server_device": "cuda"}, "server_device: expected 'cpu'"),
        ("appo", {"policy_at": "server", "server_deadline_s": 0.0}, "appo: inference server: dea"),
        ("appo", {"policy_at": "server", "server_timeout_s": 0.0}, "appo: inference server: timeo"),
        ("appo", {"policy_at": "server", "server_batch": 0}, "server: batch_rows: expected a num"),
        ("apex", {"policy_at": "head", "restarts": 1}, "restarts: expected none with policy_at"),
        ("ppo", {"restarts": 1}, "restarts: expected none with policy_at 'head'"),
        ("ppo", {"backend": "process", "num_cpus": 2.0}, "num_cpus: expected none with policy_at"),
        (
            "ppo",
            {"backend": "process", "policy_at": "envs", "double_buffer": True},
            "double_buffer: expected none with backend 'process' and policy_at 'envs'",
        ),
        (
            "ppo",
            {"backend": "process", "policy_at": "envs", "num_workers": 3},
            "num_workers: expected a divisor of num_envs",
        ),
        ("ppo", {"backend": "process", "policy_at": "envs", "num_gpus": 1.0}, "num_gpus: expecte"),
    ],
)
def test_settings_that_would_not_act_are_refused(algorithm, settings, said):
    with pytest.raises(SettingError, match=said):
        learner_type(algorithm).settings_type(**settings)


def test_settings_for_another_place_leave_out_what_would_not_act_there():
    settings = PPOSettings(
        **SMALL, policy_at="auto", server_batch=3, server_device="cuda", restarts=7
    )
    at = {place: settings.at(place) for place in ("head", "envs", "server")}
    assert (at["server"].server_batch, at["server"].restarts) == (3, 7)
    assert (at["envs"].server_batch, at["envs"].restarts) == (None, 7)
    assert (at["head"].server_device, at["head"].restarts) == ("cpu", 3)


def test_envs_that_are_given_are_stepped_at_the_head():
    envs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    try:
        with pytest.raises(SettingError, match="expected 'head' with envs that are given"):
            PPO(PPOSettings(**SMALL, policy_at="envs"), envs)
    finally:
        envs.close()


@pytest.mark.long
def test_a_policy_of_the_future_is_refused(make):
    learner = make("impala")
    learner.iterate()
    take = FragmentCollector.collect

    def of_another_training(collector, n=1):
        fragments = [fragment.copy() for fragment in take(collector, n)]
        for fragment in fragments:
            fragment.versions[:] = 1_000
        return fragments

    learner.actors.collector.collect = of_another_training.__get__(learner.actors.collector)
    with pytest.raises(WorkerError, match=r"a policy of version \d or older, got version 1000"):
        learner.iterate()
    assert isinstance(learner.actors, Actors)


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obs", "network"), [((5,), "mlp"), ((3, 42, 42), "nature_cnn")], ids=["mlp", "cnn"]
)
@pytest.mark.parametrize("actions", ["discrete", "box"])
def test_an_actor_on_a_device_acts_as_the_one_it_was_made_of(obs, network, actions):
    low, dtype = (0, np.uint8) if len(obs) == 3 else (-1, np.float32)
    space = gymnasium.spaces.Box(low, 255 if low == 0 else 1, obs, dtype)
    action_space = (
        gymnasium.spaces.Discrete(3)
        if actions == "discrete"
        else gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    )
    policy = make_policy(space, action_space, network=network, seed=3)
    batch = np.stack([space.sample() for _ in range(4)])
    moved = copy.deepcopy(policy.actor(0)).on("cpu")
    plain = policy.actor(0)

    def expect_alike():
        for mine, truth in zip(moved(batch), plain(batch), strict=True):
            if isinstance(mine, dict):
                for name in truth:
                    np.testing.assert_allclose(mine[name], truth[name], rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_allclose(mine, truth, rtol=1e-4, atol=1e-5)

    expect_alike()
    changed = policy.weights().parameters + np.float32(0.01)
    moved.load_weights(Weights(changed))
    assert not np.allclose(moved(batch)[1]["value"], plain(batch)[1]["value"])  # a copy of its own
    moved.seed(1)
    plain.seed(1)
    plain.load_weights(Weights(changed))
    expect_alike()


# --- auto ----------------------------------------------------------------------------------------


def test_the_fastest_is_taken_unless_a_simpler_place_may_be_as_fast():
    noise = np.array([1.0, -1.0, 0.5, -0.5, 0.2, -0.2])[:, None]
    assert first_as_fast(np.array([100.0, 120.0, 80.0]) + noise) == 1
    assert first_as_fast(np.array([100.0, 100.1, 80.0]) + noise * [1, -1, 1]) == 0
    assert first_as_fast(np.array([100.0, 150.0, 150.1]) + noise * [1, -1, 1]) == 1
    assert first_as_fast(np.array([100.0, 80.0, 200.0]) + noise) == 2
    # By much faster, on a machine too busy to prove it.
    assert first_as_fast(np.array([100.0, 120.0, 80.0]) + 60 * noise * [1, -1, 1]) == 1


class Clocked:
    """A learner whose iterations take planted times; two fragments are under way elsewhere."""

    log: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, settings):
        self.place = settings.policy_at
        self.in_flight = 2 if self.place == "envs" else 0
        self.log.append((self.place, "made"))

    def wait_until_started(self):
        self.log.append((self.place, "started"))

    def paused(self):
        @contextmanager
        def rest():
            self.log.append((self.place, "rests"))
            yield
            self.log.append((self.place, "works"))

        return rest()

    def iterate(self):
        time.sleep({"head": 0.002, "envs": 0.001, "server": 0.003}[self.place])
        self.log.append((self.place, "iterates"))
        return 10

    def close(self):
        self.log.append((self.place, "closed"))


def test_auto_lets_one_work_at_a_time_and_closes_all(monkeypatch, caplog):
    monkeypatch.setattr(places, "TURN_S", 0.02)
    monkeypatch.setattr(places, "TIME_S", 1.0)
    caplog.set_level(logging.INFO, "hotloop")
    Clocked.log.clear()
    settings = placed(Clocked, PPOSettings(**SMALL, policy_at="auto"))
    assert settings.policy_at in ("head", "envs")  # a busy machine may hide which sleeps longer
    assert "the policy acts at: " in caplog.text
    assert {place for place, what in Clocked.log if what == "closed"} == {"head", "envs", "server"}
    working = set()
    for place, what in Clocked.log:
        if what == "works":
            working.add(place)
        if what == "rests":
            working.discard(place)
        if what == "iterates":
            assert working == {place}


@pytest.mark.slow
def test_auto_ends_with_a_learner_at_one_place(make, monkeypatch, tmp_path):
    monkeypatch.setattr(places, "TURN_S", 0.01)
    monkeypatch.setattr(places, "TIME_S", 0.5)
    path = tmp_path / "one.checkpoint"
    settings = PPOSettings(**SMALL, policy_at="auto", total_steps=80)
    train(settings, checkpoint=path)
    # What was chosen is saved, so that a resume goes on there.
    assert load_checkpoint(path).settings.policy_at in ("head", "envs", "server")


@pytest.mark.slow
def test_auto_that_cannot_be_measured_raises_what_went_wrong(make):
    with pytest.raises(ZeroDivisionError):
        make("ppo", env_id=env_id("Raises"), policy_at="auto")
