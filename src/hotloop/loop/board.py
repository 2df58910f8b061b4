"""The shared memory that says to every process of a loop what its stages do.

The board holds the current arm in memory that forked and spawned workers map too, so that a switch
reaches all of them at once: one byte a stage, which is all that an idle stage reads, and one word
with the kind, its number and the epoch, which a measured stage reads once and as a whole. It also
holds what the workers measured. It has no name in the file system: when the last process that maps
it ends, even by SIGKILL, it is gone.
"""

import fcntl
import itertools
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from hotloop.errors import StageError
from hotloop.loop.arm import Arm, packed
from hotloop.loop.clock import Clock, RealClock
from hotloop.loop.gpu import GpuTimer
from hotloop.loop.memory import open_memory

if TYPE_CHECKING:
    from hotloop.loop.effects import BrokenPromise
    from hotloop.loop.stage import Stage

ENVIRONMENT_VARIABLE = "HOTLOOP_BOARD"


class Event(NamedTuple):
    """One timed call of a stage.

    A lane is what does one thing at a time: a thread of one process (positive), an asyncio task
    (below `GPU_LANE`), or the GPU's stream (`GPU_LANE`).
    """

    stage: int
    start_ns: int
    end_ns: int
    lane: int


MAX_STAGES = 256
MAX_NAME_BYTES = 64
MAX_WORKERS = 64
RING_EVENTS = 4096
GPU_LANE = -1  # the lane of events read off the GPU's clock

_MAGIC = b"hotloop2"
_EVENT = struct.Struct("qqqq")
_HEADER_BYTES = 64  # magic, then a field of 8 bytes each
_EPOCH, _COUNT, _ITERATION, _LONGEST_WAIT, _TAPE_BYTES, _PHASE = range(8, 56, 8)
_NAMES = _HEADER_BYTES
_MODES = _NAMES + MAX_STAGES * MAX_NAME_BYTES
_WORDS = _MODES + MAX_STAGES
_PACES = _WORDS + MAX_STAGES * 8
_SLOTS = _PACES + MAX_STAGES * 8
# Until an experiment knows the loop, no stage is delayed for longer than this.
LONGEST_WAIT_NS = 1_000_000_000
TAPE_BYTES = 1 << 30
# A worker's slot: its pid and its event count, tape lengths and tape faults by stage, the
# nanoseconds really delayed by stage, then a ring of events.
_SLOT_TAPES = 64
_SLOT_FAULTS = _SLOT_TAPES + MAX_STAGES
_SLOT_DELAYS = _SLOT_FAULTS + MAX_STAGES
_SLOT_EVENTS = _SLOT_DELAYS + MAX_STAGES * 8
_SLOT_BYTES = _SLOT_EVENTS + RING_EVENTS * _EVENT.size
_TOTAL_BYTES = _SLOTS + MAX_WORKERS * _SLOT_BYTES  # about 8 MiB, touched only where used


class Board:
    """The current arm, shared by every process of a loop, and the workers' measurements.

    The process that makes a board owns it and sets arms; a process that attaches (by fork, or by
    the environment variable when spawned) obeys, and reports through a slot of its own.
    """

    def __init__(self, clock: Clock | None = None, path: str | None = None) -> None:
        self.clock: Clock = clock or RealClock()
        self.owner = path is None
        self._fd = open_memory("hotloop-board") if path is None else os.open(path, os.O_RDWR)
        if self.owner:
            os.ftruncate(self._fd, _TOTAL_BYTES)
        self._map = mmap.mmap(self._fd, _TOTAL_BYTES)
        view = memoryview(self._map)
        self._view = view
        self.modes = view[_MODES : _MODES + MAX_STAGES]
        self.words = view[_WORDS : _WORDS + MAX_STAGES * 8].cast("Q")
        # How many calls a loop's iteration has of a stage that runs beside it; 0: not known.
        self.paces = view[_PACES : _PACES + MAX_STAGES * 8].cast("d")
        self._epoch = view[_EPOCH : _EPOCH + 8].cast("q")
        self._count = view[_COUNT : _COUNT + 8].cast("q")
        # Iterations that have ended since the board was made: what paced stages wait for.
        self.iteration = view[_ITERATION : _ITERATION + 8].cast("q")
        # No wait of a stage is longer than this, whatever its arm says.
        self.longest_wait_ns = view[_LONGEST_WAIT : _LONGEST_WAIT + 8].cast("q")
        # How much one tape may hold, its copies included.
        self.tape_bytes = view[_TAPE_BYTES : _TAPE_BYTES + 8].cast("q")
        # Where on its tape every stage starts to replay, as a share of its length.
        self.replay_phase = view[_PHASE : _PHASE + 8].cast("d")
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._slot: int | None = None
        self._log: Callable[[tuple[int, int, int, int]], None] | None = None
        self._log_lock = threading.Lock()
        self._read_heads = [0] * MAX_WORKERS
        self.dropped_events = 0
        self.calls = [0] * MAX_STAGES  # logged calls of each stage since the board was made
        self.stages: dict[str, Stage] = {}
        self.watcher: Callable[[Stage], None] | None = None
        self.gpu: GpuTimer | None = None
        self.gpu_spans: list[tuple[int, object, object]] = []
        # The owner's own events: a list's append is atomic and the fastest log Python has.
        self.events: list[Event | tuple[int, int, int, int]] = []
        self.main_thread = threading.get_ident()
        # Objects that the stages declared "stateful" may change, for the check of what they do.
        self.state: Sequence[object] = ()
        self.checks: dict[str, int] = {}  # calls that were checked, by stage
        self.broken_promises: list[BrokenPromise] = []
        if self.owner:
            view[:8] = _MAGIC
            self.longest_wait_ns[0] = LONGEST_WAIT_NS
            self.tape_bytes[0] = TAPE_BYTES
        elif bytes(view[:8]) != _MAGIC:
            raise StageError(
                f"{ENVIRONMENT_VARIABLE} names {path}, which is no board of this hotloop version; "
                "unset it, or use one version for all processes"
            )
        _live_boards.add(self)
        # At exit the system closes it: a thread may still call stages then.
        weakref.finalize(self, os.close, self._fd).atexit = False

    # --- naming ------------------------------------------------------------------------------

    def index(self, name: str) -> int:
        """The number of the stage called `name`, the same in every process.

        Raises: StageError for a name of more than 64 bytes or more than 256 names.
        """
        encoded = name.encode()
        if not encoded or len(encoded) > MAX_NAME_BYTES:
            raise StageError(f"stage name {name!r}: expected 1 to {MAX_NAME_BYTES} bytes of UTF-8")
        with self._exclusive():
            for number, known in enumerate(self.names()):
                if known == name:
                    return number
            number = self._count[0]
            if number == MAX_STAGES:
                raise StageError(
                    f"stage {name!r} would be number {MAX_STAGES + 1}; at most {MAX_STAGES} names "
                    "fit. Name a stage by what it does, not by its item"
                )
            at = _NAMES + number * MAX_NAME_BYTES
            self._view[at : at + MAX_NAME_BYTES] = encoded.ljust(MAX_NAME_BYTES, b"\0")
            self._count[0] = number + 1
            return number

    def names(self) -> list[str]:
        """All stage names, by number."""
        return [
            bytes(self._view[at : at + MAX_NAME_BYTES]).rstrip(b"\0").decode()
            for at in range(_NAMES, _NAMES + self._count[0] * MAX_NAME_BYTES, MAX_NAME_BYTES)
        ]

    # --- the arm -----------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """How many times the arm has changed."""
        return self._epoch[0]

    def set(self, arm: Arm) -> int:
        """Put `arm` into force in every process; returns the new epoch."""
        names = self.names()
        epoch = self._epoch[0] + 1
        rest = packed(arm.rest, epoch)
        for number in range(MAX_STAGES):
            # The word first: who sees the new byte must see its word too.
            if number < len(names):
                mode = arm.mode(names[number])
                self.words[number] = packed(mode, epoch)
                self.modes[number] = mode.kind
            else:
                self.words[number] = rest
                self.modes[number] = arm.rest.kind
        self._epoch[0] = epoch
        return epoch

    # --- workers' reports --------------------------------------------------------------------

    @property
    def is_worker(self) -> bool:
        """Whether this process obeys a board that another one owns."""
        return not self.owner

    def log_for_this_process(self) -> Callable[[tuple[int, int, int, int]], None]:
        """A function that logs one event; the owner's is a list's append, a worker's a ring's."""
        if self.owner:
            return self.events.append
        # One for all stages of the process: they count the places of one ring together.
        with self._log_lock:
            if self._log is None:
                self._log = self._ring_log()
            return self._log

    def _ring_log(self) -> Callable[[tuple[int, int, int, int]], None]:
        slot = self._claim_slot()
        base = slot + _SLOT_EVENTS
        head = self._view[slot + 8 : slot + 16].cast("q")
        pack, view = _EVENT.pack_into, self._view
        take = itertools.count(head[0]).__next__  # atomic under threads

        # A forked worker's threads carry the numbers of its parent's: the pid tells them apart.
        apart = self._pid * 1_000_003

        def log(event: tuple[int, int, int, int]) -> None:
            number = take()
            stage, start, end, lane = event
            lane = (lane + apart) % (1 << 62) if lane > GPU_LANE else lane - apart
            pack(view, base + (number % RING_EVENTS) * _EVENT.size, stage, start, end, lane)
            head[0] = number + 1

        return log

    def note_tape(self, stage: int, length: int, faults: int) -> None:
        """Tell the owner how many outputs this worker's tape of a stage holds, and its faults."""
        if not self.owner:
            slot = self._claim_slot()
            self._view[slot + _SLOT_TAPES + stage] = min(length, 255)
            self._view[slot + _SLOT_FAULTS + stage] = faults

    def note_delay(self, stage: int, passed_ns: int) -> None:
        """Tell the owner what this worker really waited in DELAY, in ns."""
        if not self.owner:
            at = self._claim_slot() + _SLOT_DELAYS + stage * 8
            (before,) = struct.unpack_from("q", self._view, at)
            struct.pack_into("q", self._view, at, before + passed_ns)

    def worker_tapes(self, stage: int) -> list[tuple[int, int]]:
        """Tape length and faults of a stage in each worker that has called it."""
        return [
            (self._view[slot + _SLOT_TAPES + stage], self._view[slot + _SLOT_FAULTS + stage])
            for slot in self._slots()
            if self._view[slot + _SLOT_TAPES + stage] or self._view[slot + _SLOT_FAULTS + stage]
        ]

    def worker_delay_ns(self, stage: int) -> int:
        """The nanoseconds that all workers together really waited in DELAY of a stage."""
        return sum(
            struct.unpack_from("q", self._view, slot + _SLOT_DELAYS + stage * 8)[0]
            for slot in self._slots()
        )

    def worker_pids(self) -> list[int]:
        """The processes that have reported."""
        return [struct.unpack_from("q", self._view, slot)[0] for slot in self._slots()]

    def drain_events(self) -> list[Event]:
        """All events since the last call, the owner's and the workers', by start time."""
        length = len(self.events)  # other threads go on appending
        events = [Event(*event) for event in self.events[:length]]
        del self.events[:length]
        if self.gpu is not None and self.gpu_spans:
            self.gpu.synchronize()
            spans, self.gpu_spans = self.gpu_spans, []
            events.extend(
                Event(stage, *self.gpu.span_ns(start, end), GPU_LANE) for stage, start, end in spans
            )
        for number, slot in enumerate(self._slots()):
            (head,) = struct.unpack_from("q", self._view, slot + 8)
            first = max(self._read_heads[number], head - RING_EVENTS)
            self.dropped_events += first - self._read_heads[number]
            base = slot + _SLOT_EVENTS
            events.extend(
                Event(*_EVENT.unpack_from(self._view, base + (k % RING_EVENTS) * _EVENT.size))
                for k in range(first, head)
            )
            self._read_heads[number] = head
        events.sort(key=lambda event: event.start_ns)
        for event in events:
            self.calls[event.stage] += 1
        return events

    # --- lifetime ----------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where another process of this user can open the board while its owner lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def become_worker(self) -> None:
        """In a forked child: obey instead of own."""
        self.owner = False
        self._slot = None
        self._log, self._log_lock = None, threading.Lock()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.events = []
        self.watcher = None
        for known in self.stages.values():
            known.rebind()

    def _slots(self) -> Iterator[int]:
        for number in range(MAX_WORKERS):
            slot = _SLOTS + number * _SLOT_BYTES
            if not any(self._view[slot : slot + 8]):
                return
            yield slot

    def _claim_slot(self) -> int:
        if self._slot is None:
            with self._exclusive():
                for number in range(MAX_WORKERS):
                    slot = _SLOTS + number * _SLOT_BYTES
                    (pid,) = struct.unpack_from("q", self._view, slot)
                    if pid == 0 or not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
                        # A dead worker's slot goes on counting from its head: its last events
                        # may not have been read yet.
                        self._view[slot + _SLOT_TAPES : slot + _SLOT_DELAYS] = bytes(2 * MAX_STAGES)
                        struct.pack_into("q", self._view, slot, self._pid)
                        self._slot = slot
                        break
                else:
                    raise StageError(
                        f"more than {MAX_WORKERS} processes call stages of one loop; "
                        "put the stage around a worker's larger unit of work in fewer processes"
                    )
        return self._slot

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)


def process_board() -> Board:
    """The board that this process's stages obey: inherited, attached to, or made now.

    There is one a process, because a stage in a user's module cannot be handed one. It is made
    with the first stage, and its path is left in the environment for spawned workers.
    """
    global _board
    if _board is None:
        path = os.environ.get(ENVIRONMENT_VARIABLE)
        if path and os.path.exists(path):  # noqa: PTH110
            _board = Board(path=path)
        else:
            _board = Board()
            os.environ[ENVIRONMENT_VARIABLE] = _board.path
    return _board


def leave_inherited_board() -> None:
    """Forget a board named in the environment: this process is a measurement of its own."""
    if _board is None:
        os.environ.pop(ENVIRONMENT_VARIABLE, None)


_board: Board | None = None
_live_boards: "weakref.WeakSet[Board]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for board in list(_live_boards):
        board.become_worker()


os.register_at_fork(after_in_child=_after_fork_in_child)
