"""A thread that keeps a queue filled, as loops with a background producer have it."""

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
