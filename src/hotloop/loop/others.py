"""The user's other threads, which may change things while a call is checked."""

import contextlib
import threading
import time

# How long to watch what the other threads change, at least and at most.
WATCH_SECONDS = (0.002, 0.05)
# How long to wait for their turn where other programs have the cores.
PATIENCE_SECONDS = 0.5


def others_run() -> bool:
    """Whether threads of the user's are alive; hotloop's own and those that draw do not count."""
    return bool(_others())


class Beside:
    """What the user's other threads do beside a call, from when this is made until `end`."""

    def __init__(self) -> None:
        self._ran_ns = _run_times_ns()
        self._seconds = time.perf_counter()

    def end(self) -> None:
        """The call is over, and what it changed was looked at."""
        self._seconds = time.perf_counter() - self._seconds
        self._ran_ns = _since(self._ran_ns)

    def again(self) -> None:
        """Wait until they have had the time to do again what they did beside the call.

        About as long as that took, and longer where they got less time on the cores meanwhile.
        """
        start = _run_times_ns()
        time.sleep(min(max(self._seconds, WATCH_SECONDS[0]), WATCH_SECONDS[1]))
        end = time.perf_counter() + PATIENCE_SECONDS
        while time.perf_counter() < end:
            ran_ns = _since(start)
            if all(ran_ns[thread] >= self._ran_ns.get(thread, 0) for thread in ran_ns):
                return
            time.sleep(WATCH_SECONDS[0])


def _others() -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
        and not thread.name.startswith("hotloop")
        and not type(thread).__module__.startswith(("rich.", "tqdm."))
    ]


def _run_times_ns() -> dict[int, int]:
    """How long each of them has had a core, by its number; empty where the kernel does not say."""
    found = {}
    for thread in _others():
        number = thread.native_id
        if number is not None:
            # Linux's name for the clock of a thread (include/linux/posix-timers.h), which is safe
            # for one that has ended; that of `time.pthread_getcpuclockid` is not.
            with contextlib.suppress(OSError):
                found[number] = time.clock_gettime_ns((~number << 3) | 6)
    return found


def _since(start: dict[int, int]) -> dict[int, int]:
    return {thread: ns - start.get(thread, 0) for thread, ns in _run_times_ns().items()}
