"""Sampling the stack of a loop's thread a thousand times a second, on a thread of its own."""

import random
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence

from hotloop.loop.stack import stack_of

SAMPLE_PERIOD_S = 0.001
# The sampler waits for so long before it asks for the interpreter lock: where that is longer than
# what the loop computes between two releases of it, only the releases would be seen.
SWITCH_S = 1e-5


class StackSampler:
    """Samples the thread that made the sampler.

    `take` is given each stack, the innermost frame first, with the seconds that it stands for:
    those since the sample before. Where the loop computes and keeps the interpreter lock the
    sampler waits, and where it sleeps it does not, so that a sample there stands for less time.
    """

    def __init__(self, take: Callable[[Sequence[types.FrameType], float], None]) -> None:
        self._take = take
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._watched = threading.get_ident()
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

    def _sample(self) -> None:
        rng = random.Random(0)
        last_s = time.perf_counter()
        while not self._stop.is_set():
            # Never in phase with a loop whose iterations take a round number of milliseconds.
            time.sleep(SAMPLE_PERIOD_S * rng.uniform(0.5, 1.5))
            stack = stack_of(self._watched)
            now_s = time.perf_counter()
            if stack:
                self._take(stack, now_s - last_s)
            last_s = now_s
            del stack
