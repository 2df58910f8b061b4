"""Threads for compiled code that runs without Python's lock, and those that torch may take."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """So many threads, started when they are first needed."""

    def __init__(self, count: int, name: str) -> None:
        self.count, self._name = count, name
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`work` of each item; all of it is over when this returns or raises.

        After Ctrl-C nobody may still be writing into columns that are about to be reset.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, self._name)
        futures = [self._pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            wait(futures)

    def close(self) -> None:
        """End them; they start again when needed."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def in_threads(work: Callable[[int], object], parts: int) -> None:
    """`work` of 0 to `parts` - 1 side by side; all of it is over when this returns or raises.

    Threads are started for this call: nothing stays that a fork or an exit could trip over, for
    some 50 µs a thread.
    """
    if parts == 1:
        work(0)
        return
    failures: list[BaseException] = []

    def guarded(part: int) -> None:
        try:
            work(part)
        except BaseException as error:
            failures.append(error)

    others = [threading.Thread(target=guarded, args=(part,)) for part in range(1, parts)]
    for thread in others:
        thread.start()
    try:
        work(0)
    finally:
        for thread in others:
            thread.join()
    if failures:
        raise failures[0]


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads within the block; None leaves it its own number."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
