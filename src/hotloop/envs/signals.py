"""How processes tell each other that something is due: a look at shared memory, then a bell.

Waiting has three stages. While there is a core for everybody, look again and again: a change is
seen within a microsecond, where waking a sleeping process takes 30 to 80. Where processes share
cores, look and yield the core in turn: whoever has work runs, and the core never falls asleep.
After `SPIN_S`, sleep until the bell rings; the one who rings looks first whether anybody sleeps.
"""

import os
import platform
import select
import threading
import time
from collections.abc import Callable, Sequence

# Longer than a step of most env groups that are worth the look; a sleeper costs nothing.
SPIN_S = 1e-3
_LOOKS = 20  # between two looks at the clock
_RING = (1).to_bytes(8, "little")
# A flag and the data before it are seen in the order written only there; elsewhere system calls,
# which order everything, come before and after each.
ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")


class Bell:
    """Wakes one sleeping process; `asleep` is a shared cell that says whether it sleeps.

    descriptors: where to read and where to write; the same one for Linux's eventfd.
    """

    def __init__(self, asleep: memoryview, descriptors: tuple[int, int]) -> None:
        self._asleep = asleep
        self.descriptors = descriptors
        self._fence = threading.Lock()

    def ring(self) -> None:
        """Wake the sleeper if it sleeps. What was written before is visible to it."""
        self._order()
        if self._asleep[0] or not ORDERED:
            try:
                os.write(self.descriptors[1], _RING)
            except BlockingIOError:
                pass  # a pipe full of rings nobody has slept through wakes as well

    @property
    def is_wanted(self) -> bool:
        """Whether somebody sleeps; call after what it waits for was written."""
        self._order()
        return bool(self._asleep[0]) or not ORDERED

    def wait(
        self,
        is_due: Callable[[], bool],
        spin: Callable[[Callable[[], bool]], bool],
        watched: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> list[int]:
        """Wait until `is_due()`; returns early with those of `watched` that have something.

        An empty list also stands for a timeout: look again.
        """
        if is_due() or spin(is_due):
            return []
        poll = select.poll()
        poll.register(self.descriptors[0], select.POLLIN)
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        self._asleep[0] = 1
        try:
            while True:
                self._order()  # the flag is up before the last look
                if is_due():
                    return []
                left = None if end is None else max(0.0, end - time.monotonic())
                ready = [fd for fd, _ in poll.poll(None if left is None else left * 1e3 + 1)]
                if self.descriptors[0] in ready:
                    os.read(self.descriptors[0], 4096)
                    ready.remove(self.descriptors[0])
                if ready or (end is not None and time.monotonic() >= end):
                    return ready
        finally:
            self._asleep[0] = 0

    def _order(self) -> None:
        # Taking a lock is the cheapest instruction of Python's that orders memory: 50 ns.
        # With `with`, Ctrl-C cannot come between the two and leave it locked.
        with self._fence:
            pass

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        for descriptor in set(self.descriptors):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptors = (-1, -1)


def open_bell() -> tuple[int, int]:
    """Descriptors for a bell."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return descriptor, descriptor
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def spinner(cores: int, processes: int) -> Callable[[Callable[[], bool]], bool]:
    """How to look before sleeping, where so many processes share so many cores."""
    if not ORDERED or processes > 2 * cores:
        return not_at_all
    return _busily if processes <= cores else _yielding


def not_at_all(is_due: Callable[[], bool]) -> bool:
    """Look once."""
    return is_due()


def _busily(is_due: Callable[[], bool]) -> bool:
    end = time.perf_counter() + SPIN_S
    while time.perf_counter() < end:
        for _ in range(_LOOKS):
            if is_due():
                return True
    return False


def _yielding(is_due: Callable[[], bool]) -> bool:
    end = time.perf_counter() + SPIN_S
    rest = os.sched_yield
    while time.perf_counter() < end:
        for _ in range(_LOOKS):
            rest()
            if is_due():
                return True
    return False
