"""Loops whose true gains are known by construction."""

import asyncio
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hotloop.loop import Loop, stage
from hotloop.loop.figures import Interval


def busy(seconds: float) -> None:
    """Keep a core and the interpreter lock for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def assert_near(measured: object, truth: float) -> None:
    """A gain on a real clock is the planted one, with a margin of several interval widths.

    A busy machine widens the interval, and with it the margin; the 0.12 are for what a machine
    does to one arm and not to another.
    """
    assert isinstance(measured, Interval), measured
    margin = 0.12 + 4 * measured.half_width
    assert abs(measured.value - truth) <= margin, (measured, truth)


@contextmanager
def threaded_pipeline(fetch_s: float, train_s: float, waiting: bool = True) -> Iterator[Loop]:
    """A producer thread fetches, the loop trains: max of both if they wait, sum if they compute."""
    work = time.sleep if waiting else busy
    items: queue.Queue[int] = queue.Queue(2)
    stop = threading.Event()

    def fetch_one(item: int) -> int:
        work(fetch_s)
        return item

    def train_one(item: int) -> None:
        work(train_s)

    fetch = stage("fetch", fetch_one, effect="pure")
    train = stage("train", train_one, effect="pure")

    def produce() -> None:
        item = 0
        while not stop.is_set():
            made = fetch(item)
            item += 1
            while not stop.is_set():
                try:
                    items.put(made, timeout=0.05)
                    break
                except queue.Full:
                    continue

    thread = threading.Thread(target=produce)
    thread.start()

    def body() -> int:
        train(items.get())
        return 1

    try:
        yield Loop(body=body, in_flight=4)
    finally:
        stop.set()
        thread.join()


@contextmanager
def hidden_pipeline(fetch_s: float, train_s: float) -> Iterator[Loop]:
    """A producer thread that is no stage, with a queue of four; only the training is a stage."""
    items: queue.Queue[int] = queue.Queue(4)
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            time.sleep(fetch_s)
            while not stop.is_set():
                try:
                    items.put(1, timeout=0.05)
                    break
                except queue.Full:
                    continue

    thread = threading.Thread(target=produce)
    thread.start()
    train = stage("seen train", lambda _item: time.sleep(train_s), effect="pure")

    def body() -> int:
        train(items.get())
        return 1

    try:
        yield Loop(body=body)
    finally:
        stop.set()
        thread.join()


@contextmanager
def unpaced_thread(watch_s: float, train_s: float) -> Iterator[tuple[Loop, Callable[[], int]]]:
    """A thread that watches as fast as it can, with no queue to the loop; and its calls so far."""
    stop = threading.Event()
    calls = [0]
    watch = stage("watch", lambda: time.sleep(watch_s), effect="pure")
    train = stage("unpaced train", lambda: time.sleep(train_s), effect="pure")

    def go_on() -> None:
        while not stop.is_set():
            watch()
            calls[0] += 1

    thread = threading.Thread(target=go_on)
    thread.start()

    def body() -> int:
        train()
        return 1

    try:
        yield Loop(body=body), lambda: calls[0]
    finally:
        stop.set()
        thread.join()


@contextmanager
def process_pipeline(decode_s: float, train_s: float) -> Iterator[Loop]:
    """A worker process decodes, the loop trains; both wait, so the slower one sets the time."""
    context = multiprocessing.get_context("fork")
    # A pipe per item and no feeder thread: what is in flight is what the semaphore allows.
    items = context.SimpleQueue()
    room = context.Semaphore(3)

    def decode_one(item: int) -> int:
        time.sleep(decode_s)
        return item

    def train_one(item: int) -> None:
        time.sleep(train_s)

    decode = stage("decode", decode_one, effect="pure")
    train = stage("train", train_one, effect="pure")

    def work() -> None:
        item = 0
        while True:
            room.acquire()
            items.put(decode(item))
            item += 1

    process = context.Process(target=work, daemon=True)
    process.start()

    def body() -> int:
        train(items.get())
        room.release()
        return 1

    try:
        yield Loop(body=body, in_flight=4)
    finally:
        process.kill()
        process.join()


@contextmanager
def async_pipeline(fetch_s: float, train_s: float) -> Iterator[Loop]:
    """A task fetches ahead in the event loop that the body also runs in."""
    events = asyncio.new_event_loop()
    items: asyncio.Queue[int] = asyncio.Queue(2)

    async def fetch_one(item: int) -> int:
        await asyncio.sleep(fetch_s)
        return item

    def train_one(item: int) -> None:
        busy(train_s)

    fetch = stage("fetch", fetch_one, effect="pure", kind="io")
    train = stage("train", train_one, effect="pure")

    async def produce() -> None:
        item = 0
        while True:
            await items.put(await fetch(item))
            item += 1

    producer = events.create_task(produce())

    async def iterate() -> None:
        train(await items.get())

    def body() -> int:
        events.run_until_complete(iterate())
        return 1

    try:
        yield Loop(body=body, in_flight=4)
    finally:
        producer.cancel()
        events.run_until_complete(asyncio.gather(producer, return_exceptions=True))
        events.close()
