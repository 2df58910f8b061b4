"""Waits and burns on the machine's clock: at least as long as asked, without upper limits."""

import asyncio
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.loop.clock import (
    SPIN_NS,
    RealClock,
    resolution_ns,
    shortest_wait_ns,
    wait_error,
)
from support.clock import FakeClock


@given(st.floats(0, 400_000))
@settings(max_examples=25)
def test_a_wait_is_never_too_short_and_returns_the_time_that_passed(duration_ns: float) -> None:
    clock = RealClock()
    start = clock.now_ns()
    passed = clock.wait_ns(duration_ns)
    assert passed >= int(duration_ns)
    assert passed <= clock.now_ns() - start
    assert clock.burn_ns(duration_ns) >= int(duration_ns)


def test_waiting_leaves_the_processor_and_burning_does_not() -> None:
    clock = RealClock()
    before = clock.thread_cpu_ns()
    clock.wait_ns(20_000_000)
    waited = clock.thread_cpu_ns() - before
    before = clock.thread_cpu_ns()
    clock.burn_ns(20_000_000)
    burned = clock.thread_cpu_ns() - before
    assert waited < burned


@pytest.mark.parametrize("duration_ns", [SPIN_NS, 5_000_000])
def test_a_wait_lets_other_threads_have_the_interpreter(duration_ns: int) -> None:
    clock = RealClock()
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)  # gives the interpreter away, which nobody can take from it here

    thread = threading.Thread(target=count)
    thread.start()
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(60)  # none has the interpreter but by the other's giving it away
        before = counted
        # Beside busy processes the other thread may be without a processor for many waits.
        for _ in range(1000):
            clock.wait_ns(duration_ns)
            if counted > before:
                break
        during = counted - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert during > 0


def test_an_async_wait_lets_other_tasks_run() -> None:
    clock = RealClock()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def wait() -> int:
        task = asyncio.create_task(other())
        passed = await clock.wait_async_ns(3_000_000)
        task.cancel()
        return passed

    assert asyncio.run(wait()) >= 3_000_000
    assert turns > 1


def test_an_exact_clock_is_found_to_be_exact() -> None:
    clock = FakeClock()
    assert wait_error(clock, 1000) == 0
    assert shortest_wait_ns(clock) == 2 * SPIN_NS
    assert resolution_ns(RealClock()) > 0
