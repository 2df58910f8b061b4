"""Sampling the stack of a loop's thread a thousand times a second, on a thread of its own."""

import random
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence

from hotloop.loop.gauges import RunQueueGauge
from hotloop.loop.stack import stack_of

SAMPLE_PERIOD_S = 0.001
# The sampler waits for so long before it asks for the interpreter lock: where that is longer than
# what the loop computes between two releases of it, only the releases would be seen.
SWITCH_S = 1e-5
# A loop waits for its core for some ms where its own threads and processes have it. What is longer
# is another program's.
STALL_S = 0.01


def stands_for_s(since_s: float, queued_s: float) -> float:
    """Seconds that a sample stands for: those since the one before, without a stall.

    queued_s: for so long of them the loop's thread was ready to run and had no core.
    """
    return max(since_s - queued_s, 0.0) if queued_s > STALL_S else since_s


class StackSampler:
    """Samples the thread that made the sampler.

    `take` is given each stack, the innermost frame first, with the seconds that it stands for:
    those since the sample before. Where the loop computes and keeps the interpreter lock the
    sampler waits, and where it sleeps it does not, so that a sample there stands for less time.
    Where the loop was ready to run and had no core for more than 10 ms, that time is left out: it
    would count for the one line that it met. (Linux says so; elsewhere it counts.)
    """

    def __init__(self, take: Callable[[Sequence[types.FrameType], float], None]) -> None:
        self._take = take
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._watched = threading.get_ident()
        self._queued = RunQueueGauge()
        self._switch_s = sys.getswitchinterval()

    def start(self) -> None:
        """Begin to sample."""
        # With the usual 5 ms the sampler would get the interpreter lock mostly where the loop
        # releases it, and would not see where it computes.
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._sample, name="hotloop-sampler", daemon=True)
        self._thread.start()

    @property
    def thread_number(self) -> int:
        """The system's number of the thread that takes the samples; 0 where there is none."""
        thread = self._thread
        return 0 if thread is None else thread.native_id or 0

    def stop(self) -> None:
        """End sampling; may be called twice."""
        self._stop.set()
        sys.setswitchinterval(self._switch_s)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._queued.close()

    def _sample(self) -> None:
        rng = random.Random(0)
        last_s, last_queued_s = time.perf_counter(), self._queued_s()
        while not self._stop.is_set():
            # Never in phase with a loop whose iterations take a round number of milliseconds.
            time.sleep(SAMPLE_PERIOD_S * rng.uniform(0.5, 1.5))
            stack = stack_of(self._watched)
            now_s, queued_s = time.perf_counter(), self._queued_s()
            if stack:
                self._take(stack, stands_for_s(now_s - last_s, queued_s - last_queued_s))
            last_s, last_queued_s = now_s, queued_s
            del stack

    def _queued_s(self) -> float:
        # With the lock given away here, the loop would be at its next long call before each sleep,
        # and of two that follow each other only one would ever be seen.
        return 1e-9 * self._queued.read_ns(keep_lock=True)
