"""How a synthetic env spends its time and fails, apart from what it returns."""

import ctypes
import faulthandler
import math
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from hotloop.loop.clock import Clock
from hotloop.testing.synthetic.settings import Failure


class Pace:
    """Lets time pass as a duration's `kind` and `precise` say."""

    def __init__(self, kind: str, precise: bool, clock: Clock) -> None:
        self._clock = clock
        self._spend = self._work if kind == "busy" else clock.wait_ns
        self._owed_ns = 0.0
        self._carries_over = kind == "sleep" and not precise

    def spend(self, duration_s: float) -> None:
        """Let `duration_s` pass."""
        if not self._carries_over:
            self._spend(duration_s * 1e9)
            return
        self._owed_ns += duration_s * 1e9
        if self._owed_ns > 0:
            start = self._clock.now_ns()
            time.sleep(self._owed_ns * 1e-9)
            self._owed_ns -= self._clock.now_ns() - start

    def _work(self, duration_ns: float) -> None:
        """Keep a core busy for so long; time in which another process had it does not count."""
        end = self._clock.thread_cpu_ns() + duration_ns
        self._clock.burn_ns(duration_ns)
        while self._clock.thread_cpu_ns() < end:
            pass


def due(failures: Iterable[Failure], call: str, env_id: int) -> dict[int, Failure]:
    """The planned failures of env `env_id`, by the number of the call."""
    return {f.at: f for f in failures if f.call == call and f.env_id in (None, env_id)}


def fail(failure: Failure, env_id: int) -> None:
    """Fail as planned, unless it happened already or, for a hang, once it is over.

    Raises: RuntimeError for a failure of kind "raise".
    """
    if failure.once_marker is not None:
        try:
            # Made before failing, and by one process only: a process that dies next finds it there.
            Path(failure.once_marker).touch(exist_ok=False)
        except FileExistsError:
            return
    match failure.kind:
        case "raise":
            raise RuntimeError(
                f"synthetic env {env_id}: planned failure in {failure.call} {failure.at}"
            )
        case "hang":
            _hang(failure.hang_s)
        case "exit":
            os._exit(failure.exit_code)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            _segfault()


def _hang(hang_s: float) -> None:
    until = time.monotonic() + hang_s
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 3600.0) if math.isfinite(left) else 3600.0)


def _segfault() -> NoReturn:
    faulthandler.disable()  # on purpose: no dump
    ctypes.string_at(0)
    raise AssertionError("address 0 could be read")
