"""Threads for compiled code that runs without Python's lock, and torch's number of threads."""

from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TypeVar

import torch

from hotloop.loop.host import usable_cores

LEAST_ITEMS = 250_000
PARTS_PER_THREAD = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count(wanted: int | None) -> int:
    """Return the number of threads to use: as many as wanted, or one a core of this process."""
    return wanted or max(1, int(usable_cores()))


class Threads:
    """A pool of `count` threads, started when they are first needed."""

    def __init__(self, count: int, name: str) -> None:
        self.count, self._name = count, name
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Do `work` on each item; all of it has ended when this returns or raises.

        After Ctrl-C no thread may still write to columns that will be reset.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, self._name)
        futures = [self._pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            wait(futures)

    def close(self) -> None:
        """End the threads; they start again when needed."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def in_parts(work: Callable[[int, int], object], size: int, items: int) -> None:
    """Do `work(begin, end)` over all of 0 to `size`, on as many threads as torch may use.

    A free thread takes the next part. For some milliseconds after an operation torch's own threads
    keep their cores busy, so that a helper may start late or not at all: no thread waits for one
    that has not begun. Helpers are started for this call, in some 20 µs each, so that no thread
    stays that could disturb a fork or an exit.

    items: edges or draws in all, of 1 to 2 ns each; a small number is not divided.
    """
    threads = torch.get_num_threads()
    parts = min(items // LEAST_ITEMS, PARTS_PER_THREAD * threads, size) if threads > 1 else 1
    if parts < 2:
        work(0, size)
        return
    left, over = list(range(parts))[::-1], SimpleQueue[BaseException | None]()

    def take_parts() -> None:
        with suppress(IndexError):  # nothing is left
            while True:
                part = left.pop()
                over.put(_failure_of(work, size * part // parts, size * (part + 1) // parts))

    for _ in range(min(threads, parts) - 1):
        start_new_thread(take_parts, ())  # Thread.start would wait until it has begun
    take_parts()
    failures = [error for _ in range(parts) if (error := over.get()) is not None]
    if failures:
        raise failures[0]


def _failure_of(work: Callable[[int, int], object], begin: int, end: int) -> BaseException | None:
    try:
        work(begin, end)
    except BaseException as error:
        return error
    return None


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set torch's number of threads within the block; None keeps it."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
