"""Waiting for the user's other threads while a call is checked."""

import threading
import time

import pytest

from hotloop.loop import other_threads
from hotloop.loop.other_threads import OtherThreads, other_threads_run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long that a busy machine gives every thread its turn."""
    monkeypatch.setattr(other_threads, "PATIENCE_SECONDS", 30.0)


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
        assert other_threads_run()
        others = OtherThreads()
        turn.set()
        assert over.wait(30)
        others.end_of_call()
        late.start()
        others.wait_for_repetition()
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
        others = OtherThreads()
        others.end_of_call()
        start = time.perf_counter()
        others.wait_for_repetition()
        assert time.perf_counter() - start < 15
    finally:
        done.set()
        thread.join()


def test_threads_of_hotloop_do_not_count() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="hotloop control")
    thread.start()
    try:
        assert not other_threads_run()
    finally:
        done.set()
        thread.join()
