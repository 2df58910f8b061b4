"""Waiting for the user's other threads while a call is checked."""

import subprocess
import sys
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
        wait_until_idle(thread)
        others = OtherThreads()
        others.end_of_call()
        start = time.perf_counter()
        others.wait_for_repetition()
        assert time.perf_counter() - start < 15
    finally:
        done.set()
        thread.join()


def wait_until_idle(thread: threading.Thread) -> None:
    """Wait until it has had no core for a while: what it does at its start is over."""
    assert thread.native_id is not None
    clock = (~thread.native_id << 3) | 6  # as in `other_threads`
    before = -1
    while before != (before := time.clock_gettime_ns(clock)):
        time.sleep(0.3)


def test_threads_of_hotloop_do_not_count() -> None:
    """In a process of its own: other tests of this one may have left threads of libraries."""
    code = """
import threading
from hotloop.loop.other_threads import other_threads_run

done = threading.Event()
thread = threading.Thread(target=done.wait, name="hotloop control")
thread.start()
hotloops = other_threads_run()
thread.name = "control"
users = other_threads_run()
done.set()
assert (hotloops, users) == (False, True)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_torch_s_threads_for_a_card_do_not_count() -> None:
    """A hook of a gradient that asks for its thread makes one of Python's of it."""
    code = """
import ctypes, threading
from hotloop.loop.other_threads import other_threads_run

PR_SET_NAME = 15
named, over = threading.Event(), threading.Event()
def work():
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_autograd_0", 0, 0, 0)
    named.set()
    over.wait()

threading.Thread(target=work).start()
named.wait()
found = other_threads_run()
over.set()
assert not found
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
