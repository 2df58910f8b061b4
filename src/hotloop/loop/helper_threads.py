"""Threads that compute only what the loop's own thread waits for, which is no work beside the loop.

They are those of OpenMP and of BLAS, which may spin for milliseconds between two tasks, and those
of torch's autograd, which launch a backward pass on a card.
"""

import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path

import numpy as np  # noqa: F401  # its BLAS starts its threads when it is imported

TASKS, MAPS = Path("/proc/self/task"), Path("/proc/self/maps")
# The runtimes of OpenMP, by what their files are called: of GCC, of LLVM, of Intel.
RUNTIMES = ("libgomp", "libomp", "libiomp")
# What starts a parallel region in all three: (task, its data, threads or 0 for all, flags).
REGION = "GOMP_parallel"
# How torch calls the thread in which backward passes on a card run (autograd/engine.cpp).
AUTOGRAD = "pt_autograd"
BUSY_NS = 10_000_000  # of processor time, by a thread that may have helped
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def thread_time_ns(number: int) -> int | None:
    """The processor time of a thread of this process, by its kernel's number; None: it has ended.

    By Linux's name for its clock (include/linux/posix-timers.h), which is safe for a thread that
    has ended; that of `time.pthread_getcpuclockid` is not.
    """
    try:
        return time.clock_gettime_ns((~number << 3) | 6)
    except OSError:
        return None


def _native_threads() -> frozenset[int]:
    """The threads of this process in which no Python runs, by their numbers; empty off Linux."""
    try:
        numbers = {int(task.name) for task in TASKS.iterdir()}
    except OSError:
        return frozenset()
    # A thread of a library in which some Python has run is a dummy.
    of_python = {
        thread.native_id
        for thread in threading.enumerate()
        if not isinstance(thread, threading._DummyThread)
    }
    return frozenset(numbers - of_python - {os.getpid()})


_AT_IMPORT = _native_threads()


class HelperThreads:
    """The helper threads of one thread, and the processor time that they have used."""

    def __init__(self) -> None:
        self._seen = _AT_IMPORT
        self._spent_ns: dict[int, int] = dict.fromkeys(_AT_IMPORT, 0)
        self._of_autograd: set[int] = set()

    def search(self) -> None:
        """Find those of the calling thread, if there are threads that compute and are not known.

        A runtime that the loop has not used is left alone as far as can be seen: processes that are
        forked after its first region may hang in it.
        """
        new = _native_threads() - self._seen
        busy = {number for number in new if (thread_time_ns(number) or 0) > BUSY_NS}
        if not busy:
            return
        self._seen |= busy
        of_autograd = {number for number in busy if is_of_autograd(number)}
        self._of_autograd |= of_autograd
        team = _team_of_this_thread() & new if busy - of_autograd else set()
        for number in of_autograd | team:
            self._spent_ns.setdefault(number, 0)

    def read_ns(self) -> int:
        """Nanoseconds of processor time of those found; what one has spent that ended stays."""
        for number, before in self._spent_ns.items():
            self._spent_ns[number] = thread_time_ns(number) or before
        return sum(self._spent_ns.values())

    def spinning_ns(self) -> int:
        """As `read_ns`, at its last call, of those that spin between two tasks."""
        return sum(ns for n, ns in self._spent_ns.items() if n not in self._of_autograd)


def is_of_autograd(number: int | None) -> bool:
    """Whether torch runs backward passes on a card in a thread, by its kernel's number."""
    try:
        return (TASKS / str(number) / "comm").read_text().startswith(AUTOGRAD)
    except OSError:  # it has ended
        return False


def _team_of_this_thread() -> set[int]:
    """The threads that compute an OpenMP region of the calling thread: each says its number."""
    found: set[int] = set()

    def tell(_: object) -> None:
        found.add(threading.get_native_id())

    task = TASK(tell)
    for path in _runtimes():
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(path), REGION)(task, None, 0, 0)
    return found - {threading.get_native_id()}


def _runtimes() -> list[str]:
    """The files of OpenMP's runtimes that this process has loaded."""
    lines = MAPS.read_text().splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "omp" in line}
    return sorted(path for path in paths if Path(path).name.startswith(RUNTIMES))
