"""Running a target under a measurement, whichever kind it is: what benchmark and simplify share."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console

from hotloop.benchmark.meters import Meters
from hotloop.cli.output import say_saved
from hotloop.cli.targets import Script, resolve
from hotloop.errors import LoopError, RunError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.board import process_board
from hotloop.loop.conduct import Measurement, Observer, drive
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.script import Session, current_session, drive_script


@dataclass
class Outcome:
    """How the running of a target ended, with what only the process as a whole knows."""

    facts: dict[str, Any]
    meters: np.ndarray
    error: BaseException | None  # what cut the run short: an error or an interrupt
    loop: Loop | None


def run_target(
    target: str,
    arguments: list[str],
    measure: Callable[[Loop], Measurement[Any]],
    observer: Observer,
    *,
    seconds: float | None,
) -> Outcome:
    """Resolve and run a target; an error is part of the outcome, so that what was measured stays.

    seconds: when a script without iterations is stopped; None: when it ends by itself.
    """
    begin = _process_start_ns()
    board = process_board()
    facts: dict[str, Any] = {"usable_cores": usable_cores()}
    first_body: list[int] = []
    loop: Loop | None = None
    error: BaseException | None = None

    def measured(of: Loop) -> Measurement[Any]:
        nonlocal loop
        loop = of
        first_body.append(board.clock.now_ns())
        return measure(of)

    def observed(conductor: Any) -> None:
        if "first_batch_s" not in facts and conductor.first_iteration_end_ns is not None:
            facts["first_batch_s"] = (conductor.first_iteration_end_ns - begin) * 1e-9
        observer(conductor)

    with Meters() as meters:
        facts["gpu_problem"] = meters.gpu.problem
        facts["gpu_activity_problem"] = meters.gpu.activity_problem
        facts["gpu_name"] = meters.gpu.name
        # From the very first call, so that what is in flight can be counted.
        board.set(Arm("starting", rest=REAL))
        try:
            made = resolve(target)
            if isinstance(made, Script):
                session = Session(made.path, board, measured, observer=observed)
                drive_script(session, arguments, seconds)
                facts["iterations_marked_by"] = session.mark
                if session.conductor is None:
                    facts["no_iterations"] = (
                        "the script marks no iterations: wrap its loop as "
                        "`for x in hotloop.iterations(…)`"
                    )
                elif session.cut_short:
                    facts["script_ended"] = True
            else:
                try:
                    drive(made, measured(made), board, observed)
                finally:
                    if made.close is not None:
                        made.close()
        except SystemExit as stop:
            error = LoopError(f"{target} exited with {stop.code!r} in the middle of measuring")
        except (Exception, KeyboardInterrupt) as raised:
            error = raised
        finally:
            board.set(Arm("off", rest=OFF))
        facts["seconds"] = (time.perf_counter_ns() - begin) * 1e-9
        meters.read()
    if first_body:
        facts["start_up_s"] = (first_body[0] - begin) * 1e-9
    return Outcome(facts, meters.samples(), error, loop)


def undeclared_state() -> list[str]:
    """What the script under measurement holds and did not declare."""
    session = current_session()
    return [] if session is None else session.undeclared()


def finish(
    errors: Console,
    run: Run,
    error: BaseException | None,
    save: Path | None,
    show: Callable[[], None],
    *,
    enough: bool = True,
) -> int:
    """Show the report, save the run, then raise what cut it short, if something did.

    enough: whether a run that was cut short has anything in it worth showing and saving.
    """
    if error is not None and not enough:
        raise error
    problem: BaseException | None = None
    try:
        show()
    except (Exception, SystemExit) as unreadable:
        problem = unreadable
    try:
        path = run.save(save)
    except RunError as unsaved:
        if error is not None:
            errors.print(f"hotloop: {unsaved}", markup=False, highlight=False, soft_wrap=True)
        problem = unsaved
    else:
        say_saved(errors, path, run.complete)
    if error is not None:
        raise error
    if problem is not None:
        raise problem
    return 0


def _process_start_ns() -> int:
    """When this process began, on the monotonic clock: its start-up is the user's wait too."""
    age_s = time.time() - psutil.Process(os.getpid()).create_time()
    return time.perf_counter_ns() - round(max(age_s, 0.0) * 1e9)
