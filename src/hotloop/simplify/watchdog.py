"""A limit that holds although an iteration hangs in an arm: when it passes, nothing is changed."""

import threading

from hotloop.loop.arm import REAL, Arm
from hotloop.loop.board import Board
from hotloop.loop.clock import RealClock


class Watchdog:
    """Sets every stage back to its plain self after so many seconds, unless stopped before.

    A measurement ends at the first boundary between iterations after its limit. An iteration that
    waits for a call which an arm replaced or delays would never get there.
    """

    def __init__(self, board: Board, seconds: float) -> None:
        self._timer: threading.Timer | None = None
        if isinstance(board.clock, RealClock):
            # REAL and not OFF: a script may mark its iterations by the calls of a stage.
            self._timer = threading.Timer(seconds, lambda: board.set(Arm("late", rest=REAL)))
            self._timer.daemon = True
            self._timer.name = "hotloop-watchdog"
            self._timer.start()

    def stop(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
