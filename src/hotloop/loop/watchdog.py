"""A limit that ends an arm in which an iteration hangs: after it every stage runs unchanged."""

import threading

from hotloop.loop.arm import REAL, Arm
from hotloop.loop.clock import RealClock
from hotloop.loop.control import SharedControl


class Watchdog:
    """Lets every stage run unchanged after so many seconds, unless stopped before.

    A measurement ends at the first boundary between iterations after its limit. An iteration that
    waits for a call which an arm replaces or delays might never get there.
    """

    def __init__(self, control: SharedControl, seconds: float) -> None:
        self._timer: threading.Timer | None = None
        self._control = control
        self.has_ended_an_arm = False
        # Ranks that no longer did the same as this one would wait for it for ever.
        if isinstance(control.clock, RealClock) and not control.obeyed_in_step:
            # REAL and not OFF: a script may mark its iterations by the calls of a stage.
            self._timer = threading.Timer(seconds, self._end)
            self._timer.daemon = True
            self._timer.name = "hotloop-watchdog"
            self._timer.start()

    def _end(self) -> None:
        self.has_ended_an_arm = True
        self._control.set(Arm("late", rest=REAL))

    def stop(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
