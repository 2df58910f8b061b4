"""The user's other threads, which may change objects while a call is checked."""

import threading
import time

from hotloop.loop.helper_threads import is_of_autograd, thread_time_ns

# How long to watch what the other threads change, at least and at most.
WATCH_SECONDS = (0.002, 0.05)
# How long to wait for them where other programs have the cores.
PATIENCE_SECONDS = 0.5
# Of the time that they had during the call: the same work never takes quite the same time twice.
ENOUGH = 0.8


def other_threads_run() -> bool:
    """Whether the user's other threads are alive.

    Those of hotloop and of progress bars do not count, nor torch's for backward passes on a card.
    """
    return bool(_others())


class OtherThreads:
    """What the user's other threads do during a call: make it before, and end it after the call."""

    def __init__(self) -> None:
        self._ran_ns = _run_times_ns()
        self._seconds = time.perf_counter()

    def end_of_call(self) -> None:
        """Note that the call is over, and that what it changed was looked at."""
        self._seconds = time.perf_counter() - self._seconds
        self._ran_ns = _since(self._ran_ns)

    def wait_for_repetition(self) -> None:
        """Wait until they have had the time to do again what they did during the call.

        About as long as that took, and longer where they got less time on the cores meanwhile.
        """
        start = _run_times_ns()
        time.sleep(min(max(self._seconds, WATCH_SECONDS[0]), WATCH_SECONDS[1]))
        end = time.perf_counter() + PATIENCE_SECONDS
        while time.perf_counter() < end:
            ran_ns = _since(start)
            if all(ran_ns[thread] >= ENOUGH * self._ran_ns.get(thread, 0) for thread in ran_ns):
                return
            time.sleep(WATCH_SECONDS[0])


def _others() -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
        and not thread.name.startswith("hotloop")
        and not type(thread).__module__.startswith(("rich.", "tqdm."))
        and not is_of_autograd(thread.native_id)
    ]


def _run_times_ns() -> dict[int, int]:
    """How long each of them has had a core, by its number; empty where the kernel does not say."""
    found = {}
    for thread in _others():
        number = thread.native_id
        if number is not None:
            ran_ns = thread_time_ns(number)
            if ran_ns is not None:
                found[number] = ran_ns
    return found


def _since(start: dict[int, int]) -> dict[int, int]:
    return {thread: ns - start.get(thread, 0) for thread, ns in _run_times_ns().items()}
