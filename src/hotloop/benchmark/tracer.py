"""What happens while a loop is measured, block by block: kept for a trace.

`traced` stands around any measurement and lets it pass unchanged; the tracer keeps what the blocks
hold: calls of stages, iterations, arms, and what parts of the loop hand over to each other.
"""

import os
import threading
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hotloop.loop.conduct import Block, Measurement
from hotloop.loop.control import SharedControl
from hotloop.loop.event import Event
from hotloop.loop.handover import Handover
from hotloop.loop.values import torch_if_loaded

# The newest calls are kept: about a second of a fast loop, and what a browser opens at once.
MOST_EVENTS = 100_000
_MOST_THREADS = 1 << 22  # Linux has no higher number of a thread


@dataclass(frozen=True)
class ArmSpan:
    """A block: what the stages did meanwhile."""

    arm: str
    phase: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class LaneName:
    """Whose calls a lane has: a process and a thread of it, by name and number."""

    process: int
    thread: int
    name: str


class Tracer:
    """Keeps the newest calls of all stages, with the iterations and arms that they were in."""

    def __init__(self, control: SharedControl, most_events: int = MOST_EVENTS) -> None:
        self.events: deque[Event] = deque(maxlen=most_events)
        self.iterations: deque[tuple[int, int]] = deque(maxlen=most_events)  # start, end in ns
        self.arms: deque[ArmSpan] = deque(maxlen=most_events)
        self.handovers: deque[Handover] = deque(maxlen=most_events)
        self.threads: dict[int, LaneName] = {}
        self.seen_events = 0
        self.main_lane = control.main_thread
        self._control = control
        self._pid = os.getpid()

    @property
    def names(self) -> list[str]:
        """The stages, by number."""
        return self._control.names()

    @property
    def left_out(self) -> int:
        """Calls that were seen and are not kept."""
        return self.seen_events - len(self.events)

    def lane(self, lane: int) -> LaneName:
        """Whose calls a lane has."""
        found = self.threads.get(lane)
        if found is not None:
            return found
        process = self._control.workers.processes.get(lane)
        if process is not None:
            return LaneName(process, process, "worker")
        if lane < 0:
            return LaneName(self._pid, self._pid, "asyncio tasks")
        # A thread that had ended, or a process of another machine.
        return LaneName(self._pid, lane % _MOST_THREADS, "elsewhere")

    def take(self, block: Block) -> None:
        """Keep what a block has measured."""
        self.main_lane = self._control.main_thread
        for thread in threading.enumerate():
            if thread.ident is not None and thread.ident not in self.threads:
                self.threads[thread.ident] = LaneName(
                    self._pid, thread.native_id or thread.ident, thread.name
                )
        self.seen_events += len(block.events)
        self.events.extend(block.events)
        ends = [
            (start, start + took)
            for start, took in zip(block.start_ns, block.duration_ns, strict=True)
        ]
        self.iterations.extend(ends)
        if ends:
            arm = block.request.arm.name
            self.arms.append(ArmSpan(arm, block.request.phase, ends[0][0], ends[-1][1]))
        if self._control.handovers:
            self.handovers.extend(self._control.handovers)
            self._control.handovers.clear()


def traced(
    measurement: Measurement[Any], control: SharedControl, tracer: Tracer
) -> Measurement[Any]:
    """The same measurement, with a tracer that sees each block.

    On a card, calls of stages under an arm that names them are NVTX ranges meanwhile.
    """
    control.handovers = []
    control.annotate = _nvtx_range if _has_card() else None
    try:
        request = next(measurement)
        while True:
            try:
                block = yield request
            except GeneratorExit:
                measurement.close()
                raise
            except BaseException as error:
                request = measurement.throw(error)
                continue
            tracer.take(block)
            request = measurement.send(block)
    except StopIteration as stop:
        return stop.value
    finally:
        control.handovers = control.annotate = None


def _has_card() -> bool:
    torch: Any = torch_if_loaded()
    return torch is not None and bool(torch.cuda.is_available())


def _nvtx_range(stage: str) -> AbstractContextManager[object]:
    torch: Any = torch_if_loaded()
    found: AbstractContextManager[object] = torch.cuda.nvtx.range(stage)
    return found
