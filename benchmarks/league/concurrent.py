"""Loops whose parts run side by side: threads, a worker process, coroutines, a lock, a queue."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from hotloop.loop import Loop, stage
from league.entry import Draws, Entry, Fixes, burn, python_work
from league.queues import background, fed


@contextmanager
def waiting(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """A thread waits 3 ms for each item; the loop waits 1 ms for its own and computes 1 ms."""

    def wait_for_disk() -> int:
        if fixes["fetch"]:
            time.sleep(0.003 * fixes["fetch"])
        return 1

    def wait_for_card(_item: int) -> None:
        if fixes["train"]:
            time.sleep(0.001 * fixes["train"])

    fetch = stage("fetch", wait_for_disk, effect="pure", kind="io")
    train = stage("train", wait_for_card, effect="pure")
    log = stage("log", lambda: python_work(fixes.count("log", 8)), effect="pure")
    with fed(fetch, 2) as take:

        def body() -> int:
            train(take())
            log()
            return 1

        yield Loop(body=body, name="threads-waiting")


@contextmanager
def one_lock(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """A thread decodes in Python, the loop trains in Python: one interpreter lock for both."""
    decode = stage("decode", lambda: python_work(fixes.count("decode", 12)), effect="pure")
    train = stage("train", lambda _item: python_work(fixes.count("train", 16)), effect="pure")
    with fed(decode, 3) as take:

        def body() -> int:
            train(take())
            return 1

        yield Loop(body=body, name="threads-python")


@contextmanager
def released(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """A thread multiplies matrices, the loop others: NumPy releases the interpreter lock."""
    rng = np.random.default_rng(draws.seed())
    square = rng.normal(size=(192, 192)) / 14

    def multiply(times: int) -> np.ndarray:
        out = square
        for _ in range(times):
            out = out @ square
        return out

    prepare = stage("prepare", lambda: multiply(fixes.count("prepare", 8)), effect="pure")
    train = stage("train", lambda _item: multiply(fixes.count("train", 4)), effect="pure")
    with fed(prepare, 3) as take:

        def body() -> int:
            train(take())
            return 1

        yield Loop(body=body, name="threads-arrays")


@contextmanager
def unseen_thread(
    depth: int, fetch_s: float, train_s: float, fixes: Fixes, _draws: Draws
) -> Iterator[Loop]:
    """A thread that is no stage brings the items; the stages convert 0.4 ms and wait for a card.

    Where the thread is the slower one, what the stages gain is time that the loop then waits
    longer. A full queue hides that for as many iterations as it is deep.
    """

    def fetch() -> int:
        time.sleep(fetch_s)
        return 1

    def train_one() -> None:
        if fixes["train"]:
            time.sleep(train_s * fixes["train"])

    convert = stage("convert", lambda _x: burn(0.0004 * fixes["convert"]), effect="pure")
    train = stage("train", train_one, effect="pure")
    with fed(fetch, depth) as take:

        def body() -> int:
            convert(take())
            train()
            return 1

        yield Loop(body=body, name="unseen-thread")


@contextmanager
def worker(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """A forked worker decodes 1.6 ms in Python; two requests are on their way; training 1.2 ms."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def decode_one(_request: int) -> np.ndarray:
        python_work(fixes.count("decode", 16))
        return np.zeros(256)

    decode = stage("decode", decode_one, effect="pure")
    train = stage("train", lambda _x: python_work(fixes.count("train", 12)), effect="pure")

    def serve() -> None:
        while True:
            theirs.send(decode(theirs.recv()))

    process = context.Process(target=serve, daemon=True)
    process.start()
    for request in range(2):
        ours.send(request)

    def body() -> int:
        batch = ours.recv()
        ours.send(0)
        train(batch)
        return 1

    try:
        yield Loop(body=body, name="worker-pipe", in_flight=2)
    finally:
        process.kill()
        process.join()


@contextmanager
def coroutines(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Gather eight fetches of 1 to 5 ms each, then parse 2 ms: the slowest fetch counts."""
    runner = asyncio.Runner()
    ready = np.zeros(32)

    async def fetch_one(_k: int) -> np.ndarray:
        await asyncio.sleep(fixes["fetch"] * (0.001 + 0.004 * draws()))
        return ready

    fetch = stage("fetch", fetch_one, effect="pure", kind="network")
    parse = stage("parse", lambda _x: python_work(fixes.count("parse", 20)), effect="pure")

    async def step() -> None:
        parse(await asyncio.gather(*(fetch(k) for k in range(8))))

    def body() -> int:
        runner.run(step())
        return 8

    with runner:
        yield Loop(body=body, name="coroutines", unit="fetches")


@contextmanager
def shared_lock(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """A thread writes 1 ms under a lock in every 2.5 ms; the loop reads under it, then trains."""
    lock = threading.Lock()

    def write_one() -> None:
        with lock:
            if fixes["write"]:
                time.sleep(0.001 * fixes["write"])

    def read_one() -> None:
        with lock:
            burn(0.0005 * fixes["read"])

    write = stage("write", write_one, effect="pure", kind="io")
    read = stage("read", read_one, effect="pure")
    train = stage("train", lambda: burn(0.0010 * fixes["train"]), effect="pure")

    def write_on() -> None:
        write()
        time.sleep(0.0015)

    def body() -> int:
        read()
        train()
        return 1

    with background(write_on):
        yield Loop(body=body, name="shared-lock")


@contextmanager
def unpaced(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """A thread computes statistics, pauses and starts anew, whatever the loop does."""
    watch = stage("watch", lambda: python_work(fixes.count("watch", 8)), effect="pure")
    load = stage("load", lambda: python_work(fixes.count("load", 8)), effect="pure")
    train = stage("train", lambda: python_work(fixes.count("train", 16)), effect="pure")

    def watch_on() -> None:
        watch()
        time.sleep(0.001)

    def body() -> int:
        load()
        train()
        return 1

    with background(watch_on):
        yield Loop(body=body, name="unpaced")


def _unseen(depth: int, fetch_s: float, train_s: float, *fixes: tuple[str, float]) -> Entry:
    make = partial(unseen_thread, depth, fetch_s, train_s)
    return Entry(make, "concurrent", fixes, drain=2 * depth + 8)


LOOPS = {
    "threads-waiting": Entry(
        waiting, "concurrent", (("fetch", 0.0), ("fetch", 0.5), ("train", 0.0)), drain=8
    ),
    "threads-python": Entry(one_lock, "concurrent", (("decode", 0.0), ("train", 0.5)), drain=10),
    "threads-arrays": Entry(released, "concurrent", (("prepare", 0.5), ("train", 0.0)), drain=10),
    "unseen-slow-4": _unseen(4, 0.0022, 0.0009, ("train", 0.0)),
    "unseen-slow-64": _unseen(64, 0.0022, 0.0009, ("train", 0.0), ("convert", 0.0)),
    "unseen-fast-64": _unseen(64, 0.0010, 0.0024, ("train", 0.0), ("train", 0.5)),
    "worker-pipe": Entry(worker, "concurrent", (("decode", 0.0), ("train", 0.0)), drain=8),
    "coroutines": Entry(
        coroutines, "concurrent", (("fetch", 0.5), ("parse", 0.0)), drain=2, in_phases=True
    ),
    "shared-lock": Entry(shared_lock, "concurrent", (("write", 0.0), ("train", 0.5))),
    "unpaced": Entry(unpaced, "concurrent", (("watch", 0.0), ("train", 0.5))),
}
