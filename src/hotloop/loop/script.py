"""Measuring a user's script without changing it.

The script runs as `__main__`, in this process and on its main thread. Its iterations are those that
it marks (`hotloop.iterations`), else those that the calls of its stages show; the measurement works
at their boundaries, and ends the script when it has what it needs.
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
from hotloop.loop.conduct import Conductor, Measurement, Observer, StoppedByMeasurement
from hotloop.loop.control import SharedControl
from hotloop.loop.iterables import on_end_of_pass
from hotloop.loop.loop import Loop
from hotloop.loop.stage_types import StageView
from hotloop.loop.state import reachable_ids
from hotloop.loop.values import is_tensor, torch_if_loaded

T = TypeVar("T")

# How long, and how often, stages are watched before one is taken as the mark of an iteration.
WATCH_NS = 1_000_000_000
WATCH_CALLS = 4
# How often a script without iterations is looked at.
LOOK_S = 0.25


@dataclass(frozen=True)
class StartLimits:
    """How long a script may run before its first iteration, in seconds; None: without a limit."""

    total: float | None = None
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

    unit: what is counted, in the plural; units: how many of it an item holds (default: one).
    batches: batches that one iteration feeds to an update.
    Outside a measurement this only yields the items.
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
    """Declare the objects that a script's stages and its learning change, such as the policy.

    An experiment saves them and puts them back, so that nothing learned from replayed data remains.
    Outside a measurement this does nothing.
    """
    if _session is not None:
        _session.state.extend(objects)


class Session:
    """One script under measurement: what it has declared, and its conductor once it iterates."""

    def __init__(
        self,
        path: Path,
        control: SharedControl,
        measure: Callable[[Loop], Measurement[Any]],
        *,
        observer: Observer | None = None,
    ) -> None:
        self.path = path
        self.control = control
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
        """Take `hotloop.iterations`, which was called, as the mark of iterations."""
        self.control.watcher = None
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
        """Note that an iteration of the script has ended."""
        assert self.conductor is not None
        self.conductor.boundary(units)
        if self.conductor.finished:
            raise StoppedByMeasurement

    def watch(self, called: StageView) -> None:
        """Note that a stage is called: find the one that marks iterations, then follow it by name.

        Not by its identity: a script may make its stages anew in every epoch.
        """
        now = self.control.clock.now_ns()
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
            iterables = [name for name in often if self.control.stages[name].is_iterable]
            # The source of a `for`, else the stage that is called least often.
            self._chosen = next(iter(iterables), min(often, key=often.__getitem__, default=None))
        if called.name == self._chosen:
            self._anchor = called.name
            self._pass_ended = False
            self.mark = f"each start of stage {called.name!r}"
            self._begin("iterations", 1)

    def end_of_pass(self, ended: StageView) -> None:
        """Note that an iterable is exhausted: the call that found this began no iteration."""
        if ended.name == self._anchor and threading.get_ident() == self.main:
            self._pass_ended = True

    def _was_end_of_pass(self) -> bool:
        ended, self._pass_ended = self._pass_ended, False
        return ended

    def undeclared(self) -> list[str]:
        """Return the script's variables that hold undeclared state, as `name (type)`."""
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
            self.control,
            name=self.path.name,
            unit=unit,
            observer=self._observer,
        )
        self.conductor.begin()


def drive_script(
    session: Session, arguments: Sequence[str], start_limits: StartLimits | None = None
) -> None:
    """Run the script of a session as `__main__`, until it ends or its measurement does.

    start_limits: when to stop a script that shows no iterations; `session.stopped` then says why.

    Raises: TargetError if it is not there; LoopError if it exits with an error code; whatever the
    script raises.
    """
    global _session
    if not session.path.is_file():
        raise TargetError(f"{session.path}: no such script")
    if _session is not None:
        raise LoopError("a script under measurement cannot measure another one")
    _session = session
    session.control.watcher = session.watch
    on_end_of_pass(session.end_of_pass)
    session.control.set(Arm("watching", rest=REAL))
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(session.path), *arguments]
    sys.path[0:1] = [str(session.path.parent), sys.path[0]]
    try:
        with _stopped_without_iterations(session, start_limits or StartLimits()):
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
        session.control.watcher = None
        on_end_of_pass(None)
        session.control.set(Arm("off", rest=OFF))
        sys.argv, sys.path[:] = argv, path
        _session = None


_session: Session | None = None


def current_session() -> Session | None:
    """Return the script under measurement in this process, or None."""
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
def _stopped_without_iterations(session: Session, start_limits: StartLimits) -> Iterator[None]:
    """Stop a script that shows no iterations within its limits."""
    if start_limits == StartLimits():
        yield
        return
    done = threading.Event()
    watch = threading.Thread(
        target=_watch_for_iterations,
        args=(session, start_limits, done),
        name="hotloop-start-limits",
        daemon=True,
    )
    on_main_thread = threading.current_thread() is threading.main_thread()

    def on_alarm(_signal: int, _frame: object) -> None:
        if session.conductor is None and not done.is_set():
            raise StoppedByMeasurement

    # A signal also ends a wait in the kernel; only the main thread gets them.
    before = signal.signal(signal.SIGALRM, on_alarm) if on_main_thread else None
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
        if on_main_thread:
            signal.signal(signal.SIGALRM, before)


def _watch_for_iterations(
    session: Session, start_limits: StartLimits, done: threading.Event
) -> None:
    """Stop the script as soon as `_reason_to_stop` has a reason; runs on a thread of its own."""
    made_before = dict(session.control.stages)
    begin = last = time.monotonic()
    running = 0.0
    while not done.wait(LOOK_S) and session.conductor is None:
        now = time.monotonic()
        running += 0.0 if _is_importing(session.main) else now - last
        last = now
        stages = list(session.control.stages.items())
        made = any(made_before.get(name) is not known for name, known in stages)
        reason = _reason_to_stop(session, start_limits, made, now - begin, running)
        if reason is not None:
            session.stopped = reason
            _raise_in(session.main, done)


def _reason_to_stop(
    session: Session, start_limits: StartLimits, made: bool, passed_s: float, running_s: float
) -> str | None:
    """Return why to stop a script now, or None; running_s: the time outside of imports."""
    if session.first_call_ns is not None:
        watched_s = (session.control.clock.now_ns() - session.first_call_ns) * 1e-9
        if watched_s >= (start_limits.first_iteration or float("inf")):
            return (
                f"{watched_s:.0f} s after the first call of a stage, no stage had been called "
                f"{WATCH_CALLS} times on the script's own thread"
            )
    elif made and running_s >= (start_limits.first_call or float("inf")):
        return f"after {running_s:.0f} s of running, none of its stages had been called"
    elif not made and running_s >= (start_limits.first_stage or float("inf")):
        return (
            f"after {running_s:.0f} s of running, no stage had been made and no iterations "
            "had been marked"
        )
    if passed_s >= (start_limits.total or float("inf")):
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
