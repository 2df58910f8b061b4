"""The run of a target under a measurement: what benchmark and simplify share."""

import gc
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.benchmark.meters import Meters
from hotloop.errors import LoopError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.conduct import Conductor, Measurement, Observer, drive
from hotloop.loop.control import ENVIRONMENT_VARIABLE, SharedControl, process_control
from hotloop.loop.event import MAX_STAGES
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.script import Session, StartLimits, current_session, drive_script
from hotloop.results.targets import Script, resolve

Measure = Callable[[Loop], Measurement[Any]]
# Seconds that a script with stages may take before it makes or calls the first one.
SLOW_START_S = 300.0


@dataclass
class Outcome:
    """How the run of a target ended, with the facts of the whole process."""

    facts: dict[str, Any] = field(default_factory=dict)
    meters: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    error: BaseException | None = None  # what cut the run short: an error or an interrupt
    loop: Loop | None = None


def run_target(
    target: Loop | str,
    measure: Measure,
    *,
    arguments: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    observer: Observer | None = None,
    start_limits: Callable[[Path], StartLimits],
    whole_process: bool = False,
) -> Outcome:
    """Resolve and run a target; an error is part of the outcome, so that what was measured stays.

    target: a loop, which stays open for its owner, or what the command line takes, which is
    closed. arguments: of a script. settings: of a target that takes some, as text.
    start_limits: with a script without iterations, by its path.
    whole_process: count the time from the start of this process, not from this call.
    Raises: LoopError if this process is measuring already, or is a worker of a measurement.
    """
    control = process_control()
    if control.is_worker:
        raise LoopError(
            "the stages of this process obey the process that started it, so they cannot be "
            f"measured here; start it without {ENVIRONMENT_VARIABLE} in its environment"
        )
    if not _one_at_a_time.acquire(blocking=False):
        raise LoopError(
            "this process is measuring already, and two measurements would change each other; "
            "wait for the first, or use another process"
        )
    try:
        begin = _process_start_ns() if whole_process else time.perf_counter_ns()
        run = _Running(control, measure, observer, begin)
        with Meters() as meters:
            run.outcome.facts |= {
                "gpu_problem": meters.gpu.problem,
                "gpu_activity_problem": meters.gpu.activity_problem,
                "gpu_name": meters.gpu.name,
                "whole_process": whole_process,
            }
            if whole_process:
                # A collector's pause grows with the objects alive: ours are not the loop's.
                gc.collect()
                gc.freeze()
            run.target(target, arguments, settings or {}, start_limits)
            meters.read()
        run.outcome.meters = meters.samples()
        return run.outcome
    finally:
        _one_at_a_time.release()


def undeclared_state() -> list[str]:
    """Find state of the measured script that it did not declare."""
    session = current_session()
    return [] if session is None else session.undeclared()


_one_at_a_time = threading.Lock()


class _Running:
    """One target while it runs: it notes when the first iteration began and ended."""

    def __init__(
        self, control: SharedControl, measure: Measure, observer: Observer | None, begin_ns: int
    ) -> None:
        self.outcome = Outcome({"usable_cores": usable_cores()})
        self._control = control
        self._measure = measure
        self._observer = observer
        self._begin_ns = begin_ns

    def target(
        self,
        target: Loop | str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        start_limits: Callable[[Path], StartLimits],
    ) -> None:
        """Run it; what it raises becomes the outcome's error."""
        outcome = self.outcome
        # Counts of an earlier measurement of this process are not part of this one.
        self._control.drain_events()
        self._control.calls = [0] * MAX_STAGES
        # From the very first call, so that what is in flight can be counted.
        self._control.set(Arm("starting", rest=REAL))
        try:
            made = resolve(target, settings)
            if isinstance(made, Script):
                self._script(made.path, arguments, start_limits(made.path))
            else:
                self._loop(made, close=made is not target)
        except SystemExit as stop:
            outcome.error = LoopError(
                f"{target} exited with {stop.code!r} in the middle of measuring"
            )
        except (Exception, KeyboardInterrupt) as raised:
            outcome.error = raised
        finally:
            self._control.set(Arm("off", rest=OFF))
        outcome.facts["seconds"] = self._since_begin(time.perf_counter_ns())

    def _script(self, path: Path, arguments: Sequence[str], start_limits: StartLimits) -> None:
        facts = self.outcome.facts
        session = Session(path, self._control, self._measured, observer=self._observed)
        drive_script(session, arguments, start_limits)
        facts["iterations_marked_by"] = session.mark
        if session.conductor is None:
            facts["no_iterations"] = (
                "the script marks no iterations: wrap its loop as `for x in hotloop.iterations(…)`"
            )
            facts["stopped"] = session.stopped
        elif session.cut_short:
            facts["script_ended"] = True

    def _loop(self, loop: Loop, *, close: bool) -> None:
        try:
            drive(loop, self._measured(loop), self._control, self._observed)
        finally:
            if close and loop.close is not None:
                loop.close()

    def _measured(self, loop: Loop) -> Measurement[Any]:
        self.outcome.loop = loop
        self.outcome.facts["start_up_s"] = self._since_begin(self._control.clock.now_ns())
        return self._measure(loop)

    def _observed(self, conductor: Conductor) -> None:
        facts = self.outcome.facts
        if "first_batch_s" not in facts and conductor.first_iteration_end_ns is not None:
            facts["first_batch_s"] = self._since_begin(conductor.first_iteration_end_ns)
        if self._observer is not None:
            self._observer(conductor)

    def _since_begin(self, now_ns: int) -> float:
        return (now_ns - self._begin_ns) * 1e-9


def _process_start_ns() -> int:
    """When this process began, on the monotonic clock: its start-up is the user's wait too."""
    age_s = time.time() - psutil.Process(os.getpid()).create_time()
    return time.perf_counter_ns() - round(max(age_s, 0.0) * 1e9)
