"""Measuring a user's script as it stands.

The script runs unchanged, as `__main__`, in this process and on its main thread. Its iterations
are where it says (`hotloop.iterations`), else where its stages let them be seen; the measurement
works at those points, and unwinds the script when it has what it needs.
"""

import ctypes
import runpy
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hotloop.errors import LoopError, TargetError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.board import Board
from hotloop.loop.conduct import Conductor, Measurement, Observer, StoppedByMeasurement
from hotloop.loop.iterables import on_end_of_pass
from hotloop.loop.loop import Loop
from hotloop.loop.stage import Stage
from hotloop.loop.state import reachable_ids
from hotloop.loop.values import is_tensor, torch_if_loaded

T = TypeVar("T")

# How long, and how often, stages are watched before one is taken as the mark of an iteration.
WATCH_NS = 1_000_000_000
WATCH_CALLS = 4
# How often a script without iterations is looked at.
LOOK_S = 0.25


@dataclass(frozen=True)
class Patience:
    """How long a script may run before its first iteration, in seconds; None: for ever."""

    in_all: float | None = None
    """From its start."""
    first_stage: float | None = None
    """Outside of imports, until a stage is made."""
    first_call: float | None = None
    """Outside of imports, until a stage is called."""
    first_iteration: float | None = None
    """From the first call of a stage."""


def iterations(
    iterable: Iterable[T],
    *,
    unit: str = "iterations",
    units: Callable[[T], float] | None = None,
    batches: int = 1,
) -> Iterator[T]:
    """Mark a script's iterations: `for batch in hotloop.iterations(loader): …`.

    unit: what is counted, in the plural; units: how many of it an item brings (default: one).
    batches: batches that one iteration feeds to an update.
    Outside a measurement this hands the items on and does nothing else.
    """
    session = _session
    if session is None:
        yield from iterable
        return
    session.open_iterations(unit, batches)
    for item in iterable:
        yield item
        session.boundary(1 if units is None else units(item))


def state(*objects: object) -> None:
    """Declare what a script's stages and its learning change: policy, optimiser, env, buffers.

    An experiment saves it and puts it back, so that nothing learned from replayed data survives.
    Outside a measurement this does nothing.
    """
    if _session is not None:
        _session.state.extend(objects)


class Session:
    """One script under measurement: what it has declared, and its conductor once it iterates."""

    def __init__(
        self,
        path: Path,
        board: Board,
        measure: Callable[[Loop], Measurement[Any]],
        *,
        observer: Observer | None = None,
    ) -> None:
        self.path = path
        self.board = board
        self.state: list[object] = []
        self.conductor: Conductor | None = None
        self.loop: Loop | None = None
        self.cut_short = False  # the script ended before the measurement did
        self.mark: str | None = None  # what an iteration was recognised by
        self.stopped: str | None = None  # why it was stopped before its first iteration
        self.first_call_ns: int | None = None  # of any stage, in any thread
        self.main = threading.get_ident()
        self._measure = measure
        self._observer = observer
        self._anchor: str | None = None  # the stage whose starts are the boundaries
        self._pass_ended = False
        self._chosen: str | None = None
        self._calls: dict[str, int] = {}

    def open_iterations(self, unit: str, batches: int) -> None:
        """`hotloop.iterations` was called: it marks the iterations from here on."""
        self.board.watcher = None
        if self.conductor is None:
            self.mark = "hotloop.iterations"
            self._begin(unit, batches)
        elif self._anchor is not None:
            raise LoopError(
                f"{self.path.name}: the stage {self._anchor!r} had been taken as the mark of "
                "an iteration before hotloop.iterations was reached; call it before the loop's "
                "stages are used"
            )

    def boundary(self, units: float) -> None:
        """An iteration of the script has ended."""
        assert self.conductor is not None
        self.conductor.boundary(units)
        if self.conductor.finished:
            raise StoppedByMeasurement

    def watch(self, called: Stage) -> None:
        """A stage is entered: find the one that marks iterations, then follow it by its name.

        Not by its identity: a script may make its stages anew in every epoch.
        """
        now = self.board.clock.now_ns()
        self.first_call_ns = self.first_call_ns or now
        if threading.get_ident() != self.main:
            return
        if self._anchor is not None:
            if called.name == self._anchor and not self._was_end_of_pass():
                self.boundary(1)
            return
        self._calls[called.name] = self._calls.get(called.name, 0) + 1
        if now - self.first_call_ns < WATCH_NS:
            return
        if self._chosen is None:
            often = {name: n for name, n in self._calls.items() if n >= WATCH_CALLS}
            iterables = [name for name in often if self.board.stages[name].is_iterable]
            # The source of a `for`, else the stage that is called least often.
            self._chosen = next(iter(iterables), min(often, key=often.__getitem__, default=None))
        if called.name == self._chosen:
            self._anchor = called.name
            self._pass_ended = False
            self.mark = f"each start of stage {called.name!r}"
            self._begin("iterations", 1)

    def end_of_pass(self, ended: Stage) -> None:
        """An iterable had no more items: the call that found this out began no iteration."""
        if ended.name == self._anchor and threading.get_ident() == self.main:
            self._pass_ended = True

    def _was_end_of_pass(self) -> bool:
        ended, self._pass_ended = self._pass_ended, False
        return ended

    def undeclared(self) -> list[str]:
        """Variables of the script that hold state which it did not declare, as `name (type)`."""
        covered = reachable_ids(self.state)
        found: dict[str, str] = {}
        scopes: list[dict[str, Any]] = []
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename == str(self.path):
                scopes += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
        for scope in scopes:
            for name, value in scope.items():
                if not name.startswith("_") and id(value) not in covered and _holds_state(value):
                    found.setdefault(name, type(value).__name__)
        return [f"{name} ({kind})" for name, kind in found.items()]

    def _begin(self, unit: str, batches: int) -> None:
        self.loop = Loop(
            body=_no_body,
            unit=unit,
            name=self.path.name,
            state=self.state,
            batches=batches,
        )
        self.conductor = Conductor(
            self._measure(self.loop),
            self.board,
            name=self.path.name,
            unit=unit,
            observer=self._observer,
        )
        self.conductor.begin()


def drive_script(
    session: Session, arguments: Sequence[str], patience: Patience | None = None
) -> None:
    """Run the script of a session as `__main__`, until it ends or its measurement does.

    patience: when to stop it if it shows no iterations; `session.stopped` then says why.

    Raises: TargetError if it is not there; LoopError if it exits with an error code; whatever the
    script raises.
    """
    global _session
    if not session.path.is_file():
        raise TargetError(f"{session.path}: no such script")
    if _session is not None:
        raise LoopError("a script under measurement cannot measure another one")
    _session = session
    session.board.watcher = session.watch
    on_end_of_pass(session.end_of_pass)
    session.board.set(Arm("watching", rest=REAL))
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(session.path), *arguments]
    sys.path[0:1] = [str(session.path.parent), sys.path[0]]
    try:
        with _stopped_without_iterations(session, patience or Patience()):
            runpy.run_path(str(session.path), run_name="__main__")
    except StoppedByMeasurement:
        pass
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise LoopError(f"{session.path.name} exited with {stop.code!r}") from None
    finally:
        if session.conductor is not None and not session.conductor.finished:
            session.cut_short = True
            session.conductor.abandon()
        session.board.watcher = None
        on_end_of_pass(None)
        session.board.set(Arm("off", rest=OFF))
        sys.argv, sys.path[:] = argv, path
        _session = None


_session: Session | None = None


def current_session() -> Session | None:
    """The script under measurement in this process, if one is."""
    return _session


def _no_body() -> None:
    raise LoopError("a script runs itself; it has no body to call")


def _holds_state(value: Any) -> bool:
    torch = torch_if_loaded()
    if torch is not None and isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return True
    if isinstance(value, type | types.ModuleType | types.FunctionType):
        return False
    if is_tensor(value) or isinstance(value, np.random.Generator | np.ndarray):
        return True
    kind = type(value)
    return any(
        callable(getattr(kind, first, None)) and callable(getattr(kind, second, None))
        for first, second in (("step", "reset"), ("state_dict", "load_state_dict"))
    )


@contextmanager
def _stopped_without_iterations(session: Session, patience: Patience) -> Iterator[None]:
    """Stop a script that shows no iterations when the patience with it is at its end."""
    if patience == Patience():
        yield
        return
    done = threading.Event()
    watch = threading.Thread(
        target=_watch_for_iterations,
        args=(session, patience, done),
        name="hotloop-patience",
        daemon=True,
    )
    on_main_thread = threading.current_thread() is threading.main_thread()

    def ring(_signal: int, _frame: object) -> None:
        if session.conductor is None and not done.is_set():
            raise StoppedByMeasurement

    # A signal also ends a wait in the kernel; only the main thread gets them.
    before = signal.signal(signal.SIGALRM, ring) if on_main_thread else None
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
        if on_main_thread:
            signal.signal(signal.SIGALRM, before)


def _watch_for_iterations(session: Session, patience: Patience, done: threading.Event) -> None:
    """On a thread of its own: stop the script as soon as `_impatient` has a reason."""
    made_before = dict(session.board.stages)
    begin = last = time.monotonic()
    running = 0.0
    while not done.wait(LOOK_S) and session.conductor is None:
        now = time.monotonic()
        running += 0.0 if _is_importing(session.main) else now - last
        last = now
        stages = list(session.board.stages.items())
        made = any(made_before.get(name) is not known for name, known in stages)
        reason = _impatient(session, patience, made, now - begin, running)
        if reason is not None:
            session.stopped = reason
            _raise_in(session.main, done)


def _impatient(
    session: Session, patience: Patience, made: bool, passed_s: float, running_s: float
) -> str | None:
    """Why a script is to be stopped now, or None; running_s: the time outside of imports."""
    if session.first_call_ns is not None:
        watched_s = (session.board.clock.now_ns() - session.first_call_ns) * 1e-9
        if watched_s >= (patience.first_iteration or float("inf")):
            return (
                f"{watched_s:.0f} s after the first call of a stage, no stage had been called "
                f"{WATCH_CALLS} times on the script's own thread"
            )
    elif made and running_s >= (patience.first_call or float("inf")):
        return f"after {running_s:.0f} s of running, none of its stages had been called"
    elif not made and running_s >= (patience.first_stage or float("inf")):
        return (
            f"after {running_s:.0f} s of running, no stage had been made and no iterations "
            "had been marked"
        )
    if passed_s >= (patience.in_all or float("inf")):
        return f"no iterations were marked in {passed_s:.0f} s"
    return None


def _is_importing(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _raise_in(thread: int, done: threading.Event) -> None:
    """Raise StoppedByMeasurement in a thread."""
    if thread == threading.main_thread().ident:
        signal.pthread_kill(thread, signal.SIGALRM)
    elif not done.is_set():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(StoppedByMeasurement)
        )
