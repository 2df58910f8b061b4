"""Where workers run, and with how many threads."""

import os

import numpy as np
import pytest

import hotloop.envs.placement as placement
from hotloop.envs.placement import CorePinning, memory_nodes, parse_cores, place
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.process.wakeups import look_once
from hotloop.loop.host import whole_cores
from hotloop.testing.synthetic import SyntheticEnv

TWO = [frozenset({0, 1, 2, 3}), frozenset({4, 5, 6, 7})]


def test_one_node_is_left_to_the_system_but_for_a_worker_a_core():
    assert place(3, TWO[:1]) == [None] * 3
    assert place(5, TWO[:1]) == [None] * 5
    assert place(4, TWO[:1]) == [frozenset({core}) for core in range(4)]
    assert place(3, []) == [None] * 3
    assert place(3, [TWO[0], frozenset()]) == [None] * 3


@pytest.mark.parametrize("workers", range(1, 9))
def test_each_worker_has_a_core_where_there_are_enough(workers):
    cores = place(workers, TWO)
    assert len(cores) == workers
    assert all(len(own) == 1 for own in cores)
    assert len(frozenset.union(*cores)) == workers
    on_first = sum(own <= TWO[0] for own in cores)
    assert on_first == (workers + 1) // 2
    assert all(own <= TWO[0] for own in cores[:on_first])  # neighbours on one node


def test_more_workers_than_cores_keep_to_their_node():
    assert place(10, TWO) == [TWO[0]] * 5 + [TWO[1]] * 5


def test_lists_of_cores():
    assert parse_cores("0-3,8\n") == {0, 1, 2, 3, 8}
    assert parse_cores("5") == {5}
    assert parse_cores("\n") == set()


def test_nodes_of_a_machine(tmp_path, monkeypatch):
    for name, cores in (("node0", "0-1"), ("node1", "2,3"), ("has_cpu", "9")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cores)
    monkeypatch.setattr(placement, "_NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    assert memory_nodes() == [frozenset({1}), frozenset({2, 3})]


def test_the_affinity_bounds_the_cores(monkeypatch):
    assert 1 <= whole_cores() <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert whole_cores() == 1


class AdaptiveSpin(SyntheticEnv):
    """Tells where it runs."""

    def here(self):
        return sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]


def test_workers_are_pinned_and_limited(monkeypatch):
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("one core cannot be told from another")
    nodes = [frozenset(usable[:1]), frozenset(usable[1:2])]
    monkeypatch.setattr("hotloop.envs.process.workers.memory_nodes", lambda: nodes)
    # Who looks may see that another program has its core, and leave it.
    monkeypatch.setattr("hotloop.envs.process.worker.choose_spin", lambda *_: look_once)
    envs = ProcessVectorEnv([AdaptiveSpin] * 2, num_workers=2, threads=3, context="fork")
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    assert envs.call("here") == ((usable[:1], "3"), (usable[1:2], "3"))
    envs.close()
    assert sorted(os.sched_getaffinity(0)) == usable


def test_a_process_leaves_its_core_to_another_program_and_comes_back():
    before = os.sched_getaffinity(0)
    own = frozenset([max(before)])
    node = next(node for node in memory_nodes() if own <= node)
    try:
        place = CorePinning(own)
        assert os.sched_getaffinity(0) == own
        place.pin(False)
        assert os.sched_getaffinity(0) == node
        place.pin(True)
        assert os.sched_getaffinity(0) == own
    finally:
        os.sched_setaffinity(0, before)


def test_a_process_without_a_place_of_its_own_is_never_moved():
    before = os.sched_getaffinity(0)
    place = CorePinning(None)
    for alone in (False, True):
        place.pin(alone)
        assert os.sched_getaffinity(0) == before
