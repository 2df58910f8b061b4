"""A process that tries something: its memory is watched, and its failures are those of a trial."""

from collections.abc import Callable, Mapping
from typing import Any

from hotloop.errors import SideError
from hotloop.optimize.memory_guard import MemoryGuard
from hotloop.optimize.search import TrialError
from hotloop.repeat.side_process import EndedEarly, SideProcess
from hotloop.repeat.sides import Side


class GuardedProcess:
    """A side's process, which rests while it is asked nothing.

    ended: whether it can do nothing more.
    """

    def __init__(self, side: Side, seed: int) -> None:
        """seed: of Python's hashes."""
        self.ended = False
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

    def kill(self) -> None:
        """End it at once; what is asked meanwhile fails."""
        self._process.kill()

    def close(self) -> None:
        """End it."""
        self._guard.close()
        self._process.end()
        self._process.close()

    def _guarded(self, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return act()
        except EndedEarly as early:
            self.ended = True
            why = "" if early.why is None else f": {early.why}"
            raise TrialError(f"it ended before it was measured{why}") from None
        except SideError as error:
            self.ended = True
            raise TrialError(self._guard.why if self._guard.ended else str(error)) from None
        except BaseException:
            self.ended = True  # it may be in the middle of something
            raise
