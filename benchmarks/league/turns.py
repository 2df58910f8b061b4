"""Measurements in processes of their own that take turns.

A machine that others share changes its speed within seconds: what is to be compared must run at
the same time, and must not share the cores. So each runs some blocks while the others are stopped
by a signal, with all the threads and workers they have.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hotloop.loop.conduct import Measurement

T = TypeVar("T")
NEXT = "next block"
TURN_S = 0.3  # at least
DRAIN, DRAIN_S = 8, 0.02


def in_turns(measurement: Measurement[T]) -> Measurement[T]:
    """The measurement, but it waits for its turn before a block when its last one is over.

    The first iterations of a turn are not timed: caches are another's, and queues are fuller than
    ever, for sleeps and deadlines go on in a process that is stopped.
    """
    try:
        request, end = next(measurement), 0.0
        while True:
            if time.perf_counter() >= end:
                print(NEXT, flush=True)
                sys.stdin.readline()
                end = time.perf_counter() + TURN_S
                request = replace(
                    request,
                    drain=max(request.drain, DRAIN),
                    drain_s=max(request.drain_s, DRAIN_S),
                )
            try:
                block = yield request
            except Exception as error:
                request = measurement.throw(error)
            else:
                request = measurement.send(block)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        measurement.close()


def alternate(script: Path, runs: Sequence[Sequence[str]], limit_s: float) -> list[dict[str, Any]]:
    """Run a script with each of these arguments; each prints a mapping as JSON at its end.

    Who has had least time has the next turn. A run that fails, or takes longer than `limit_s`,
    gives "refused" with the reason.
    """
    processes = [_Process(script, arguments) for arguments in runs]
    try:
        while alive := [process for process in processes if process.result is None]:
            min(alive, key=lambda process: process.spent_s).go_on(limit_s)
        return [process.result or {} for process in processes]
    finally:
        for process in processes:
            process.end()


class _Process:
    def __init__(self, script: Path, arguments: Sequence[str]) -> None:
        self.spent_s = 0.0
        self.result: dict[str, Any] | None = None
        self._waits = False
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._signal(signal.SIGSTOP)

    def go_on(self, limit_s: float) -> None:
        """Let it run until it waits for its next turn, or has ended."""
        begin = time.perf_counter()
        self._signal(signal.SIGCONT)
        if self._waits:
            assert self._process.stdin is not None
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        self._waits, last = False, ""
        while not self._waits and self.result is None:
            line = self._line(limit_s - self.spent_s - (time.perf_counter() - begin))
            self._waits = line == NEXT
            if line is None:
                self.result = self._ended(last, limit_s)
            last = line or last
        self._signal(signal.SIGSTOP)
        self.spent_s += time.perf_counter() - begin

    def _line(self, limit_s: float) -> str | None:
        """What it prints next; None if it has ended, or says nothing within the limit."""
        assert self._process.stdout is not None
        data = b""
        while not data.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], max(0.0, limit_s))[0]:
                return None
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                return None
            data += byte
        return data.decode().strip()

    def _ended(self, last: str, limit_s: float) -> dict[str, Any]:
        if last.startswith("{"):
            return json.loads(last)  # type: ignore[no-any-return]
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return {"refused": f"did not end within {limit_s:.0f} s of its own"}
        self._errors.seek(0)
        why = self._errors.read().strip().rpartition("\n")[2] or "it printed nothing"
        return {"refused": f"ended with code {code}: {why}"}

    def end(self) -> None:
        """Kill it with all that it has started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass
