"""Loops with a planted fault, which count for themselves what a profile must say of it."""

import queue
import sys
import time
from collections import deque
from typing import Any

import hotloop

kept: list[bytearray] = []
# Seconds of each turn in `hot` and in `work`. Turns in which the interpreter calls a profiler stand
# apart: it runs some code slower then than other.
spent_s: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
MEBIBYTE = 1 << 20
OBJECTS, OBJECT_BYTES = 5_000, 100


def hot(n: int) -> int:
    total = 0
    for i in range(n):
        total += i * i  # the hot line
    return total


def cool(n: int) -> int:
    return sum(range(n))


def work() -> int:
    begin = time.perf_counter()
    hot(300_000)
    middle = time.perf_counter()
    cool(1_000_000)
    spent_s[sys.getprofile() is not None].append((middle - begin, time.perf_counter() - begin))
    return 0


def wait() -> None:
    time.sleep(0.003)  # longer than between two samples, of which one is always in it then


def leak() -> None:
    kept.append(bytearray(MEBIBYTE))  # the leak


def storm() -> list[Any]:
    found: list[Any] = [None] * OBJECTS
    for at in range(OBJECTS):
        found[at] = bytearray(OBJECT_BYTES)  # the storm
    return found


latest: dict[str, bytes] = {}


def turnover() -> None:
    latest["it"] = bytes(4 * MEBIBYTE)


def hot_loop() -> hotloop.Loop:
    """A stage with a hot function, and one that waits."""
    return _of(work=work, wait=wait)


def leaking_loop() -> hotloop.Loop:
    """A stage that keeps a mebibyte, one that replaces four, and one with many small objects."""
    return _of(leak=leak, turnover=turnover, storm=storm, wait=wait)


ITEM_BYTES, RING_ITEMS = 20_000, 3_000
backlog: queue.Queue[bytearray] = queue.Queue()
ring: deque[bytearray] = deque(maxlen=RING_ITEMS)


def produce() -> None:
    for _ in range(3):
        backlog.put(bytearray(ITEM_BYTES))  # the backlog


def consume() -> None:
    backlog.get()


def store() -> None:
    ring.append(bytearray(ITEM_BYTES))


def backlog_loop() -> hotloop.Loop:
    """Three items are put into a queue for one that is taken out: the oldest of many."""
    while backlog.qsize() < RING_ITEMS:
        backlog.put(bytearray(ITEM_BYTES))
    return _of(produce=produce, consume=consume, wait=wait)


def ring_loop() -> hotloop.Loop:
    """A ring that is full: each new item takes the place of one from before."""
    while len(ring) < RING_ITEMS:
        store()
    return _of(store=store, wait=wait)


def steady_loop() -> hotloop.Loop:
    """Nothing that grows."""
    return _of(turnover=turnover, wait=wait)


def waiting_loop() -> hotloop.Loop:
    """A `with` stage, and a stage on a thread of its own would be beside it."""
    stage = hotloop.stage("waiting")

    def body() -> int:
        with stage:
            wait()
        return 1

    return hotloop.Loop(body=body, unit="turns")


def _of(**functions: Any) -> hotloop.Loop:
    stages = [hotloop.stage(name, function) for name, function in functions.items()]

    def body() -> int:
        for stage in stages:
            stage()
        return 1

    return hotloop.Loop(body=body, unit="turns")


def line_of(words: str) -> int:
    """The number of the line of this file that holds these words."""
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {words}"))
