"""FragmentCollector with Ray actors: the same transitions, through the object store."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

import hotloop
from hotloop.errors import WorkerError
from hotloop.learn import ppo
from hotloop.loop.arm import DELAY, FREE, REAL, RECORD, Arm
from hotloop.loop.conduct import Request, drive
from hotloop.loop.control import process_control
from hotloop.rollout import FragmentCollector
from hotloop.rollout.inference import InferenceSettings
from hotloop.rollout.worker_pool import MAX_UNREAD
from rollout.planted_envs import (
    Counting,
    Scaled,
    Weighted,
    check_truth,
    check_weights_behind_a_policy,
    faulty,
    gated,
    pid_policy,
    planted_vec,
    policy,
    worker_of,
)
from support.ray_warnings import RAY_WARNINGS
from support.wait import wait_until

ray = pytest.importorskip("ray")
pytestmark = [*RAY_WARNINGS, pytest.mark.long]

SETTINGS = {"fragment_steps": 10, "num_workers": 2, "backend": "ray", "num_cpus": 0.5}
MAKE = partial(planted_vec, 2)
TESTS = str(Path(__file__).parents[1])
# The actors import these tests, and hotloop from where this process has it.
PYTHONPATH = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    process_control()  # its path is in the environment that the cluster inherits
    ray.init(
        address="local",  # and not a cluster that somebody else has started here
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": PYTHONPATH}},
    )
    yield
    ray.shutdown()
    with warnings.catch_warnings():  # the processes and files that Ray leaves, here and not later
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="module")
def collector(cluster):
    """Actors are slow to start: the tests that leave them whole share two of them."""
    with FragmentCollector(MAKE, Scaled(), **SETTINGS) as shared:
        yield shared


def actors():
    from ray._private.state import actors

    return [a for a in actors().values() if a["State"] not in ("DEAD",)]


def test_planted_transitions_from_both_actors():
    with FragmentCollector(MAKE, policy, **SETTINGS) as collector:
        fragments = collector.collect(3)
        while {worker_of(f) for f in fragments} != {0, 1} or len(fragments) < 10:
            fragments += collector.collect()
        assert len(check_truth(fragments)) == 4
        assert collector.counts.env_steps == len(fragments) * 20
        # Read where the store has it: nothing is copied, so nothing can be written.
        assert not fragments[0].reward.flags.writeable
        assert not fragments[0].reward.flags.owndata
        # At most one fragment is under way and one is prefetched, for each actor.
        for _ in range(5):
            collector.collect()
            assert all(len(refs) <= 2 for refs in collector._workers._refs.values())


def test_versions_and_weights_put_once(collector, monkeypatch):
    fragment = collector.collect()[0]
    assert fragment.policy_version == 0
    puts, put = [], ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value) or put(value))
    assert collector.update({"w": 3.5}) == 1
    assert len(puts) == 1
    new = set()
    while new != {0, 1}:
        fragment = collector.collect()[0]
        assert (fragment.extras["weight"] == 3.5 * fragment.policy_version).all()
        if fragment.policy_version == 1:
            new.add(worker_of(fragment))


def test_many_updates_of_a_slow_actor_take_no_memory(tmp_path):
    gate = tmp_path / "gate"
    make = partial(gated, str(gate))
    with FragmentCollector(make, Scaled(), **SETTINGS | {"num_workers": 1}) as collector:
        for _ in range(100):
            version = collector.update({"w": 1.0})
            assert len(collector._workers._unread[0]) <= MAX_UNREAD
        gate.touch()
        while collector.collect()[0].policy_version < version:
            pass
        assert not collector._workers._held


def loop_of(collector):
    body = lambda: collector.collect()[0].env_steps  # noqa: E731
    return hotloop.Loop(body=body, unit="env steps", in_flight=4)


def test_stages_in_actors_are_timed(collector):
    """As those of worker processes are, though actors may be on other machines."""
    summary = hotloop.run_benchmark(loop_of(collector), iterations=100).summary
    stages = {stage.name: stage for stage in summary.stages}
    assert {"act", "env step", "store", "fragment wait"} <= set(stages)
    # 10 steps of a fragment. Those between two blocks, where the actors go on, are not counted.
    assert 4 < stages["env step"].calls_per_iteration < 11


def measured(collector, *arms, iterations=12):
    """One block under each arm."""
    blocks = []

    def measurement():
        for arm in arms:
            blocks.append((yield Request(arm, iterations=iterations, drain=8)))

    drive(loop_of(collector), measurement(), process_control())
    return blocks


def test_stages_in_actors_are_delayed(collector):
    arms = [Arm("test", {"env step": mode}) for mode in (REAL, DELAY(0.01), REAL)]
    before, late, after = measured(collector, *arms)
    number = process_control().index("env step")
    calls = [event for event in late.events if event.stage == number]
    # Every call that begins and ends within the block was delayed: those of 12 fragments, but for
    # the four that may have been under way.
    assert late.delayed_ns["env step"] >= 10_000_000 * 8 * 10
    assert len(calls) >= 8 * 10
    assert min(event.end_ns - event.start_ns for event in calls[2:]) >= 10_000_000
    assert not before.delayed_ns["env step"]
    # But for a call in each actor that was under way when the arm changed.
    longest = max(event.end_ns - event.start_ns for event in calls)
    assert after.delayed_ns["env step"] <= 2 * longest
    lanes = {event.lane for event in calls}
    assert len(lanes) >= 2, "two actors"
    assert threading.get_ident() not in lanes


def test_an_actors_policy_is_replaced_by_what_it_did():
    """Outputs are recorded, and given again, where the actor is."""
    one = SETTINGS | {"num_workers": 1, "policy_effect": "pure"}
    with FragmentCollector(MAKE, Counting(), **one) as collector:
        control, seen = process_control(), {}

        def body():
            fragment = collector.collect()[0]
            seen.setdefault(control.epoch, []).append(fragment.extras["calls"][:, 0])
            return fragment.env_steps

        def measurement():
            yield Request(Arm("record", rest=RECORD), iterations=6, drain=6)
            yield Request(Arm("replay", {"act": FREE}), iterations=24, drain=6)
            yield Request(Arm("real"), iterations=6, drain=6)

        drive(hotloop.Loop(body=body, unit="env steps"), measurement(), control)
        recorded, replayed, real = list(seen.values())[:3]
        assert control.workers.tapes(control.index("act"))
    # The fragments of each block after the sixth are whole. What was recorded comes before what is
    # real again, though some of it did not come in time.
    assert np.diff(np.concatenate(real[6:])).tolist() == [1] * 59
    assert max(calls.max() for calls in replayed[6:]) < real[6][0]
    # It was not called for the 300 that were replayed: only in the six fragments before these, and
    # in those that were under way when the arms changed.
    assert recorded[-1][-1] < real[6][0] <= recorded[-1][-1] + 200


def test_weights_sent_behind_a_policy_are_for_it():
    with FragmentCollector(MAKE, Scaled(), **SETTINGS | {"num_workers": 1}) as collector:
        check_weights_behind_a_policy(collector)


def test_real_resources_are_asked_for(collector):
    collector.collect()
    # Of 2, with two actors of half a core; the cluster hears of it a moment later.
    wait_until(lambda: ray.available_resources().get("CPU", 0) == 1.0, "1 CPU is left")


def test_a_slow_actor_delays_no_other(tmp_path):
    gate = tmp_path / "gate"
    with FragmentCollector(partial(gated, str(gate)), policy, **SETTINGS) as collector:
        fragments = collector.collect(20)  # a wait for actor 0 would never end
        assert {worker_of(f) for f in fragments} == {1}
        gate.touch()
        while all(worker_of(f) == 1 for f in fragments):
            fragments += collector.collect()
        check_truth(fragments)


@pytest.mark.slow
def test_an_error_is_raised_in_the_driver():
    make = partial(faulty, "raise", seed=2)
    with FragmentCollector(make, policy, **SETTINGS, restarts=1) as collector:
        got = []
        with pytest.raises(ZeroDivisionError, match="the planted fault") as caught:
            collect_until_raised(collector, got)
        assert "in fragment worker 1" in caught.value.__notes__
        assert 'raise ZeroDivisionError("the planted fault")' in "".join(caught.value.__notes__)
        while not any(f.obs[0, 0, 0] == 6 for f in got):  # the one that replaces it
            got += collector.collect()
        assert collector.restarts_left == 0


def collect_until_raised(collector, got):
    for _ in range(20_000):
        got += collector.collect()


def test_a_killed_actor_costs_its_own_fragments_only():
    with FragmentCollector(MAKE, pid_policy, **SETTINGS, restarts=1) as collector:
        got = collector.collect(2)
        while {worker_of(f) for f in got} != {0, 1}:
            got += collector.collect()
        pid = int(next(f for f in got if worker_of(f) == 0).extras["pid"][0, 0])
        os.kill(pid, 9)
        while not any(f.obs[0, 0, 0] == 4 for f in got):
            got += collector.collect()
        assert collector.restarts_left == 0
        survivor = [f for f in got if worker_of(f) == 1]
        assert len({int(f.extras["pid"][0, 0]) for f in survivor}) == 1
        check_truth(survivor)
        os.kill(int(got[-1].extras["pid"][0, 0]), 9)
        with pytest.raises(WorkerError, match="it died"):
            collect_until_raised(collector, got)


def test_nothing_is_left_after_close():
    before = len(actors())
    collector = FragmentCollector(MAKE, pid_policy, **SETTINGS)
    fragments = collector.collect(4)
    collector.close()
    collector.close()
    pids = {int(f.extras["pid"][0, 0]) for f in fragments}
    wait_until(
        lambda: len(actors()) <= before and not any(map(psutil.pid_exists, pids)),
        "actors end with their collector",
    )
    assert ray.is_initialized()  # it was not the collector's to shut down


NODES = textwrap.dedent(
    """
    import sys, time
    sys.path[:0] = {path!r}
    import ray
    from functools import partial
    from ray.cluster_utils import Cluster
    from hotloop.rollout import FragmentCollector
    from rollout.planted_envs import planted_vec, policy

    cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=0))
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env=dict(env_vars=dict(PYTHONPATH={python_path!r})),
    )
    cluster.wait_for_nodes()
    collector = FragmentCollector(
        partial(planted_vec, 2),
        policy,
        fragment_steps=10,
        num_workers=2,
        backend="ray",
        num_cpus=0.5,
    )
    seen = set()
    while seen != {{0, 2}}:
        seen |= {{int(f.env_ids[0]) for f in collector.collect()}}
    cluster.remove_node(nodes[0])
    deadline = time.monotonic() + 300
    # Both workers' ids are served again, by the node that is left.
    while collector.restarts_left == 3 and time.monotonic() < deadline:
        collector.collect()
    seen = set()
    while seen != {{0, 2}} and time.monotonic() < deadline:
        seen |= {{int(f.env_ids[0]) for f in collector.collect()}}
    print("restarts left", collector.restarts_left, sorted(seen), flush=True)
    collector.close()
    ray.shutdown()
    cluster.shutdown()
    """
)


@pytest.mark.slow
def test_a_removed_node_costs_its_own_actors_only():
    code = NODES.format(path=[TESTS], python_path=PYTHONPATH)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert "restarts left 2 [0, 2]" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_ppo_on_ray_learns_the_same_bits():
    """One actor: the shared collector holds the other CPU."""

    def parameters_after(**backend):
        settings = ppo.PPOSettings(num_envs=4, fragment_steps=16, epochs=2, **backend)
        learner = ppo.PPO(settings)
        try:
            for _ in range(5):
                learner.iterate()
        finally:
            learner.envs.close()
        return learner.policy.flat.detach().numpy()

    expected = parameters_after()
    np.testing.assert_array_equal(parameters_after(backend="ray", num_workers=1), expected)
    halves = parameters_after(backend="ray", num_workers=1, double_buffer=True)
    assert np.isfinite(halves).all()


# --- an inference server in an actor -------------------------------------------------------------


def test_a_server_acts_for_the_actors_and_is_replaced_when_it_dies(caplog):
    with FragmentCollector(MAKE, Weighted(), **SETTINGS, server=InferenceSettings()) as served:
        fragments = served.collect(4)
        served.update({"w": 2.0})
        while fragments[-1].policy_version < 1:
            fragments += served.collect()
        assert (fragments[-1].extras["weight"] == 2).all()
        assert served.server_figures()["server_batch_rows"] >= 2
        ray.kill(served._workers._server._home._actor)
        while "inference server: it died" not in caplog.text:
            fragments += served.collect()
        fragments += served.collect(6)
        assert (fragments[-1].extras["weight"] == 2).all()
        assert served.restarts_left == 3
        check_truth(fragments)
    wait_until(lambda: not any("_Server" in a["ActorClassName"] for a in actors()), "it has ended")


@pytest.mark.slow
def test_a_server_that_hangs_in_an_actor_is_replaced(caplog):
    def own_pid(_server):
        return os.getpid()

    # A machine that is busy may make a server look hung; another one then takes its place as well.
    server = InferenceSettings(timeout_s=3.0)
    with FragmentCollector(MAKE, Weighted(), **SETTINGS, server=server, restarts=1000) as served:
        fragments = served.collect(4)
        actor = served._workers._server._home._actor
        pid = ray.get(actor.__ray_call__.options(concurrency_group="control").remote(own_pid))
        os.kill(pid, signal.SIGSTOP)
        while "inference server: no answer for 3 s" not in caplog.text:
            fragments += served.collect()
        fragments += served.collect(8)
    check_truth(fragments)
    wait_until(lambda: not psutil.pid_exists(pid), "the stopped process is gone")
