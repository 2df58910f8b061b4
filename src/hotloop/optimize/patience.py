"""How long an instrument that slows a loop down stays on, in the middle of an iteration too."""

import threading
import time

PATIENCE = 4.0


class Patience:
    """Is over after `PATIENCE` times the planned time, then as much processor time of a thread.

    An iteration that waits, or that has no core for a while, is not slowed down by being watched:
    to stop in it would leave out what its iteration does afterwards.
    """

    def __init__(self, seconds: float) -> None:
        self._limit_s = PATIENCE * seconds
        self._until_s = time.perf_counter() + self._limit_s
        self._began_s: dict[int, float] = {}  # of each thread, once the time has passed

    def is_over(self) -> bool:
        """Whether it is, for the calling thread."""
        if time.perf_counter() < self._until_s:  # costs a tenth of asking for processor time
            return False
        now_s = time.thread_time()
        return now_s - self._began_s.setdefault(threading.get_ident(), now_s) > self._limit_s
