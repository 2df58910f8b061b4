"""Threads beside a loop: one that keeps a queue filled, and one that works for itself."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def fed(make: Callable[[], T], depth: int) -> Iterator[Callable[[], T]]:
    """Call `make` in a thread, as far ahead as `depth` items; yields the function that takes one.

    The thread ends with the context.
    """
    items: queue.Queue[T] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def produce() -> None:
        while not stopped.is_set():
            made = make()
            while not stopped.is_set():
                try:
                    items.put(made, timeout=0.2)
                    break
                except queue.Full:
                    continue

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield items.get
    finally:
        stopped.set()
        thread.join(5)


@contextmanager
def background(work: Callable[[], object]) -> Iterator[None]:
    """Call `work` again and again in a thread, which ends with the context."""
    stopped = threading.Event()

    def go_on() -> None:
        while not stopped.is_set():
            work()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(5)
