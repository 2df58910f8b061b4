"""What the kernel counts while a block runs: waits, pressure, and who had the cores."""

import contextlib
import os
import resource
import threading
import time

import psutil


def waits() -> int:
    """Voluntary context switches of the calling thread; of its process where only that is known."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


class _Gauge:
    """A small file of the kernel that is read often."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
            os.pread(self._fd, 256, 0)
        except OSError:
            self._fd = -1

    def read(self) -> bytes | None:
        """Return its content, or None where there is no such file."""
        return None if self._fd < 0 else os.pread(self._fd, 256, 0)

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
    """Time in which the calling thread was ready and another had its core; 0 where unknown."""

    def __init__(self) -> None:
        self._gauge = _Gauge(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def read_ns(self) -> int:
        """Nanoseconds since the thread started."""
        content = self._gauge.read()
        return int(content.split()[1]) if content else 0

    def close(self) -> None:
        """Stop reading."""
        self._gauge.close()
