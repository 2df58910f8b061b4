"""Arms and reports as messages: for processes on other machines, which cannot map the control.

Such a process has a control of its own. It takes over each arm, with its epoch, as the driver
sends it, and tells the driver when asked what its stages have done since.
"""

import os
import platform
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.loop.control import (
    ENVIRONMENT_VARIABLE,
    ArmMessage,
    SharedControl,
    leave_inherited_control,
)
from hotloop.loop.event import MAX_PID, Event, lane_apart
from hotloop.loop.worker_reports import RemoteReports


class StageReport(NamedTuple):
    """What the stages of a remote process have done since its last report."""

    clock: str  # processes of one name share the clock
    now_ns: int  # on it
    names: list[str]  # of the stages, by their numbers there
    events: NDArray[np.int64]  # (n, 4): stage, start, end, lane
    tapes: list[tuple[int, int, int]]  # stage, outputs, faults
    delays_ns: list[tuple[int, int]]  # stage, really waited in DELAY since the process began
    dropped: int  # events since it began that came too many to keep


class RemoteControl:
    """In the remote process: the control of its stages, set by messages.

    Make it before the process makes a stage.
    """

    def __init__(self, message: ArmMessage) -> None:
        leave_inherited_control()
        # The process's stages attach to it by the environment, as workers do, and so do the
        # processes that it starts.
        self._control = SharedControl()
        os.environ[ENVIRONMENT_VARIABLE] = self._control.path
        self.obey(message)

    def obey(self, message: ArmMessage) -> None:
        """Put the driver's arm into force here."""
        self._control.follow(message)

    def report(self) -> StageReport:
        """What the stages have done since the last report."""
        control = self._control
        events, names = control.drain_events(), control.names()
        tapes = [(n, *tape) for n in range(len(names)) for tape in control.workers.tapes(n)]
        delays_ns = [(n, ns) for n in range(len(names)) if (ns := control.workers.delay_ns(n))]
        return StageReport(
            clock=f"{platform.node()} {_boot()}",
            now_ns=control.clock.now_ns(),
            names=names,
            events=np.array(events, np.int64).reshape(-1, 4),
            tapes=tapes,
            delays_ns=delays_ns,
            dropped=control.workers.dropped_events,
        )


class RemoteProcess:
    """In the driver: brings the reports of one remote process into the control.

    number: of the process; it keeps its lanes apart from those of others.
    """

    def __init__(self, control: SharedControl, number: int) -> None:
        self._control, self._number = control, number
        self.reports = RemoteReports()
        self._shift_ns = 0  # what its clock lacks to the driver's
        self._doubt_ns: float = float("inf")  # how much that may be wrong

    def take(self, report: StageReport, asked_ns: int) -> None:
        """Take over a report that was asked for at `asked_ns`, on the driver's clock."""
        control, kept = self._control, self.reports
        self._compare_clocks(report, asked_ns, control.clock.now_ns())
        index = [control.index(name) for name in report.names]
        for stage, start, end, lane in report.events.tolist():
            lane = lane_apart(lane, self._number * MAX_PID)
            shift = self._shift_ns
            kept.events.append(Event(index[stage], start + shift, end + shift, lane))
        kept.tapes = [(index[stage], length, faults) for stage, length, faults in report.tapes]
        kept.delays_ns = {index[stage]: ns for stage, ns in report.delays_ns}
        kept.dropped = report.dropped

    def _compare_clocks(self, report: StageReport, asked_ns: int, got_ns: int) -> None:
        """Estimate the shift of its clock, from the quickest answer so far.

        It was read between question and answer: in their middle, give or take half of the time.
        """
        if report.clock == f"{platform.node()} {_boot()}":
            return
        doubt_ns = (got_ns - asked_ns) / 2
        if doubt_ns < self._doubt_ns:
            self._doubt_ns = doubt_ns
            self._shift_ns = (asked_ns + got_ns) // 2 - report.now_ns


def _boot() -> str:
    """What tells one start of one kernel from all others; empty where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
