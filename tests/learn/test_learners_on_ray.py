"""The learners with actors on a Ray cluster: what they promise there too."""

import gc
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import hotloop
from hotloop.errors import SettingError, WorkerError
from hotloop.learn.apex import Apex, ApexSettings
from hotloop.learn.appo import APPO, APPOSettings
from hotloop.learn.impala import IMPALA, IMPALASettings
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.learn.training import train
from support.learner_envs import env_id
from support.ray_warnings import RAY_WARNINGS
from support.wait import wait_until

ray = pytest.importorskip("ray")
pytestmark = [*RAY_WARNINGS, pytest.mark.long]

TESTS = str(Path(__file__).parents[1])
PYTHONPATH = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
LEARNERS = {
    "impala": (IMPALA, IMPALASettings),
    "appo": (APPO, APPOSettings),
    "apex": (Apex, ApexSettings),
}
SMALL = {"num_envs": 4, "fragment_steps": 10, "backend": "ray", "num_workers": 2}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()
    with warnings.catch_warnings():  # the processes and files that Ray leaves, here and not later
        warnings.simplefilter("ignore")
        gc.collect()


def iterate(learner, times):
    for _ in range(times):
        learner.iterate()


@pytest.mark.parametrize(
    "algorithm",
    [each if each == "impala" else pytest.param(each, marks=pytest.mark.slow) for each in LEARNERS],
)
def test_it_trains_measures_its_lag_and_goes_on_without_an_actor(algorithm):
    kind, settings_type = LEARNERS[algorithm]
    more = {"learn_after": 20, "replay_ratio": 8.0} if algorithm == "apex" else {}
    learner = kind(settings_type(env_id=env_id("Bandit"), max_lag=3, **SMALL, **more))
    try:
        before = learner.policy.flat.detach().clone()
        learner.wait_until_started()
        for _ in range(20):
            learner.iterate()
            figures = learner.figures()
            assert 0 <= figures["lag_min"] <= figures["lag_mean"] <= figures["lag_max"] <= 3
        assert not np.array_equal(before, learner.policy.flat.detach())
        assert learner.progress.env_steps == 20 * 20
        with learner.paused():
            waiting = learner.figures()["queue_depth"]
            assert 2 <= waiting <= 4
        for actor in learner.actors.collector._workers._actors.values():
            ray.kill(actor)
        iterate(learner, 10)
        assert learner.actors.collector.restarts_left == 1
    finally:
        learner.close()


@pytest.mark.slow
def test_apex_learns_from_shards_on_the_cluster():
    more = {"learn_after": 20, "replay_ratio": 8.0, "replay_size": 2_000, "replay_shards": 2}
    learner = Apex(ApexSettings(env_id=env_id("Bandit"), **SMALL, **more))
    try:
        while learner.counts.optimizer_steps < 20:
            learner.iterate()
        ray.kill(learner.replay._messages._pool._actors[0])
        while not learner.figures()["transitions_lost"]:
            learner.iterate()
        before = learner.counts.optimizer_steps
        while learner.counts.optimizer_steps < before + 20:
            learner.iterate()
        assert learner.replay.restarts_left == 2
    finally:
        learner.close()


def test_more_actors_than_the_cluster_has_room_for_do_not_hold_up_the_others():
    settings = IMPALASettings(env_id=env_id("Bandit"), **SMALL | {"num_workers": 4})
    learner = IMPALA(settings)
    try:
        learner.wait_until_started()
        iterate(learner, 5)
        with learner.paused():
            learner.figures()
        learner.iterate()
    finally:
        learner.close()


@pytest.mark.slow
def test_no_restart_left_is_said():
    learner = IMPALA(IMPALASettings(env_id=env_id("Bandit"), restarts=0, **SMALL))
    try:
        learner.iterate()
        for actor in learner.actors.collector._workers._actors.values():
            ray.kill(actor)
        with pytest.raises(WorkerError, match="no restart is left"):
            iterate(learner, 20)
    finally:
        learner.close()


@pytest.mark.slow
def test_a_training_is_evaluated_and_ends():
    settings = IMPALASettings(
        env_id=env_id("Bandit"), total_steps=400, evaluate_every=200, target_return=1e9, **SMALL
    )
    result = train(settings)
    assert result.ended == "steps"
    assert len(result.mean_return) >= 1


@pytest.mark.slow
def test_its_stages_are_measured_where_they_run():
    loop = IMPALA(IMPALASettings(env_id=env_id("Bandit"), **SMALL)).loop()
    try:
        stages = {s.name for s in hotloop.run_benchmark(loop, seconds=2).summary.stages}
        wanted = {"act", "env step", "store", "fragment wait", "update", "broadcast"}
        assert wanted <= stages
        found = hotloop.run_simplify(loop, budget=12)
        assert wanted <= {stage.name for stage in found.record.stages}
    finally:
        loop.close()


def test_actors_ask_for_what_they_are_set_to():
    small = SMALL | {"num_cpus": 0.25, "placement": "pack"}
    learner = IMPALA(IMPALASettings(env_id=env_id("Bandit"), **small))
    try:
        learner.wait_until_started()
        learner.iterate()
        wait_until(lambda: ray.available_resources().get("CPU") == 1.5, "2 x 0.25 of 2 are taken")
    finally:
        learner.close()


# That a server acts for actors is shown by the tests of fragments.
@pytest.mark.parametrize("place", ["envs", pytest.param("server", marks=pytest.mark.slow)])
def test_ppo_takes_a_fragment_of_every_actor(place):
    settings = {**SMALL, "env_id": env_id("Bandit"), "policy_at": place, "num_cpus": 0.5}
    learner = PPO(PPOSettings(**settings))
    try:
        learner.wait_until_started()
        for update in range(3):
            fragments = learner._collect()
            assert [f.env_ids.tolist() for f in fragments] == [[0, 1], [2, 3]]
            assert {f.policy_version for f in fragments} == {update}
            learner.collector.update(learner.policy.weights())
        assert learner.iterate() == 40
    finally:
        learner.close()


def test_ppo_refuses_more_actors_than_there_is_room_for():
    settings = {**SMALL, "env_id": env_id("Bandit"), "policy_at": "server"}
    with pytest.raises(
        SettingError, match=r"room for all at once, 3 actors of 1 CPU each.* for 2;"
    ):
        PPO(PPOSettings(**settings))
