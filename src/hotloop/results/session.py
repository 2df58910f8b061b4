"""Running a target under a measurement, whichever kind it is: what benchmark and simplify share."""

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.benchmark.meters import Meters
from hotloop.errors import LoopError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.board import ENVIRONMENT_VARIABLE, MAX_STAGES, Board, process_board
from hotloop.loop.conduct import Conductor, Measurement, Observer, drive
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.script import Patience, Session, current_session, drive_script
from hotloop.results.targets import Script, resolve

Measure = Callable[[Loop], Measurement[Any]]


@dataclass
class Outcome:
    """How the running of a target ended, with what only the process as a whole knows."""

    facts: dict[str, Any] = field(default_factory=dict)
    meters: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    error: BaseException | None = None  # what cut the run short: an error or an interrupt
    loop: Loop | None = None


def run_target(
    target: Loop | str,
    measure: Measure,
    *,
    arguments: Sequence[str] = (),
    observer: Observer | None = None,
    patience: Callable[[Path], Patience],
    whole_process: bool = False,
) -> Outcome:
    """Resolve and run a target; an error is part of the outcome, so that what was measured stays.

    target: a loop, which stays open for its owner, or what the command line takes, which is
    closed. arguments: of a script. patience: with a script without iterations, by its path.
    whole_process: count the time from the start of this process, not from this call.
    Raises: LoopError if this process is measuring already, or is a worker of a measurement.
    """
    board = process_board()
    if board.is_worker:
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
        run = _Running(board, measure, observer, begin)
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
            run.target(target, arguments, patience)
            meters.read()
        run.outcome.meters = meters.samples()
        return run.outcome
    finally:
        _one_at_a_time.release()


def undeclared_state() -> list[str]:
    """What the script under measurement holds and did not declare."""
    session = current_session()
    return [] if session is None else session.undeclared()


_one_at_a_time = threading.Lock()


class _Running:
    """One target while it runs: it notes when the first iteration began and ended."""

    def __init__(
        self, board: Board, measure: Measure, observer: Observer | None, begin_ns: int
    ) -> None:
        self.outcome = Outcome({"usable_cores": usable_cores()})
        self._board = board
        self._measure = measure
        self._observer = observer
        self._begin_ns = begin_ns

    def target(
        self, target: Loop | str, arguments: Sequence[str], patience: Callable[[Path], Patience]
    ) -> None:
        """Run it; what it raises becomes the outcome's error."""
        outcome = self.outcome
        # An earlier measurement of this process shall not be in the counts of this one.
        self._board.drain_events()
        self._board.calls = [0] * MAX_STAGES
        # From the very first call, so that what is in flight can be counted.
        self._board.set(Arm("starting", rest=REAL))
        try:
            made = resolve(target)
            if isinstance(made, Script):
                self._script(made.path, arguments, patience(made.path))
            else:
                self._loop(made, close=made is not target)
        except SystemExit as stop:
            outcome.error = LoopError(
                f"{target} exited with {stop.code!r} in the middle of measuring"
            )
        except (Exception, KeyboardInterrupt) as raised:
            outcome.error = raised
        finally:
            self._board.set(Arm("off", rest=OFF))
        outcome.facts["seconds"] = self._since_begin(time.perf_counter_ns())

    def _script(self, path: Path, arguments: Sequence[str], patience: Patience) -> None:
        facts = self.outcome.facts
        session = Session(path, self._board, self._measured, observer=self._observed)
        drive_script(session, arguments, patience)
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
            drive(loop, self._measured(loop), self._board, self._observed)
        finally:
            if close and loop.close is not None:
                loop.close()

    def _measured(self, loop: Loop) -> Measurement[Any]:
        self.outcome.loop = loop
        self.outcome.facts["start_up_s"] = self._since_begin(self._board.clock.now_ns())
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
