"""Measuring a user's script without changing it.

The script runs as `__main__`, in this process and on its main thread. Its iterations are those that
it marks (`hotloop.iterations`), else those that the calls of its stages show; the measurement works
at their boundaries, and ends the script when it has what it needs.
"""

import os
import runpy
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from hotloop.errors import LoopError, TargetError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.conduct import Conductor, Measurement, Observer, StoppedByMeasurement
from hotloop.loop.control import SharedControl
from hotloop.loop.iterables import on_end_of_pass
from hotloop.loop.loop import Loop
from hotloop.loop.scripts.exit import own_process
from hotloop.loop.scripts.marks import Marks
from hotloop.loop.scripts.place import ScriptPlace, run_decorated
from hotloop.loop.scripts.start import WATCH_CALLS, StartLimits, stopped_without_iterations
from hotloop.loop.scripts.stop import Stopper
from hotloop.loop.scripts.surroundings import surroundings_put_back
from hotloop.loop.stage_types import StageView
from hotloop.loop.state import reachable_ids
from hotloop.loop.values import is_tensor, torch_if_loaded

T = TypeVar("T")

# How long, and how often, stages are watched before one is taken as the mark of an iteration.
WATCH_NS = 1_000_000_000
_MARKED = "hotloop.iterations"
# So many iterations of a script that marks them show what its parts work on, or one that is long.
SEEN, LONG_NS = 3, 5_000_000_000


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


def state(*objects: object, may_go_on: bool = False) -> None:
    """Declare the objects that a script's stages and its learning change, such as the policy.

    An experiment saves them and puts them back, so that nothing learned from replayed data remains.
    Outside a measurement this does nothing.
    may_go_on: those of these objects that cannot be put back go on from where an arm left them, as
    a simulator may: see `Loop`.
    """
    if _session is not None:
        _session.state.extend(objects)
        if may_go_on:
            _session.may_go_on.extend(objects)


class Session:
    """One script under measurement: what it has declared, and its conductor once it iterates.

    marks: finds its iterations where it marks none, and what they change; None: the calls of its
    own stages show them.
    decorators: what is put around functions of the script itself, by their names.
    """

    def __init__(
        self,
        script: ScriptPlace,
        control: SharedControl,
        measure: Callable[[Loop], Measurement[Any]],
        *,
        marks: Marks | None = None,
        decorators: Mapping[str, Callable[[Any], Any]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.script = script
        self.marks = marks
        self.decorators = decorators or {}
        self.control = control
        self.state: list[object] = []
        self.may_go_on: list[object] = []
        self.conductor: Conductor | None = None
        self.loop: Loop | None = None
        self.cut_short = False  # the script ended before the measurement did
        self.mark: str | None = None  # what an iteration was recognised by
        self.is_marked = False  # by the script itself
        self.stopped: str | None = None  # why it was stopped before its first iteration
        self.first_call_ns: int | None = None  # of any stage, in any thread
        self.main = threading.get_ident()
        self.stopper = Stopper()
        self.exit_status: int | None = None  # of os._exit, if the script has called it
        self._measure = measure
        self._observer = observer
        self._anchor: str | None = None  # the stage whose starts are the boundaries
        self._pass_ended = False
        self._chosen: str | None = None
        self._calls: dict[str, int] = {}
        self._seen = 0  # iterations before the first that counts
        self._seen_since_ns = 0
        self._counts: tuple[str, int] = ("iterations", 1)

    def open_iterations(self, unit: str, batches: int) -> None:
        """Take `hotloop.iterations`, which was called, as the mark of iterations."""
        self.control.watcher = None
        self.control.marking = frozenset()  # the script says it itself, with no call of a stage
        self.is_marked = True
        if self.conductor is None:
            self.mark, self._counts = _MARKED, (unit, batches)
            self._seen_since_ns = self.control.clock.now_ns()
            if self.marks is None:
                self._begin(unit, batches)
        elif self.mark != _MARKED:
            taken = self.mark if self._anchor is None else f"the stage {self._anchor!r}"
            raise LoopError(
                f"{self.script.name}: {taken} had been taken as the mark of an iteration before "
                "hotloop.iterations was reached; call it before the loop's stages are used"
            )

    def boundary(self, units: float) -> None:
        """Note that an iteration of the script has ended."""
        if self is not _session:
            return  # of a forked child
        if self.conductor is None:
            self._see()
            return
        self.conductor.boundary(units)
        if self.conductor.finished:
            self.stopper.stop()

    def _see(self) -> None:
        """Begin to measure once it was seen what the iterations change, which can be put back."""
        assert self.marks is not None
        self._seen += 1
        if self._seen < SEEN and self.control.clock.now_ns() < self._seen_since_ns + LONG_NS:
            return
        self.control.drain_events()
        self.state.extend(self.marks.state())
        self._begin(*self._counts)

    def exit_at_once(self, status: int) -> NoReturn:
        """End the script in place of the process, which is hotloop's too."""
        self.exit_status = status
        if threading.get_ident() == self.main:
            self.stopper.stop()
        self.stopper.ask()
        raise SystemExit  # ends this thread

    def watch(self, called: StageView) -> None:
        """Note that a stage is called: find the one that marks iterations, then follow it."""
        if self.conductor is not None and self.marks is not None:
            if threading.get_ident() == self.main:
                self._follow_marks(self.conductor, self.marks, called)
            return
        now = self.control.clock.now_ns()
        self.first_call_ns = self.first_call_ns or now
        if threading.get_ident() != self.main:
            return
        if self.marks is not None:
            self._look_for_marks(self.marks, called, now)
            return
        if self._anchor is not None:
            # By its name: a script may make its stages anew in every epoch.
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

    def _follow_marks(self, conductor: Conductor, marks: Marks, called: StageView) -> None:
        starts = marks.starts(called)
        if marks.away:
            conductor.pause()
        elif starts and conductor.paused:
            marks.units()
            conductor.resume()
        elif starts:
            self.boundary(marks.units())

    def _look_for_marks(self, marks: Marks, called: StageView, now_ns: int) -> None:
        self.mark = marks.look(called, now_ns)
        if self.mark is not None:
            self.state.extend(marks.state())
            self._begin(marks.unit, 1)
            marks.units()

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
            if frame.f_code.co_filename == str(self.script.path):
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
            name=self.script.name,
            state=self.state,
            may_go_on=self.may_go_on,
            batches=batches,
        )
        self.conductor = Conductor(
            self._measure(self.loop),
            self.control,
            name=self.script.name,
            unit=unit,
            observer=self._observer,
        )
        self.conductor.begin()


def drive_script(
    session: Session, arguments: Sequence[str], start_limits: StartLimits | None = None
) -> None:
    """Run the script of a session as `__main__`, until it ends or its measurement does.

    start_limits: when to stop a script that shows no iterations; `session.stopped` then says why.

    Raises: TargetError if it is not there or no Python; LoopError if it exits with an error code;
    whatever the script raises.
    """
    script = session.script
    if not script.path.is_file():
        raise TargetError(f"{script.path}: no such script")
    if _session is not None:
        raise LoopError("a script under measurement cannot measure another one")
    with _under_measurement(session, arguments):
        try:
            with surroundings_put_back(), own_process(session.exit_at_once):
                _run(session, start_limits or StartLimits())
        except StoppedByMeasurement:
            _expect_success(session, session.exit_status)
        except KeyboardInterrupt:
            if not session.stopper.is_stopping:
                raise  # it is the user's
            _expect_success(session, session.exit_status)
        except SystemExit as stop:
            _expect_success(session, stop.code)
        except (SyntaxError, ValueError) as error:
            why = _why_unreadable(error, script)
            if why is None:
                raise
            raise TargetError(f"{script.path}{why}") from None


def _why_unreadable(error: SyntaxError | ValueError, script: ScriptPlace) -> str | None:
    """Say why a script cannot be read as Python; None for an error that it has raised."""
    if isinstance(error, SyntaxError) and error.filename == str(script.path):
        return (
            f", line {error.lineno}: expected a script that this Python can read, "
            f"got {(error.text or '').strip()!r} (SyntaxError: {error.msg})"
        )
    if _is_of_reading(error):
        return f": expected a Python script, got bytes that are no text ({error})"
    return None


def _is_of_reading(error: BaseException) -> bool:
    """Whether it was raised while the script was read, before anything of it ran."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_filename == "<frozen runpy>"


@contextmanager
def _under_measurement(session: Session, arguments: Sequence[str]) -> Iterator[None]:
    """Follow the stages of a script that is called with these arguments, until it has ended."""
    global _session
    script = session.script
    _session = session
    session.control.watcher = session.watch
    on_end_of_pass(session.end_of_pass)
    session.control.set(Arm("watching", rest=REAL))
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script.path), *arguments]
    folder = Path.cwd() if script.module else script.path.parent
    sys.path[0:1] = [str(folder), sys.path[0]]
    try:
        yield
    finally:
        if session.conductor is not None and not session.conductor.finished:
            session.cut_short = True
            session.conductor.abandon()
        session.control.watcher = session.control.marking = None
        on_end_of_pass(None)
        session.control.set(Arm("off", rest=OFF))
        sys.argv, sys.path[:] = argv, path
        _session = None


def _run(session: Session, start_limits: StartLimits) -> None:
    script = session.script
    with session.stopper.stopping(), stopped_without_iterations(session, start_limits):
        if session.decorators:
            run_decorated(script, session.decorators)
        elif script.module is not None:
            runpy.run_module(script.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(script.path), run_name="__main__")


def _expect_success(session: Session, status: object) -> None:
    """Raises: LoopError if a script has ended itself with an error code."""
    if status in (None, 0):
        return
    done = session.conductor.iterations_done if session.conductor is not None else 0
    when = f"after {done} iterations" if done else "before an iteration of it was measured"
    raise LoopError(
        f"{session.script.name} exited with {status!r} {when}: expected a script that trains until "
        "it is stopped; see what it has said, and run it alone with the same arguments"
    )


_session: Session | None = None


def _after_fork_in_child() -> None:
    global _session
    _session = None


os.register_at_fork(after_in_child=_after_fork_in_child)


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
