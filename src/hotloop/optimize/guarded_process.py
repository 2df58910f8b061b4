"""A process that tries something: its memory is watched, and its failures are those of a trial."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hotloop.errors import SideError
from hotloop.optimize.bench import LoopEnded, TrialError
from hotloop.optimize.memory_guard import MemoryGuard
from hotloop.repeat.side_process import EndedEarly, SideProcess
from hotloop.repeat.sides import Side


class GuardedProcess:
    """A side's process, which rests while it is asked nothing.

    ended: whether it can do nothing more. longest_s: what it has taken at most for anything so far.
    limit_s: so long it may take for anything that it is
    asked, or it is ended; None: as long as it takes.
    """

    def __init__(self, side: Side, seed: int, limit_s: float | None = None) -> None:
        """seed: of Python's hashes."""
        self.ended = False
        self.longest_s = 0.0
        self.limit_s = limit_s
        self._process = SideProcess(side, seed)
        self._guard = MemoryGuard(self._process.process.pid)

    @property
    def alive(self) -> bool:
        """Whether it can still do something."""
        return self._process.process.poll() is None and not self.ended

    def begin(self) -> dict[str, Any]:
        """Wait until it is ready. Returns what it says of itself. Raises: TrialError."""
        return self._guarded(self._process.begin)

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Let it do something, and stop it. Returns its answer. Raises: TrialError."""

        def act() -> dict[str, Any]:
            self._process.order(dict(order))
            return self._process.answer()

        return self._guarded(act)

    def close(self) -> None:
        """End it."""
        self._guard.close()
        self._process.end()
        self._process.close()

    def _guarded(self, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        begin, late = time.monotonic(), threading.Event()

        def end_it() -> None:
            late.set()
            self._process.kill()

        timer = None if self.limit_s is None else threading.Timer(self.limit_s, end_it)
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            return act()
        except EndedEarly as early:
            self.ended = True
            why = "" if early.why is None else f": {early.why}"
            raise LoopEnded(
                f"its loop ended before it was measured{why}; let it run longer"
            ) from None
        except SideError as error:
            self.ended = True
            if late.is_set():
                why = f"it was not done after {self.limit_s:.1f} s, so it was ended"
                raise TrialError(why) from None
            raise TrialError(self._guard.why if self._guard.ended else str(error)) from None
        except BaseException:
            self.ended = True  # it may be in the middle of something
            raise
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - begin)
            if timer is not None:
                timer.cancel()
