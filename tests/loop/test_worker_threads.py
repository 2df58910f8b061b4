"""How many threads workers have beside the process that drives them."""

import pytest

from hotloop.loop import host
from hotloop.loop.host import THREAD_VARIABLES, threads_beside_driver


@pytest.fixture
def nothing_set(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (9, 2, 4), (9, 16, 1)]
)
def test_workers_share_the_cores_that_the_driver_leaves(
    monkeypatch, nothing_set, cores, workers, threads
):
    monkeypatch.setattr(host, "usable_cores", lambda: float(cores))
    assert threads_beside_driver(workers) == threads


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_workers_have_the_threads_that_the_user_has_set(monkeypatch, nothing_set, name):
    monkeypatch.setenv(name, "3")
    assert threads_beside_driver(2) == 3


@pytest.mark.parametrize("text", ["", "0", "4,2", "many"])
def test_what_is_no_number_of_threads_is_not_taken_for_one(monkeypatch, nothing_set, text):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert threads_beside_driver(2**20) == 1
