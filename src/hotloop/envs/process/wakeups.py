"""How processes wait for each other: a look at shared memory again and again, then a sleep.

A process that waits looks for a moment, where every process has a core and where that has paid off
lately; then it sleeps until it is woken. The one that wakes it checks first whether it sleeps. A
sleeper is scheduled at once, also beside programs that compute without end, for it has not used up
its share of the core; a process that yields the core instead gives such a program a whole time
slice, about 3 ms.
"""

import os
import platform
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

# Look for so long at the most: longer than a step of most env groups that are worth the look.
MOST_NS = 1_000_000
# And where the core is given away between looks, which then take nothing from others.
MOST_SHARED_NS = 5_000_000
# And at the least: about what it takes to fall asleep and be woken.
LEAST_NS = 20_000
# So long between two looks at the clock: the core was taken away meanwhile.
TAKEN_NS = 200_000
# What came was seen so late that another process had the core: a sleeper would have been woken.
LATE_NS = 300_000
# So many late looks among a few tell another program from a pause of the virtual machine's host.
LATE_LOOKS, FORGOTTEN_AFTER = 3, 8
_TOLERATED = (LATE_LOOKS - 1) * FORGOTTEN_AFTER
PATIENCE = 4  # looks in vain, in a row, until some waits do without
PAUSE, LONGEST_PAUSE = 64, 4096  # so many waits
_LOOKS = 20  # between two looks at the clock
_RING = (1).to_bytes(8, "little")
# A flag and the data before it are seen in the order written only there; elsewhere system calls,
# which order everything, come before and after each.
ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")
# A look before sleeping: is given what is awaited, and the cell with the time at which it was
# written; returns whether it came.
Spin = Callable[[Callable[[], bool], memoryview], bool]


class Wakeup:
    """Wakes one sleeping process; used by both sides.

    asleep, marked_ns: shared cells: whether it sleeps, and when something was last written for it.
    descriptors: where to read and where to write; the same one for Linux's eventfd.
    """

    changes_by_itself: ClassVar[bool] = True

    def __init__(
        self, asleep: memoryview, marked_ns: memoryview, descriptors: tuple[int, int]
    ) -> None:
        self._asleep = asleep
        self.marked_ns = marked_ns
        self.descriptors = descriptors
        self._fence = threading.Lock()

    def mark_time(self) -> None:
        """Write the time; to be called before what is awaited is written."""
        self.marked_ns[0] = time.monotonic_ns()

    def wake(self) -> None:
        """Wake the sleeper if it sleeps. What was written before is visible to it."""
        self._order()
        if self._asleep[0] or not ORDERED:
            try:
                os.write(self.descriptors[1], _RING)
            except BlockingIOError:
                pass  # a pipe that is full of unread bytes wakes as well

    @property
    def is_needed(self) -> bool:
        """Whether the process sleeps; call after what it waits for was written."""
        self._order()
        return bool(self._asleep[0]) or not ORDERED

    def wait(
        self,
        is_due: Callable[[], bool],
        spin: Spin,
        watched: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> list[int]:
        """Wait until `is_due()`; returns early with those of `watched` that have something.

        An empty list also stands for a timeout: look again.
        """
        if is_due() or spin(is_due, self.marked_ns):
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
        """Close the descriptors. Idempotent."""
        for descriptor in set(self.descriptors):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptors = (-1, -1)


def open_wakeup() -> tuple[int, int]:
    """The descriptors of a `Wakeup`."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return descriptor, descriptor
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def choose_spin(
    cores: int, processes: int, on_sharing: Callable[[bool], None] = lambda _alone: None
) -> Spin:
    """The way to look before sleeping where so many processes share so many cores.

    on_sharing: see `AdaptiveSpin`.
    """
    if not ORDERED or processes > 2 * cores:
        return look_once
    rest = None if processes <= cores else os.sched_yield
    return AdaptiveSpin(rest=rest, on_sharing=on_sharing)


def look_once(is_due: Callable[[], bool], marked_ns: memoryview) -> bool:  # noqa: ARG001
    """Look once."""
    return is_due()


class AdaptiveSpin:
    """Look again and again before sleeping, for as long as that has paid off lately.

    A change is seen within a microsecond by a process that looks; a sleeper has to be woken. But
    while another program has the core, a process that looks sees it late, where a sleeper is woken
    at once. So after some late looks, or some in vain, the next waits sleep at once, more of them
    each time; looks that pay off make that number smaller again, little by little.

    rest: called before each look where processes share cores, to give the core to a process with
    work: one of ours, or another program, which keeps it for a whole time slice.
    on_sharing: called with False when another program had the core, with True when looks pay off
    again.
    """

    changes_by_itself: ClassVar[bool] = True

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        rest: Callable[[], None] | None = None,
        on_sharing: Callable[[bool], None] = lambda _alone: None,
    ) -> None:
        self._clock_ns = clock_ns
        self._rest = rest
        self._on_sharing = on_sharing
        self._alone = True
        # A process that gives the core away may look longer: it takes nothing from the others.
        self._least_ns, self._most_ns = (MOST_NS, MOST_SHARED_NS) if rest else (LEAST_NS, MOST_NS)
        self._usual_ns = self._most_ns // 4  # what looks that paid off took, lately
        self._limit_ns = self._most_ns
        # When looks that paid off began, when what they saw was written, and when they saw it.
        self._seen: tuple[int, int, int] | None = None
        self._in_vain = 0  # looks in a row
        self._late = 0  # FORGOTTEN_AFTER for each late look, less one for each in time since
        self._to_skip = 0  # waits that are not to look
        self._pause = PAUSE

    def __call__(self, is_due: Callable[[], bool], marked_ns: memoryview) -> bool:
        """Whether it came while looking."""
        if self._seen is not None:
            self._judge(*self._seen)
        if self._to_skip:
            self._to_skip -= 1
            return is_due()
        clock, rest = self._clock_ns, self._rest
        start = last = clock()
        while True:
            for _ in range(1 if rest else _LOOKS):
                if rest:
                    rest()
                if is_due():
                    # Whether it paid off is judged at the next wait: now there is work to do.
                    self._seen = start, marked_ns[0], clock()
                    return True
            now = clock()
            if now - last > TAKEN_NS and not rest:
                self._be_late()
                return is_due()
            if now - start > self._limit_ns:
                self._fail()
                return False
            last = now

    def _judge(self, start_ns: int, marked_ns: int, seen_ns: int) -> None:
        """Whether it paid off to look until what came was seen."""
        self._seen = None
        if seen_ns - marked_ns > LATE_NS:
            self._be_late()
            return
        self._late = max(0, self._late - 1)
        if not self._late:
            self._say(alone=True)
        self._usual_ns += (seen_ns - start_ns - self._usual_ns) // 8
        self._limit_ns = min(max(4 * self._usual_ns, self._least_ns), self._most_ns)
        self._in_vain, self._pause = 0, max(PAUSE, self._pause - self._pause // 64)

    def _fail(self) -> None:
        self._in_vain += 1
        if self._in_vain > PATIENCE:
            self._pause_now()

    def _be_late(self) -> None:
        """Another process had the core: a program beside this one, if it happens repeatedly."""
        self._late += FORGOTTEN_AFTER
        if self._late > _TOLERATED:
            self._late = _TOLERATED  # one more is enough until some have been in time
            self._say(alone=False)
            self._pause_now()

    def _say(self, alone: bool) -> None:
        if alone != self._alone:
            self._alone = alone
            self._on_sharing(alone)

    def _pause_now(self) -> None:
        self._to_skip, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        self._in_vain, self._limit_ns = 0, self._most_ns
