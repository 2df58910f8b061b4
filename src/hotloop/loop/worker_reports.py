"""What worker processes report of their stages, in the memory that they share with the owner.

Each worker has one slot: its pid and its event count, tape lengths and tape faults by stage, the
nanoseconds really delayed by stage, then a ring of events. The owner reads them; a worker writes
its own only.
"""

import itertools
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator

from hotloop.errors import StageError
from hotloop.loop.event import MAX_STAGES, Event, lane_apart
from hotloop.loop.memory import FileLock

MAX_WORKERS = 64
RING_EVENTS = 4096

_EVENT = struct.Struct("qqqq")
_HEAD = 8  # after the pid: how many events were written
_TAPES = 64
_FAULTS = _TAPES + MAX_STAGES
_DELAYS = _FAULTS + MAX_STAGES
_EVENTS = _DELAYS + MAX_STAGES * 8
_SLOT_BYTES = _EVENTS + RING_EVENTS * _EVENT.size
REPORTS_BYTES = MAX_WORKERS * _SLOT_BYTES  # about 8 MiB, touched only where used


class RemoteReports:
    """What a process has reported by messages, with the owner's numbers of the stages."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tapes: list[tuple[int, int, int]] = []  # stage, outputs, faults
        self.delays_ns: dict[int, int] = {}  # by stage
        self.dropped = 0  # events

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events


class WorkerReports:
    """What all workers report, as the owner reads it and as one worker writes its own.

    Those of this machine have a slot each; `remote` has the others.
    """

    def __init__(self, view: memoryview, lock: FileLock) -> None:
        self.remote: weakref.WeakSet[RemoteReports] = weakref.WeakSet()  # while they live
        self._dropped_events = 0
        self._view = view
        self._lock = lock
        self._pid = os.getpid()
        self._slot: int | None = None
        self._log: Callable[[tuple[int, int, int, int]], None] | None = None
        self._log_lock = threading.Lock()
        self._read_heads = [0] * MAX_WORKERS
        self.processes: dict[int, int] = {}  # of each lane that has reported, here

    # --- writing, in a worker ------------------------------------------------------------------

    def log(self) -> Callable[[tuple[int, int, int, int]], None]:
        """Return the function that logs one event into this worker's ring."""
        # One for all stages of the process: they count the entries of one ring together.
        with self._log_lock:
            if self._log is None:
                self._log = self._ring_log()
            return self._log

    def note_tape(self, stage: int, length: int, faults: int) -> None:
        """Report how many outputs this worker's tape of a stage holds, and its faults."""
        slot = self._claimed_slot()
        self._view[slot + _TAPES + stage] = min(length, 255)
        self._view[slot + _FAULTS + stage] = faults

    def note_delay(self, stage: int, passed_ns: int) -> None:
        """Report what this worker really waited in DELAY, in ns."""
        at = self._claimed_slot() + _DELAYS + stage * 8
        (before,) = struct.unpack_from("q", self._view, at)
        struct.pack_into("q", self._view, at, before + passed_ns)

    # --- reading, in the owner -----------------------------------------------------------------

    def tapes(self, stage: int) -> list[tuple[int, int]]:
        """Tape length and faults of a stage in each worker that has called it."""
        here = [
            (self._view[slot + _TAPES + stage], self._view[slot + _FAULTS + stage])
            for slot in self._slots()
            if self._view[slot + _TAPES + stage] or self._view[slot + _FAULTS + stage]
        ]
        elsewhere = [tape for reports in self.remote for tape in reports.tapes]
        return here + [(outputs, faults) for at, outputs, faults in elsewhere if at == stage]

    def delay_ns(self, stage: int) -> int:
        """The nanoseconds that all workers together really waited in DELAY of a stage."""
        here: int = sum(
            struct.unpack_from("q", self._view, slot + _DELAYS + stage * 8)[0]
            for slot in self._slots()
        )
        return here + sum(reports.delays_ns.get(stage, 0) for reports in self.remote)

    @property
    def dropped_events(self) -> int:
        """Events that were overwritten before they were read."""
        return self._dropped_events + sum(reports.dropped for reports in self.remote)

    def pids(self) -> list[int]:
        """The processes of this machine that have reported."""
        return [struct.unpack_from("q", self._view, slot)[0] for slot in self._slots()]

    def new_events(self) -> list[Event]:
        """The workers' events since the last call; `dropped_events` counts those overwritten."""
        events = [event for reports in self.remote for event in reports.take_events()]
        for number, slot in enumerate(self._slots()):
            (head,) = struct.unpack_from("q", self._view, slot + _HEAD)
            first = max(self._read_heads[number], head - RING_EVENTS)
            self._dropped_events += first - self._read_heads[number]
            base = slot + _EVENTS
            new = [
                Event(*_EVENT.unpack_from(self._view, base + (k % RING_EVENTS) * _EVENT.size))
                for k in range(first, head)
            ]
            events.extend(new)
            if new:
                (pid,) = struct.unpack_from("q", self._view, slot)
                self.processes.update(dict.fromkeys({event.lane for event in new}, pid))
            self._read_heads[number] = head
        return events

    # --- slots ---------------------------------------------------------------------------------

    def _ring_log(self) -> Callable[[tuple[int, int, int, int]], None]:
        slot = self._claimed_slot()
        base = slot + _EVENTS
        head = self._view[slot + _HEAD : slot + _HEAD + 8].cast("q")
        pack, view, pid = _EVENT.pack_into, self._view, self._pid
        take = itertools.count(head[0]).__next__  # atomic under threads

        def log(event: tuple[int, int, int, int]) -> None:
            number = take()
            stage, start, end, lane = event
            lane = lane_apart(lane, pid)
            pack(view, base + (number % RING_EVENTS) * _EVENT.size, stage, start, end, lane)
            head[0] = number + 1

        return log

    def _slots(self) -> Iterator[int]:
        for number in range(MAX_WORKERS):
            slot = number * _SLOT_BYTES
            if not any(self._view[slot : slot + 8]):
                return
            yield slot

    def _claimed_slot(self) -> int:
        if self._slot is None:
            with self._lock.held():
                self._slot = self._free_slot()
        return self._slot

    def _free_slot(self) -> int:
        for number in range(MAX_WORKERS):
            slot = number * _SLOT_BYTES
            (pid,) = struct.unpack_from("q", self._view, slot)
            if pid == 0 or not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
                # A dead worker's slot goes on counting from its head: its last events may not
                # have been read yet.
                self._view[slot + _TAPES : slot + _DELAYS] = bytes(2 * MAX_STAGES)
                struct.pack_into("q", self._view, slot, self._pid)
                return slot
        raise StageError(
            f"more than {MAX_WORKERS} processes call stages of one loop; "
            "put the stage around a worker's larger unit of work in fewer processes"
        )
