"""Reading the time, and letting time pass.

A `Clock` is passed in, never fetched, so that a test can put a fake one in its place and expect
exact numbers. `wait` leaves the processor to others, `burn` keeps it: by that difference a cost
through waiting is distinguished from a cost through contention.
"""

import asyncio
import select
import statistics
import time
from typing import Protocol

from hotloop.loop.burn import burn_until

# Linux wakes a sleeper 50 µs late at best (its timer slack) and often later: the last stretch of
# a wait is a busy loop that gives the interpreter lock to other threads.
SPIN_NS = 150_000
# An event loop's timers are no finer than this.
ASYNC_SPIN_NS = 1_500_000
# Waits with a larger relative error than this are reported as not measurable.
WAIT_TOLERANCE = 0.2


class Clock(Protocol):
    """The time, for a stage: how to read it, and how to let some pass."""

    def now_ns(self) -> int:
        """Monotonic time, comparable between the processes of one machine, in ns."""
        ...

    def thread_cpu_ns(self) -> int:
        """Processor time of the calling thread, in ns."""
        ...

    def process_cpu_ns(self) -> int:
        """Processor time of all threads of the process, in ns."""
        ...

    def wait_ns(self, duration_ns: float) -> int:
        """Let `duration_ns` pass without using the processor; return what really passed, in ns."""
        ...

    def burn_ns(
        self,
        duration_ns: float,
        *,
        releases_lock: bool = False,
        moved_bytes: float = 0,
        on_cpu: bool = False,
    ) -> int:
        """Let `duration_ns` pass while using the processor; return what really passed, in ns.

        releases_lock: whether other threads may run meanwhile; moved_bytes: memory to go through;
        on_cpu: whether processor time of this thread is meant, and not time.
        """
        ...

    def sleep_ns(self, duration_ns: float) -> None:
        """Let about `duration_ns` pass, or more, without using the processor at all."""
        ...

    async def wait_async_ns(self, duration_ns: float) -> int:
        """`wait_ns` for a coroutine: the event loop runs others meanwhile."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    # Bound once: a stage reads the clock twice a call, and a method would double its cost.
    now_ns = staticmethod(time.perf_counter_ns)
    thread_cpu_ns = staticmethod(time.thread_time_ns)
    process_cpu_ns = staticmethod(time.process_time_ns)

    def wait_ns(self, duration_ns: float) -> int:
        """Sleep, then loop until the time is up, giving the interpreter lock to other threads."""
        start = time.perf_counter_ns()
        if duration_ns <= 0:
            return 0
        deadline = start + duration_ns
        if duration_ns > SPIN_NS:
            time.sleep((duration_ns - SPIN_NS) * 1e-9)
        while (now := time.perf_counter_ns()) < deadline:
            # Gives the interpreter lock away and comes back within a microsecond; `time.sleep(0)`
            # does not, where the kernel's timers are coarse (measured: 80 µs).
            select.select((), (), (), 0)
        return now - start

    def burn_ns(
        self,
        duration_ns: float,
        *,
        releases_lock: bool = False,
        moved_bytes: float = 0,
        on_cpu: bool = False,
    ) -> int:
        """Compute in compiled code, with the interpreter lock or without it."""
        start = time.perf_counter_ns()
        if duration_ns <= 0:
            return 0
        if on_cpu:
            end = time.thread_time_ns() + int(duration_ns)
            burn_until(end, releases_lock, moved_bytes, time.thread_time_ns)
        else:
            burn_until(start + int(duration_ns), releases_lock, moved_bytes)
        return time.perf_counter_ns() - start

    def sleep_ns(self, duration_ns: float) -> None:
        """Sleep, without a busy loop at the end."""
        time.sleep(duration_ns * 1e-9)

    async def wait_async_ns(self, duration_ns: float) -> int:
        """Sleep in the event loop, then yield to it until the time is up."""
        start = time.perf_counter_ns()
        deadline = start + duration_ns
        if duration_ns > ASYNC_SPIN_NS:
            await asyncio.sleep((duration_ns - ASYNC_SPIN_NS) * 1e-9)
        else:
            await asyncio.sleep(0)
        while (now := time.perf_counter_ns()) < deadline:
            await asyncio.sleep(0)
        return now - start


def resolution_ns(clock: Clock, repeats: int = 2_000) -> int:
    """Return the smallest step between two readings of `clock` that differ, in ns."""
    smallest = 1_000_000_000
    last = clock.now_ns()
    for _ in range(repeats):
        now = clock.now_ns()
        if now != last:
            smallest = min(smallest, now - last)
        last = now
    return smallest


def wait_error(clock: Clock, duration_ns: float, repeats: int = 15) -> float:
    """Return the relative error of a wait of `duration_ns` (median of `repeats`).

    More than `WAIT_TOLERANCE` means that waits of this length are not measurable here.
    """
    errors = [abs(clock.wait_ns(duration_ns) - duration_ns) / duration_ns for _ in range(repeats)]
    return statistics.median(errors)


def shortest_wait_ns(clock: Clock) -> int:
    """Return the shortest wait that this machine keeps within `WAIT_TOLERANCE`: ns, 1 ms at most.

    Up to `SPIN_NS` a wait is a busy loop that keeps its core. So nothing shorter than twice that
    can stand for a stage that waits.
    """
    for duration_ns in (2 * SPIN_NS, 500_000, 1_000_000):
        if wait_error(clock, duration_ns) <= WAIT_TOLERANCE:
            return duration_ns
    return 1_000_000
