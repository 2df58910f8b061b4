"""What the kernel says of the time in each stage: running, ready to run, or blocked."""

import threading
import weakref
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from hotloop.loop.clock import Clock
from hotloop.loop.event import running_loop
from hotloop.loop.gauges import RunQueueGauge
from hotloop.profile.under_way import UnderWay


@dataclass
class StageTime:
    """The time of a stage's calls. queued_ns: ready, while others had the processor."""

    wall_ns: int = 0
    cpu_ns: int = 0
    queued_ns: int = 0

    @property
    def blocked_ns(self) -> int:
        """Neither running nor ready: it waited for something."""
        return max(self.wall_ns - self.cpu_ns - self.queued_ns, 0)


class StageClock:
    """Times the calls of stages, each on its thread; `annotate` is entered around each.

    Stages of asyncio tasks are not timed: a thread's clock cannot tell them apart.
    """

    def __init__(self, clock: Clock) -> None:
        self.times: dict[str, StageTime] = defaultdict(StageTime)
        self.knows_queue = Path("/proc/self/schedstat").exists()
        self._clock = clock
        self._here = threading.local()
        self._lock = threading.Lock()

    def annotate(self, stage: str) -> AbstractContextManager[object]:
        """What is entered around a call of a stage."""
        return UnderWay(stage) if running_loop() is not None else _TimedCall(self, stage)

    def read(self) -> tuple[int, int, int]:
        """Wall time, processor time and time in the run queue of this thread, in ns."""
        queue = self._here.__dict__.get("queue")
        if queue is None:
            queue = self._here.queue = _Queue()
        return self._clock.now_ns(), self._clock.thread_cpu_ns(), queue.gauge.read_ns()

    def add(self, stage: str, begin: tuple[int, int, int]) -> None:
        """Add the time of a call that began so."""
        wall, cpu, queued = self.read()
        with self._lock:
            time = self.times[stage]
            time.wall_ns += wall - begin[0]
            time.cpu_ns += cpu - begin[1]
            time.queued_ns += queued - begin[2]


class _Queue:
    """A gauge that is closed when its thread has ended."""

    def __init__(self) -> None:
        self.gauge = RunQueueGauge()
        weakref.finalize(self, self.gauge.close)


class _TimedCall:
    """One call of a stage, under way and timed."""

    def __init__(self, clock: StageClock, stage: str) -> None:
        self._clock, self._stage = clock, stage
        self._under_way = UnderWay(stage)
        self._begin = (0, 0, 0)

    def __enter__(self) -> None:
        self._under_way.__enter__()
        self._begin = self._clock.read()

    def __exit__(self, *_error: object) -> None:
        self._clock.add(self._stage, self._begin)
        self._under_way.__exit__()
