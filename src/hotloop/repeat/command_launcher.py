"""Comparing two whole commands: each is run again and again, in pairs of random order."""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from hotloop.errors import SideError
from hotloop.repeat.afterwards import Afterwards
from hotloop.repeat.record import Record
from hotloop.repeat.side_process import exit_text, last_lines
from hotloop.repeat.sides import Side

_NEEDS_SHELL = re.compile(r"[|&;<>()$`*?\[\]#~\n]")


class CommandLauncher:
    """Runs two commands; a launch is one run of each."""

    unit = "runs"

    def __init__(self, sides: Sequence[Side], seed: int) -> None:
        self._sides = sides
        self._random = random.Random(seed)

    def launch(self, number: int, record: Record, on_round: Callable[[], None]) -> None:
        """Run each side once, in random order.

        Raises: SideError for a command that fails.
        """
        if not number:
            for side in self._sides:
                _run(side)  # files are read into memory, modules compiled
        for place in self._random.sample((0, 1), 2):
            record.add(number, 0, place, _run(self._sides[place]))
        on_round()


def _run(side: Side) -> dict[str, Any]:
    """Run a command once; returns the same numbers as a block of a loop.

    Raises: SideError if it fails.
    """
    shell = _NEEDS_SHELL.search(side.text) is not None
    with tempfile.TemporaryFile() as output:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter_ns()
        process = subprocess.Popen(
            side.text if shell else list(side.words),
            shell=shell,
            cwd=side.place.folder,
            env=side.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        block = _awaited(process, start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            output.seek(0)
            printed = output.read().decode(errors="replace")
            raise SideError(
                f"{side.name} ({side.label}) {exit_text(process.returncode)}{last_lines(printed)}"
            )
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return block | {
        "iterations": 1,
        "units": 1,
        "process_cpu_ns": round(used_s * 1e9),
        "switches": after.ru_nivcsw - before.ru_nivcsw,
        "waits": after.ru_nvcsw - before.ru_nvcsw,
        "pressure_us": 0,
    }


def _awaited(process: "subprocess.Popen[bytes]", start_ns: int) -> dict[str, Any]:
    """Wait for the end of a command; returns its times. Nothing that it started outlives it."""
    killed_with_us = Afterwards(f"kill -KILL -- -{process.pid}")
    try:
        # It has ended and is still there: the kernel says how long it ran and queued.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall_ns = time.perf_counter_ns() - start_ns
        cpu_ns, stolen_ns = _schedule_of(process.pid)
        process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        killed_with_us.forget()
    return {"wall_ns": wall_ns, "cpu_ns": cpu_ns, "stolen_ns": stolen_ns}


def _schedule_of(pid: int) -> tuple[int, int]:
    """How long a process's first thread has run, and waited for a core, in ns."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            run_ns, queued_ns, _ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0, 0
    return run_ns, queued_ns
