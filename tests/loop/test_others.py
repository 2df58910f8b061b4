"""Waiting for the user's other threads while a call is checked."""

import threading
import time

import pytest

from hotloop.loop import others
from hotloop.loop.others import Beside, others_run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long that a busy machine gives every thread its turn."""
    monkeypatch.setattr(others, "PATIENCE_SECONDS", 30.0)


def test_a_thread_that_ran_beside_the_call_is_waited_for() -> None:
    """Its next turn comes late, as on a machine whose cores other programs use."""
    turn, over = threading.Event(), threading.Event()
    begun: list[int] = []
    stop = False

    def work() -> None:
        while turn.wait() and not stop:
            turn.clear()
            begun.append(1)
            start = time.thread_time()
            while time.thread_time() - start < 0.005:
                pass
            over.set()

    thread = threading.Thread(target=work)
    thread.start()
    late = threading.Timer(0.1, turn.set)
    late.name = "hotloop test"
    try:
        assert others_run()
        beside = Beside()
        turn.set()
        assert over.wait(30)
        beside.end()
        late.start()
        beside.again()
        assert len(begun) == 2
    finally:
        late.join()
        stop = True
        turn.set()
        thread.join()


def test_idle_threads_are_not_waited_for() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        beside = Beside()
        beside.end()
        start = time.perf_counter()
        beside.again()
        assert time.perf_counter() - start < 15
    finally:
        done.set()
        thread.join()


def test_threads_of_hotloop_do_not_count() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="hotloop board")
    thread.start()
    try:
        assert not others_run()
    finally:
        done.set()
        thread.join()
