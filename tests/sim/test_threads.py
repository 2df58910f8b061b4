"""Work in parts: each is done once, all are over at the end, and failures come back."""

import threading

import pytest
import torch

from hotloop.sim import threads
from hotloop.sim.threads import in_parts


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(threads, "LEAST_ITEMS", 10)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("items", [0, 20, 10**6])
def test_everything_is_done_once(size, items):
    done = [0] * size

    def work(begin: int, end: int) -> None:
        for i in range(begin, end):
            done[i] += 1

    in_parts(work, size, items)
    assert done == [1] * size


def test_parts_run_side_by_side():
    together, seen = threading.Barrier(3), set()

    def work(begin: int, end: int) -> None:
        together.wait(60)  # ends only if three have begun
        seen.add(threading.get_ident())

    in_parts(work, 3, 30)
    assert len(seen) == 3
    assert threading.get_ident() in seen


def test_no_thread_waits_for_a_helper_that_has_not_begun(monkeypatch):
    late = []
    monkeypatch.setattr(threads, "start_new_thread", lambda work, given: late.append(work))
    done = []
    in_parts(lambda begin, end: done.append((begin, end)), 6, 10**6)
    assert done == [(i, i + 1) for i in range(6)]
    for begin in late:
        begin()
    assert len(done) == 6


def test_few_items_and_one_thread_are_not_divided(monkeypatch):
    done = []
    in_parts(lambda begin, end: done.append((begin, end)), 100, 19)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    in_parts(lambda begin, end: done.append((begin, end)), 100, 10**6)
    assert done == [(0, 100), (0, 100)]


def test_a_failure_comes_back_after_all_parts_are_over():
    over = []

    def work(begin: int, end: int) -> None:
        if begin == 4:
            raise ValueError(f"part from {begin}")
        over.append(begin)

    with pytest.raises(ValueError, match="part from 4"):
        in_parts(work, 6, 60)
    assert sorted([*over, 4]) == list(range(6))
