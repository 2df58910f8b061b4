"""What the kernel counts while a block runs: waits, pressure, and who had the cores."""

import contextlib
import ctypes
import os
import resource
import threading
import time
from typing import NamedTuple, Protocol

import psutil

from hotloop.loop.clock import Clock
from hotloop.loop.helper_threads import HelperThreads

_CONTENT_BYTES = 256
# Python's own `os.pread` lets another thread have the interpreter lock meanwhile.
_pread_with_lock = ctypes.PyDLL(None).pread
_pread_with_lock.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
_pread_with_lock.restype = ctypes.c_ssize_t


def waits() -> int:
    """Voluntary context switches of the calling thread; of its process where only that is known."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


class _Gauge:
    """A small file of the kernel that is read often."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
            os.pread(self._fd, _CONTENT_BYTES, 0)
        except OSError:
            self._fd = -1

    def read(self) -> bytes | None:
        """Return its content, or None where there is no such file."""
        return None if self._fd < 0 else os.pread(self._fd, _CONTENT_BYTES, 0)

    def read_with_lock(self) -> bytes | None:
        """As `read`, without giving the interpreter lock away, which takes twice as long."""
        if self._fd < 0:
            return None
        content = ctypes.create_string_buffer(_CONTENT_BYTES)
        length = _pread_with_lock(self._fd, content, _CONTENT_BYTES, 0)
        return content.raw[: max(0, length)]

    def close(self) -> None:
        """Stop reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Descendants:
    """The processes that this one has started, and those that they have."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._found: list[psutil.Process] = []
        self._newest = b""  # the number of the process or thread that was started last
        self._loads = _Gauge("/proc/loadavg")  # where there is none, psutil asks the system

    def list(self) -> list[psutil.Process]:
        """Return them; search for them only if any process was started since."""
        content = self._loads.read()
        newest = content.split()[-1] if content else b""
        if not newest or newest != self._newest:
            with contextlib.suppress(psutil.Error):
                self._found = self._process.children(recursive=True)
            self._newest = newest
        return self._found

    def close(self) -> None:
        """Close the open file."""
        self._loads.close()


class DescendantsGauge:
    """Processor time of the processes that this one has started; 0 where it cannot be read."""

    def __init__(self) -> None:
        self._descendants = Descendants()
        self._spent_ns: dict[int, int] = {}  # by process

    def search(self) -> None:
        """Read those that live now from here on."""
        found = self._descendants.list()
        self._spent_ns = {process.pid: self._spent_ns.get(process.pid, 0) for process in found}

    def read_ns(self) -> int:
        """Nanoseconds of those found by `search`; what one has spent that ended stays."""
        for pid in self._spent_ns:
            # Linux's name for the clock of a process (include/linux/posix-timers.h).
            with contextlib.suppress(OSError):
                self._spent_ns[pid] = time.clock_gettime_ns((~pid << 3) | 2)
        return sum(self._spent_ns.values())

    def close(self) -> None:
        """Close the open file."""
        self._descendants.close()


class PressureGauge:
    """Time in which some task waited for a core, from the kernel; 0 where it does not say."""

    def __init__(self) -> None:
        self._gauge = _Gauge("/proc/pressure/cpu")

    def read_us(self) -> int:
        """Microseconds since the machine started."""
        content = self._gauge.read()
        return int(content.split(b"\n", 1)[0].rsplit(b"=", 1)[1]) if content else 0

    def close(self) -> None:
        """Stop reading."""
        self._gauge.close()


class RunQueueGauge:
    """Time in which a thread was ready and another had its core; 0 where unknown.

    It is the thread that makes the gauge; any thread may read it.
    """

    def __init__(self) -> None:
        self._gauge = _Gauge(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def read_ns(self, *, keep_lock: bool = False) -> int:
        """Nanoseconds since the thread started; `keep_lock`: of the interpreter, meanwhile."""
        content = self._gauge.read_with_lock() if keep_lock else self._gauge.read()
        return int(content.split()[1]) if content else 0

    def close(self) -> None:
        """Stop reading."""
        self._gauge.close()


class Reading(NamedTuple):
    """What all gauges show at one moment, in the names of the sums of a `Block`."""

    switches: int = 0
    waits: int = 0
    pressure_us: int = 0
    stolen_ns: int = 0
    process_cpu_ns: int = 0
    helpers_cpu_ns: int = 0
    spinning_cpu_ns: int = 0
    descendants_cpu_ns: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0


class Gauges(Protocol):
    """What is read where a block begins and where it ends."""

    def search(self) -> None:
        """Look for the threads and processes that are read from here on."""
        ...

    def read(self) -> Reading:
        """Return what they show now."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


class AllGauges:
    """All that the kernel counts of a loop; made on the thread that runs it."""

    def __init__(self, clock: Clock, helpers: HelperThreads) -> None:
        self._clock, self._helpers = clock, helpers
        self._pressure = PressureGauge()
        self._queued = RunQueueGauge()
        self._descendants = DescendantsGauge()

    def search(self) -> None:
        """Look for the threads and processes that are read from here on."""
        self._descendants.search()
        self._helpers.search()

    def read(self) -> Reading:
        """Return what they show now."""
        clock = self._clock
        return Reading(
            switches=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            waits=waits(),
            pressure_us=self._pressure.read_us(),
            stolen_ns=self._queued.read_ns(),
            process_cpu_ns=clock.process_cpu_ns(),
            helpers_cpu_ns=self._helpers.read_ns(),
            spinning_cpu_ns=self._helpers.spinning_ns(),
            descendants_cpu_ns=self._descendants.read_ns(),
            cpu_ns=clock.thread_cpu_ns(),
            wall_ns=clock.now_ns(),
        )

    def close(self) -> None:
        """Close all files."""
        self._pressure.close()
        self._queued.close()
        self._descendants.close()


class NoGauges:
    """Reads nothing, where only the times of calls are wanted: reading all takes milliseconds."""

    def search(self) -> None:
        """Look for nothing."""

    def read(self) -> Reading:
        """Return zeros."""
        return _NOTHING

    def close(self) -> None:
        """Do nothing."""


_NOTHING = Reading()
