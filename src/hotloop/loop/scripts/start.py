"""Stopping a script that shows no iterations: what it may take before its first one."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hotloop.loop.conduct import Conductor
from hotloop.loop.control import SharedControl
from hotloop.loop.scripts.marks import Marks
from hotloop.loop.scripts.stop import Stopper
from hotloop.loop.stack import stack_of

# So often must a stage be called before it is taken as the mark of an iteration.
WATCH_CALLS = 4
# How often a script without iterations is looked at.
LOOK_S = 0.25
# Files whose functions run while modules are imported, and while models are compiled.
_IMPORTING = ("<frozen importlib",)
_COMPILING = (
    "torch/_dynamo/convert_frame.py",
    "torch/_inductor/compile_fx.py",
    "jax/_src/compiler.py",
)


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
    """From the first call of a stage, outside of imports and of compiling a model."""


class Starting(Protocol):
    """A script that has no iterations yet (see `hotloop.loop.scripts.session`)."""

    control: SharedControl
    marks: Marks | None
    is_marked: bool
    conductor: Conductor | None
    main: int
    stopper: Stopper
    first_call_ns: int | None
    stopped: str | None


@contextmanager
def stopped_without_iterations(session: Starting, start_limits: StartLimits) -> Iterator[None]:
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
    watch.start()
    try:
        yield
    finally:
        done.set()
        if watch.is_alive():  # not in a forked child, which has no such thread
            watch.join()


def _watch_for_iterations(
    session: Starting, start_limits: StartLimits, done: threading.Event
) -> None:
    """Stop the script as soon as `_reason_to_stop` has a reason; runs on a thread of its own."""
    made_before = dict(session.control.stages)
    begin = last = time.monotonic()
    running = since_call = 0.0
    while not (done.wait(LOOK_S) or session.is_marked or session.conductor is not None):
        now = time.monotonic()
        passed = 0.0 if _is_preparing(session.main) else now - last
        running += passed
        since_call += passed if session.first_call_ns is not None else 0.0
        last = now
        stages = list(session.control.stages.items())
        made = any(made_before.get(name) is not known for name, known in stages)
        reason = _reason_to_stop(session, start_limits, made, now - begin, running, since_call)
        if reason is not None:
            session.stopped = reason
            session.stopper.ask()
            return


def _reason_to_stop(
    session: Starting,
    start_limits: StartLimits,
    made: bool,
    passed_s: float,
    running_s: float,
    watched_s: float,
) -> str | None:
    """Return why to stop a script now, or None.

    running_s: the time outside of imports; watched_s: that part of it since the first call.
    """
    if session.first_call_ns is not None:
        if watched_s >= (start_limits.first_iteration or float("inf")):
            if session.marks is not None:
                return f"{watched_s:.0f} s after its first call, {session.marks.why_not()}"
            return (
                f"{watched_s:.0f} s after the first call of a stage, no stage had been called "
                f"{WATCH_CALLS} times on the script's own thread"
            )
    elif made and running_s >= (start_limits.first_call or float("inf")):
        what = "its stages" if session.marks is None else "the functions that hotloop knows"
        return f"after {running_s:.0f} s of running, none of {what} had been called"
    elif not made and running_s >= (start_limits.first_stage or float("inf")):
        if session.marks is not None:
            return f"after {running_s:.0f} s of running, it had imported no library that is known"
        return (
            f"after {running_s:.0f} s of running, no stage had been made and no iterations "
            "had been marked"
        )
    if passed_s >= (start_limits.total or float("inf")):
        return f"no iterations were marked in {passed_s:.0f} s"
    return None


def _is_preparing(thread: int) -> bool:
    """Whether a thread imports a module or compiles a model: both take as long as they take."""
    files = [frame.f_code.co_filename for frame in stack_of(thread)]
    return any(file.startswith(_IMPORTING) or file.endswith(_COMPILING) for file in files)
