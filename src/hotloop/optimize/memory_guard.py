"""Memory that a trial may take: measured while it grows, ended before the machine has none."""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

USABLE = 0.8  # of the memory that is free
LOOK_S = 0.05
_CGROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def free_bytes() -> int:
    """Memory that is free: of the machine, or of this control group where that is less."""
    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        most, used = (int(path.read_text()) for path in _CGROUP)
        free = min(free, max(0, most - used))
    return free


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process allocate only what is free, so that too much raises an error in it."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = _data_bytes()
    if held is None:
        yield
        return
    limit = held + int(USABLE * free_bytes())
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


class MemoryGuard:
    """Watches a group of processes and ends it before the machine has no memory left.

    pid: of the process that leads the group. peak_bytes: the most memory that it was seen to hold.
    ended: whether it was ended for that.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self.ended = False
        self._pid = pid
        self._least = int((1 - USABLE) * free_bytes())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory guard", daemon=True)
        self._thread.start()

    @property
    def why(self) -> str:
        """Why the processes were ended, in words."""
        held = self.peak_bytes / 1e9
        return f"it held {held:.1f} GB and little was left, so it was ended"

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            held = held_bytes(self._pid)
            self.peak_bytes = max(self.peak_bytes, held)
            # Where it holds little itself, another program has taken the memory.
            if free_bytes() < self._least <= held:
                self.ended = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
                return


def held_bytes(pid: int) -> int:
    """Memory that a process and its children hold; what they share is counted once for each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += int(process.memory_info().rss)
    return total


def _data_bytes() -> int | None:
    """What the limit counts of this process; None where the kernel does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmData:")]
    return int(found[0]) * 1024 if found else None
