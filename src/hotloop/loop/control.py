"""The shared memory through which one process tells all processes of a loop what stages do.

It holds the current arm, in memory that forked and spawned workers map too, so that a switch
reaches all of them at once: one byte a stage, which is all that an idle stage reads, and one word
with the kind, its number and the epoch, which a measured stage reads once and as a whole. It also
holds what the workers report. It has no name in the file system: when the last process that maps
it ends, even by SIGKILL, it is gone.
"""

import mmap
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from hotloop.errors import StageError
from hotloop.loop.arm import Arm, kind_of, packed
from hotloop.loop.clock import Clock, RealClock
from hotloop.loop.declared_state import DeclaredState
from hotloop.loop.event import GPU_LANE, MAX_STAGES, Event
from hotloop.loop.gpu import GpuTimer
from hotloop.loop.handover import Handover
from hotloop.loop.helper_threads import HelperThreads
from hotloop.loop.memory import FileLock, open_memory
from hotloop.loop.stage_types import StageView
from hotloop.loop.violation import Violation
from hotloop.loop.worker_reports import REPORTS_BYTES, WorkerReports

ENVIRONMENT_VARIABLE = "HOTLOOP_CONTROL"

MAX_NAME_BYTES = 64

_MAGIC = b"hotloop2"
_HEADER_BYTES = 64  # magic, then a field of 8 bytes each
_EPOCH, _COUNT, _ITERATION, _LONGEST_WAIT, _TAPE_BYTES, _PHASE = range(8, 56, 8)
_NAMES = _HEADER_BYTES
_MODES = _NAMES + MAX_STAGES * MAX_NAME_BYTES
_WORDS = _MODES + MAX_STAGES
_PACES = _WORDS + MAX_STAGES * 8
_REPORTS = _PACES + MAX_STAGES * 8
# Until an experiment knows the loop, no stage is delayed for longer than this.
LONGEST_WAIT_NS = 1_000_000_000
TAPE_BYTES = 1 << 30
_TOTAL_BYTES = _REPORTS + REPORTS_BYTES


class ArmMessage(NamedTuple):
    """The arm of now and its limits, for a process that cannot map the memory."""

    epoch: int
    words: dict[str, int]  # by the name of a stage
    rest: int  # the word of all others
    longest_wait_ns: int
    tape_bytes: int
    replay_phase: float


class Follower(Protocol):
    """Processes that obey the control by messages (see `hotloop.loop.remote`)."""

    def obey(self) -> None:
        """Send them the arm of now. It must not block."""
        ...

    def fetch(self) -> None:
        """Bring what their stages have reported since into the control."""
        ...


class SharedControl:
    """The current arm, shared by every process of a loop, and the workers' reports.

    The process that makes one owns it and sets arms; a process that attaches (by fork, or by the
    environment variable when spawned) obeys, and reports through a slot of its own.
    """

    def __init__(self, clock: Clock | None = None, path: str | None = None) -> None:
        self.clock: Clock = clock or RealClock()
        self.owner = path is None
        self.calls = [0] * MAX_STAGES  # logged calls of each stage since this was made
        self.stages: dict[str, StageView] = {}
        self.watcher: Callable[[StageView], None] | None = None
        # What is entered around each call of a stage, given its name, where calls are NAMED.
        self.annotate: Callable[[str], AbstractContextManager[object]] | None = None
        # What is handed over between parts of the loop; None: nobody asks, and it is not noted.
        self.handovers: list[Handover] | None = None
        self.gpu: GpuTimer | None = None
        self.gpu_intervals: list[tuple[int, object, object]] = []
        # The owner's own events: a list's append is atomic and the fastest log Python has.
        self.events: list[Event | tuple[int, int, int, int]] = []
        self.main_thread = threading.get_ident()
        self.helpers = HelperThreads()
        # Whether this process is hotloop's own, and ends after the measurement.
        self.in_own_process = False
        # What the stages declared "stateful" may change, for the check of what they do.
        self.state = DeclaredState()
        # Weak: who obeys lives as long as its workers do.
        self.followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self.checks: dict[str, int] = {}  # calls that were checked, by stage
        self.violations: list[Violation] = []
        # Whether the ranks of a job obey: then the arm changes only where all begin an iteration.
        self.obeyed_in_step = False
        # The stages of a script whose calls say where its iterations begin; None: not known. While
        # `marks_only`, no other is timed, and nothing can be known of how often they are called.
        self.marking: frozenset[str] | None = None
        self.marks_only = False
        # What was done with the loop's state since they were told last; None: nobody follows.
        self.state_operations: list[str] | None = None
        self._fd = open_memory("hotloop-control") if path is None else os.open(path, os.O_RDWR)
        self._map_memory(path)
        _live_controls.add(self)
        # At exit the system closes it: a thread may still call stages then.
        weakref.finalize(self, os.close, self._fd).atexit = False

    def _map_memory(self, path: str | None) -> None:
        """Map the shared memory, and name its fields."""
        if self.owner:
            os.ftruncate(self._fd, _TOTAL_BYTES)
        self._view = view = memoryview(mmap.mmap(self._fd, _TOTAL_BYTES))
        self.modes = view[_MODES : _MODES + MAX_STAGES]
        self.words = view[_WORDS : _WORDS + MAX_STAGES * 8].cast("Q")
        # How many calls a loop's iteration has of a stage that runs beside it; 0: not known.
        self.paces = view[_PACES : _PACES + MAX_STAGES * 8].cast("d")
        self._epoch = view[_EPOCH : _EPOCH + 8].cast("q")
        self._count = view[_COUNT : _COUNT + 8].cast("q")
        # Iterations that have ended since this was made: what paced stages wait for.
        self.iteration = view[_ITERATION : _ITERATION + 8].cast("q")
        # No wait of a stage is longer than this, whatever its arm says.
        self.longest_wait_ns = view[_LONGEST_WAIT : _LONGEST_WAIT + 8].cast("q")
        # How much one tape may hold, its copies included.
        self.tape_bytes = view[_TAPE_BYTES : _TAPE_BYTES + 8].cast("q")
        # Where on its tape every stage starts to replay, as a share of its length.
        self.replay_phase = view[_PHASE : _PHASE + 8].cast("d")
        self._report_to_owner()
        if self.owner:
            view[:8] = _MAGIC
            self.longest_wait_ns[0] = LONGEST_WAIT_NS
            self.tape_bytes[0] = TAPE_BYTES
        elif bytes(view[:8]) != _MAGIC:
            raise StageError(
                f"{ENVIRONMENT_VARIABLE} names {path}, which is no shared control of this hotloop "
                "version; unset it, or use one version for all processes"
            )

    def _report_to_owner(self) -> None:
        self._lock = FileLock(self._fd)
        self.workers = WorkerReports(self._view[_REPORTS:], self._lock)

    # --- naming ------------------------------------------------------------------------------

    def index(self, name: str) -> int:
        """Return the number of the stage called `name`, the same in every process.

        Raises: StageError for a name of more than 64 bytes or more than 256 names.
        """
        encoded = name.encode()
        if not encoded or len(encoded) > MAX_NAME_BYTES:
            raise StageError(f"stage name {name!r}: expected 1 to {MAX_NAME_BYTES} bytes of UTF-8")
        with self._lock.held():
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
        """Return all stage names, by number."""
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
        """Put `arm` into force in every process; return the new epoch."""
        names = self.names()
        epoch = self._epoch[0] + 1
        rest = packed(arm.rest, epoch)
        for number in range(MAX_STAGES):
            # The word first: a process that sees the new byte must see its word too.
            if number < len(names):
                mode = arm.mode(names[number])
                self.words[number] = packed(mode, epoch)
                self.modes[number] = mode.kind
            else:
                self.words[number] = rest
                self.modes[number] = arm.rest.kind
        self._epoch[0] = epoch
        for stage in list(self.stages.values()):
            stage.obey(arm.mode(stage.name).kind)
        for follower in list(self.followers):
            follower.obey()
        return epoch

    def message(self) -> ArmMessage:
        """Return the arm of now as a message, for `follow` in another process."""
        return ArmMessage(
            epoch=self._epoch[0],
            words=dict(zip(self.names(), self.words, strict=False)),
            rest=self.words[MAX_STAGES - 1] if self._count[0] < MAX_STAGES else 0,
            longest_wait_ns=self.longest_wait_ns[0],
            tape_bytes=self.tape_bytes[0],
            replay_phase=self.replay_phase[0],
        )

    def follow(self, message: ArmMessage) -> None:
        """Put the arm of another process's message into force."""
        self.longest_wait_ns[0] = message.longest_wait_ns
        self.tape_bytes[0] = message.tape_bytes
        self.replay_phase[0] = message.replay_phase
        words = {self.index(name): word for name, word in message.words.items()}
        for number in range(MAX_STAGES):  # each word first, as in `set`
            self.words[number] = word = words.get(number, message.rest)
            self.modes[number] = kind_of(word)
        self._epoch[0] = message.epoch

    def note_state(self, operation: str) -> None:
        """Note what was done with the loop's state, for ranks that do the same with theirs."""
        if self.state_operations is not None:
            self.state_operations.append(operation)

    # --- events and reports ------------------------------------------------------------------

    @property
    def is_worker(self) -> bool:
        """Whether another process owns this control, and this one obeys."""
        return not self.owner

    def log_for_this_process(self) -> Callable[[tuple[int, int, int, int]], None]:
        """Return the function that logs one event: a list's append, or a worker's ring."""
        return self.events.append if self.owner else self.workers.log()

    def note_tape(self, stage: int, length: int, faults: int) -> None:
        """Report to the owner how many outputs this worker's tape of a stage holds."""
        if not self.owner:
            self.workers.note_tape(stage, length, faults)

    def note_delay(self, stage: int, passed_ns: int) -> None:
        """Report to the owner what this worker really waited in DELAY, in ns."""
        if not self.owner:
            self.workers.note_delay(stage, passed_ns)

    def fetch_reports(self) -> None:
        """Bring in what those report that obey by messages; it takes a message there and back."""
        for follower in list(self.followers):
            follower.fetch()

    def drain_events(self) -> list[Event]:
        """Return all events since the last call, the owner's and the workers', by start time."""
        length = len(self.events)  # other threads go on appending
        events = [Event(*event) for event in self.events[:length]]
        del self.events[:length]
        if self.gpu is not None and self.gpu_intervals:
            self.gpu.synchronize()
            intervals, self.gpu_intervals = self.gpu_intervals, []
            events.extend(
                Event(stage, *self.gpu.interval_ns(start, end), GPU_LANE)
                for stage, start, end in intervals
            )
        events.extend(self.workers.new_events())
        events.sort(key=lambda event: event.start_ns)
        for event in events:
            self.calls[event.stage] += 1
        return events

    # --- lifetime ----------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where another process of this user can open the control while its owner lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def become_worker(self) -> None:
        """Obey instead of own, in a forked child."""
        self.owner = False
        self._report_to_owner()
        self.events = []
        self.watcher = None
        for known in self.stages.values():
            known.rebind()


def process_control() -> SharedControl:
    """Return the control that this process's stages obey: inherited, attached to, or made now.

    There is one in each process, because a stage in a user's module cannot be given one. It is
    made with the first stage, and spawned workers find its path in the environment.
    """
    global _control
    if _control is None:
        path = os.environ.get(ENVIRONMENT_VARIABLE)
        if path and os.path.exists(path):  # noqa: PTH110
            _control = SharedControl(path=path)
        else:
            _control = SharedControl()
            os.environ[ENVIRONMENT_VARIABLE] = _control.path
    return _control


def leave_inherited_control() -> None:
    """Forget a control named in the environment: this process measures for itself."""
    if _control is None:
        os.environ.pop(ENVIRONMENT_VARIABLE, None)


_control: SharedControl | None = None
_live_controls: "weakref.WeakSet[SharedControl]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for control in list(_live_controls):
        control.become_worker()


os.register_at_fork(after_in_child=_after_fork_in_child)
