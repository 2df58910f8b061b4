"""FragmentCollector with processes: planted transitions, faults of one worker, clean ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop import Loop, stage
from hotloop.envs import make_vec
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, WorkerError
from hotloop.loop import drive
from hotloop.loop.control import process_control
from hotloop.rollout import FragmentCollector, StepCollector
from hotloop.rollout.process import SPARE_BLOCKS
from hotloop.rollout.worker import Update
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.settings import SimplifySettings
from rollout.planted_envs import (
    Everything,
    PlantedEnv,
    Scaled,
    Stacked,
    check_truth,
    check_weights_behind_a_policy,
    faulty,
    gated,
    planted_vec,
    policy,
    worker_of,
)
from support.wait import DEADLINE_S, wait_until

SETTINGS = {"fragment_steps": 10, "num_workers": 2}
MAKE = partial(planted_vec, 2)


def collect_into(got, collector, times):
    for _ in range(times):
        got += collector.collect()


def test_planted_transitions_from_both_workers():
    with FragmentCollector(MAKE, policy, **SETTINGS) as collector:
        fragments = collector.collect(3)
        while {worker_of(f) for f in fragments} != {0, 1} or len(fragments) < 12:
            fragments += collector.collect()
        # All were kept, none was written over by those that came later.
        assert len(check_truth(fragments)) == 4
        assert collector.counts.fragments == len(fragments)
        assert collector.counts.env_steps == len(fragments) * 20
        assert collector.counts.episodes == sum(f.episodes for f in fragments) > 10


def test_memory_that_was_dropped_is_used_again():
    with FragmentCollector(MAKE, policy, fragment_steps=10, num_workers=1) as collector:
        kept = collector.collect()[0]
        copied = kept.copy()
        for _ in range(30):
            collector.collect()
        blocks = collector._workers._workers[0]._blocks
        # The one that is kept, one each that is full, is being filled, is read, and a spare.
        assert len(blocks) <= 5
        view = kept.obs[2:4]
        del kept
        for _ in range(10):
            collector.collect()
        np.testing.assert_array_equal(view, copied.obs[2:4])  # a view keeps the memory too


@pytest.mark.long
def test_memory_that_was_kept_for_a_while_is_given_back():
    with FragmentCollector(MAKE, policy, fragment_steps=10, num_workers=1) as collector:
        worker = collector._workers._workers[0]
        kept = collector.collect(60)
        assert len(worker._blocks) >= 60
        check_truth(kept)
        del kept
        for _ in range(10):
            collector.collect()
        assert len(worker._blocks) <= 5 + SPARE_BLOCKS
        # A map has a descriptor of its own, of which a process has not many.
        assert memory_descriptors(worker.process.pid) <= 7 + SPARE_BLOCKS


@pytest.mark.long
def test_resting_blocks_may_be_nested_and_lose_nothing():
    with FragmentCollector(MAKE, policy, **SETTINGS) as collector:
        fragments = collector.collect(2)
        with collector.resting():
            assert collector.waiting <= 4
            with collector.resting():
                pass
            assert [state.asked for state in collector._states] == [0, 0]
            with pytest.raises(WorkerError, match="resting"):
                collector.collect()
        while {worker_of(f) for f in fragments} != {0, 1} or len(fragments) < 20:
            fragments += collector.collect()
        check_truth(fragments)


def test_here_a_rest_makes_no_fragment_earlier():
    with FragmentCollector(MAKE, Scaled(), **SETTINGS, backend="serial") as collector:
        collector.collect()
        with collector.resting():
            assert collector.waiting == 0
        collector.update({"w": 1.0})
        assert [f.policy_version for f in collector.collect(4)] == [1] * 4


def test_fragments_outlive_the_collector():
    with FragmentCollector(MAKE, policy, **SETTINGS) as collector:
        fragments = collector.collect(2)
    check_truth(fragments)


def test_a_slow_worker_delays_no_other(tmp_path):
    gate = tmp_path / "gate"
    with FragmentCollector(partial(gated, str(gate)), policy, **SETTINGS) as collector:
        fragments = collector.collect(20)  # a wait for worker 0 would never end
        assert {worker_of(f) for f in fragments} == {1}
        gate.touch()
        while all(worker_of(f) == 1 for f in fragments):
            fragments += collector.collect()
        check_truth(fragments)


def test_requests_are_bounded():
    """After a pause the driver finds two fragments of each worker, not all that would fit in."""
    with FragmentCollector(MAKE, policy, fragment_steps=10, num_workers=1) as collector:
        collector.collect()
        time.sleep(0.2)
        assert len(collector._workers._workers[0]._blocks) <= 3
        collector.update(policy)
        versions = [collector.collect()[0].policy_version for _ in range(5)]
        assert versions[2:] == [1, 1, 1]


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_without_working_ahead_the_newest_policy_acts(backend):
    settings = {**SETTINGS, "backend": backend, "work_ahead": False}
    with FragmentCollector(MAKE, Scaled(), **settings) as collector:
        turns = []
        for version, n in enumerate([2, 3, 1, 4]):
            if version:
                collector.update({"w": float(version)})
            fragments = collector.collect(n)
            assert all((f.versions == version).all() for f in fragments)
            assert all((f.extras["weight"] == version).all() for f in fragments)
            assert collector.waiting == 0
            turns += [worker_of(f) for f in fragments]
        assert turns.count(0) == turns.count(1) == 5


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_without_working_ahead_an_error_costs_one_fragment(backend):
    make = partial(faulty, "raise", seed=2)  # env 0 of worker 1, in its first fragment
    settings = {**SETTINGS, "backend": backend, "work_ahead": False}
    with FragmentCollector(make, policy, **settings, restarts=1) as collector:
        with pytest.raises(ZeroDivisionError, match="the planted fault"):
            collector.collect(2)
        got = [f for _ in range(4) for f in collector.collect(2)]
        assert collector.waiting == collector.restarts_left == 0
        assert {worker_of(f) for f in got} == {0, 1}
        check_truth([f for f in got if worker_of(f) == 0])
        # The worker's first fragment says so, also that of the one that replaced worker 1.
        for worker in (0, 1):
            first, *others = [f.follows_reset for f in got if worker_of(f) == worker]
            assert first
            assert not any(others)


def test_versions_and_weights_pickled_once():
    Scaled.pickled = 0
    with FragmentCollector(MAKE, Scaled(), **SETTINGS) as collector:
        for fragment in collector.collect(4):
            assert fragment.policy_version == 0
            assert (fragment.extras["weight"] == 0).all()
        assert collector.update({"w": 3.5}) == 1
        seen = {}
        while seen.setdefault(1, 0) < 4:
            fragment = collector.collect()[0]
            seen[fragment.policy_version] = seen.get(fragment.policy_version, 0) + 1
            assert (fragment.extras["weight"] == 3.5 * fragment.policy_version).all()
            assert len(set(fragment.versions.tolist())) == 1
        assert seen.get(0, 0) <= 4  # two requests were with each worker
        before = Scaled.pickled
        assert collector.update(Scaled()) == 2
        assert Scaled.pickled == before + 1
        while collector.collect()[0].policy_version < 2:
            pass


@pytest.mark.parametrize("backend", ["process", "serial"])
def test_weights_sent_behind_a_policy_are_for_it(backend):
    with FragmentCollector(
        MAKE, Scaled(), fragment_steps=10, num_workers=1, backend=backend
    ) as collector:
        check_weights_behind_a_policy(collector)


def test_larger_updates_than_before_find_room():
    with FragmentCollector(MAKE, Scaled(), fragment_steps=10, num_workers=1) as collector:
        for version, size in enumerate((1, 10, 100_000, 100, 1_000_000), 1):
            collector.update({"w": float(version), "more": bytes(size)})
            while (fragment := collector.collect()[0]).policy_version < version:
                pass
            assert (fragment.extras["weight"] == version).all()


class Draws:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, obs):
        return self.rng.integers(0, 3, len(obs))


def test_many_updates_do_not_wait_for_a_slow_worker(tmp_path):
    gate = tmp_path / "gate"
    make = partial(gated, str(gate))
    with FragmentCollector(make, Scaled(), fragment_steps=10, num_workers=1) as collector:
        for _ in range(1000):  # many more than a connection holds
            version = collector.update({"w": 1.0})
        gate.touch()
        versions = [collector.collect()[0].policy_version for _ in range(5)]
        assert versions[-1] == version == 1000


@pytest.mark.long
def test_stacked_frames_are_sent_once_and_arrive_equal():
    make = partial(SerialVectorEnv, [Stacked] * 2, autoreset_mode="same_step")
    plain = StepCollector(make(), zeros, fragment_steps=30, seed=0)
    with FragmentCollector(
        make, zeros, fragment_steps=30, num_workers=1, frame_stack=4
    ) as collector:
        for got in collector.collect(3):
            expected = plain.collect()
            assert got.nbytes < expected.nbytes
            for name in ("obs", "last_obs", "final_obs", "valid"):
                np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def zeros(obs):
    return np.zeros(len(obs), np.int64)


@pytest.mark.long
def test_values_without_a_shape_are_sent_beside_the_memory():
    make = partial(SerialVectorEnv, [Everything] * 2, autoreset_mode="same_step")
    with FragmentCollector(make, act_on_everything, fragment_steps=4, num_workers=1) as collector:
        first, second = collector.collect(2)
    assert first.obs["pair"][1][:, 0].tolist() == ["", "x", "xx", ""]
    assert second.obs["pair"][1][:, 0].tolist() == ["x", "xx", "", "x"]
    assert second.final_obs["pair"][1].tolist() == ["xxx", "xxx"]


def tell_threads(obs):
    threads = int(os.environ["MKL_NUM_THREADS"])  # torch heeds it before OMP_NUM_THREADS
    return zeros(obs), {"threads": np.full(len(obs), threads)}


def test_workers_have_the_threads_that_the_user_has_set(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with FragmentCollector(MAKE, tell_threads, fragment_steps=2, num_workers=1) as collector:
        assert (collector.collect()[0].extras["threads"] == 3).all()


def act_on_everything(obs):
    return (np.zeros(2, np.int64), np.zeros((2, 2), np.float32)), {}


@pytest.mark.long
def test_policies_of_workers_draw_differently_and_repeat_themselves():
    runs = []
    for _ in range(2):
        drawn = {}
        with FragmentCollector(MAKE, Draws(), **SETTINGS, seed=1) as collector:
            while set(drawn) != {0, 1}:
                fragment = collector.collect()[0]
                drawn.setdefault(worker_of(fragment), fragment.action.tolist())
        runs.append(drawn)
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


@pytest.mark.long
def test_workers_carry_any_vector_env():
    """Envs in processes of their own, in two groups; and Gymnasium's own."""

    def in_processes():
        return make_vec(
            [PlantedEnv] * 2, backend="process", num_workers=1, autoreset_mode="same_step", splits=2
        )

    def of_gymnasium():
        return SyncVectorEnv([PlantedEnv] * 2, autoreset_mode=AutoresetMode.SAME_STEP)

    for make in (in_processes, of_gymnasium):
        with FragmentCollector(make, policy, **SETTINGS) as collector:
            check_truth(collector.collect(4))


@pytest.mark.long
def test_an_error_is_raised_in_the_driver_and_the_other_workers_go_on():
    make = partial(faulty, "raise", seed=2)  # env 0 of worker 1
    with FragmentCollector(make, policy, **SETTINGS, restarts=1) as collector:
        got = []
        with pytest.raises(ZeroDivisionError, match="the planted fault") as caught:
            collect_into(got, collector, 50_000)
        assert "in fragment worker 1" in caught.value.__notes__
        notes = "".join(caught.value.__notes__)
        assert 'planted_envs.py"' in notes
        assert 'raise ZeroDivisionError("the planted fault")' in notes
        # The worker is replaced, with other seeds: its envs are those of generation 1.
        again = []
        while not any(worker_of(f) == 1 for f in again):
            again += collector.collect()
        assert collector.restarts_left == 0
        assert next(f for f in again if worker_of(f) == 1).obs[0, :, 0].tolist() == [6, 7]
        check_truth([f for f in got + again if worker_of(f) == 0])


@pytest.mark.long
def test_an_error_that_cannot_be_pickled_keeps_its_message():
    with (
        FragmentCollector(MAKE, Raises(), **SETTINGS) as collector,
        pytest.raises(WorkerError, match="Stubborn: one and two"),
    ):
        collector.collect()


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Raises:
    def __call__(self, obs):
        raise Stubborn("one", "two")


def test_an_error_in_making_envs_is_raised_in_the_driver():
    def make():
        raise FileNotFoundError("no simulator here")

    with (
        FragmentCollector(make, policy, **SETTINGS) as collector,
        pytest.raises(FileNotFoundError, match="no simulator here"),
    ):
        collector.collect()


@pytest.mark.long
def test_a_killed_worker_costs_its_own_fragments_only():
    with FragmentCollector(MAKE, policy, **SETTINGS, restarts=2) as collector:
        before = collector.collect(6)
        dead = collector._workers._workers[0].process
        os.kill(dead.pid, signal.SIGKILL)
        after = []
        while collector.restarts_left == 2 or worker_of(after[-1]) != 0:
            after += collector.collect()
        assert collector.restarts_left == 1
        assert dead.returncode == -signal.SIGKILL
        # Seeded anew, by seed + (generation x workers + worker) x envs; ids stay.
        assert after[-1].env_ids.tolist() == [0, 1]
        assert after[-1].obs[0, :, 0].tolist() == [4, 5]
        check_truth([f for f in before + after if worker_of(f) == 1])
        check_truth([after[-1]], seeds=[4, 5])


@pytest.mark.long
def test_an_update_reaches_a_restarted_worker():
    with FragmentCollector(MAKE, Scaled(), fragment_steps=10, num_workers=1) as collector:
        collector.collect()
        collector.update({"w": 2.0})
        os.kill(collector._workers._workers[0].process.pid, signal.SIGKILL)
        while collector.restarts_left == 3:
            fragment = collector.collect()[0]
        assert fragment.policy_version == 1
        assert (fragment.extras["weight"] == 2).all()


@pytest.mark.slow
def test_a_loop_around_it_can_be_measured():
    """The stages in the workers are seen, and may be replaced where that is allowed."""
    with FragmentCollector(MAKE, policy, **SETTINGS, policy_effect="pure") as collector:
        weights = np.zeros(3)
        learn = stage("learn", lambda f: weights.__iadd__(f.obs.sum((0, 1))), effect="stateful")

        def body():
            (fragment,) = collector.collect()
            learn(fragment)
            return fragment.env_steps

        loop = Loop(body=body, unit="env steps", state=[weights], in_flight=4)
        control = process_control()
        experiment = Experiment(control, SimplifySettings(budget=9.0, aa_pairs=1))
        drive(loop, experiment.run(loop), control)
        stages = {known.name: known for known in experiment.record.stages}
        assert {"act", "env step", "store", "fragment wait", "learn"} <= set(stages)
        assert stages["act"].effect == "pure"
        assert stages["env step"].effect == "effectful"
        assert not stages["env step"].replaceable
        for name in ("act", "env step", "store"):  # which only the workers call
            assert stages[name].calls_per_iteration > 0
            assert stages[name].beside_main


def test_no_restart_left():
    make = partial(faulty, "kill", seed=0)
    got = []
    with (
        FragmentCollector(make, policy, **SETTINGS, restarts=0) as collector,
        pytest.raises(WorkerError, match=r"worker 0: it died .*SIGKILL.*allow more restarts"),
    ):
        collect_into(got, collector, 50_000)
    check_truth([f for f in got if worker_of(f) == 1])


@pytest.mark.long
def test_a_hung_worker_is_replaced():
    with FragmentCollector(MAKE, policy, fragment_steps=10, num_workers=1) as collector:
        collector.collect()
        hung = collector._workers._workers[0].process
        os.kill(hung.pid, signal.SIGSTOP)
        collector._timeout_s = 0.3
        start = collector._start

        def start_patiently(index):
            collector._timeout_s = None  # how long a start takes is not what is tested
            start(index)

        collector._start = start_patiently
        while collector.restarts_left == 3:
            fragment = collector.collect()[0]
        assert fragment.obs[0, :, 0].tolist() == [2, 3]
        assert collector.restarts_left == 2
        assert hung.returncode == -signal.SIGKILL


def memory_descriptors(pid="self"):
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += "memfd:hotloop " in str(descriptor.readlink())
        except FileNotFoundError:
            pass  # the one that lists them
    return found


def test_nothing_is_left_after_close():
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    memory, threads = memory_descriptors(), psutil.Process().num_threads()
    collector = FragmentCollector(MAKE, policy, **SETTINGS)
    collector.collect(4)
    pids = [worker.process.pid for worker in collector._workers._workers.values()]
    assert all(psutil.pid_exists(pid) for pid in pids)
    collector.close()
    collector.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    assert memory_descriptors() <= memory
    assert psutil.Process().num_threads() <= threads
    with pytest.raises(WorkerError, match="closed"):
        collector.collect()


DRIVER = textwrap.dedent(
    """
    import sys, threading, time
    sys.path[:0] = {path!r}
    from functools import partial
    from hotloop.rollout import FragmentCollector, StepCollector
    from rollout.planted_envs import planted_vec, policy

    def drive():
        global collector
        collector = FragmentCollector(
            partial(planted_vec, 2), policy, fragment_steps={steps}, num_workers=2
        )
        pids = [worker.process.pid for worker in collector._workers._workers.values()]
        if {steps} == 10:
            collector.collect(4)
        else:
            time.sleep(0.7)  # in the middle of a fragment
        print(*pids, flush=True)
        {last}

    if {in_thread}:
        thread = threading.Thread(target=drive)
        thread.start()
        thread.join()
    else:
        drive()
    """
)


@pytest.mark.parametrize(
    ("steps", "in_thread", "last"),
    [
        pytest.param(10, False, "time.sleep(60)", marks=pytest.mark.slow),
        pytest.param(10**7, False, "time.sleep(60)", marks=pytest.mark.slow),
        (10**7, True, "time.sleep(60)"),
        (10, False, "pass"),  # a driver that forgets to close
        (10, True, "pass"),
        pytest.param(10, False, "raise SystemExit(3)", marks=pytest.mark.slow),
    ],
)
def test_no_orphans(steps, in_thread, last):
    """Workers end with their driver, however it ends, also in the middle of a fragment."""
    path = [str(Path(__file__).parents[1])]
    code = DRIVER.format(path=path, steps=steps, in_thread=in_thread, last=last)
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    if last == "time.sleep(60)":
        driver.kill()
    driver.wait(timeout=DEADLINE_S)
    driver.stdout.close()
    wait_until(lambda: not any(map(is_running, pids)), "workers end with their driver")


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_messages():
    with pytest.raises(
        SettingError, match="backend: expected 'serial', 'process', 'ray', got 'thread'"
    ):
        FragmentCollector(MAKE, policy, fragment_steps=4, backend="thread")
    with pytest.raises(SettingError, match="num_workers: expected a number above 0, got 0"):
        FragmentCollector(MAKE, policy, fragment_steps=4, num_workers=0)
    with (
        FragmentCollector(MAKE, policy, fragment_steps=4, num_workers=1) as collector,
        pytest.raises(SettingError, match=r"no load_weights\(weights\), got dict"),
    ):
        collector.update({"w": 1})
    assert Update.of(policy, 3).version == 3


@pytest.mark.parametrize(
    ("backend", "given", "message"),
    [
        ("process", {"num_cpus": 2.0}, "num_cpus: expected none with backend 'process'"),
        ("serial", {"num_gpus": 1.0}, "num_gpus: expected none with backend 'serial'"),
        ("process", {"placement": "pack"}, "placement: expected none with backend 'process'"),
        ("ray", {"placement": "sprad"}, "expected 'spread' or 'pack', got 'sprad'.*'spread'"),
        ("ray", {"num_cpus": -1.0}, "num_cpus: expected a number of 0 or more, got -1"),
        ("ray", {"num_gpus": float("nan")}, "num_gpus: expected a number of 0 or more, got nan"),
    ],
)
def test_resources_are_for_actors_of_a_cluster(backend, given, message):
    with pytest.raises(SettingError, match=message):
        FragmentCollector(MAKE, policy, fragment_steps=4, backend=backend, **given)


def test_importing_it_does_not_load_ray_or_torch():
    code = "import hotloop.rollout, sys; sys.exit(bool({'ray', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
