"""Loops that start what must not outlive them: processes, a program, threads, shared memory."""

import multiprocessing
import queue
import signal
import subprocess
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path

from loops import spin
from sign import Sign

import hotloop


def work_forever() -> None:
    while True:
        time.sleep(0.01)


def crowded(daemon: bool = True) -> hotloop.Loop:
    """Two forked workers, a program, and a thread that produces what is trained on."""
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work_forever, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    program = subprocess.Popen(["sleep", "600"])
    Path("pids").write_text("\n".join(str(started.pid) for started in (*workers, program)))
    items: queue.Queue[int] = queue.Queue(4)
    load = hotloop.stage("load", spin, effect="pure")
    train = hotloop.stage("train", spin, effect="pure")

    def produce() -> None:
        while True:
            items.put(load(3000))

    threading.Thread(target=produce, daemon=daemon).start()
    sign = Sign()

    def iterate() -> int:
        items.get()
        train(3000)
        sign.look()
        return 1

    return hotloop.Loop(body=iterate, close=lambda: Path("closed").touch())


def with_waiting_thread() -> hotloop.Loop:
    """Like `crowded`, its thread one that Python would wait for."""
    return crowded(daemon=False)


def wait_forever_deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work_forever()


def with_deaf_worker() -> hotloop.Loop:
    """A worker that takes no notice of being asked to end."""
    fork = multiprocessing.get_context("fork")
    fork.Process(target=wait_forever_deaf, daemon=True).start()
    return serial(blocks=4)


def with_shared_memory() -> hotloop.Loop:
    """Two segments, as a loop has that hands arrays to its workers."""
    train = hotloop.stage("train", spin, effect="pure")
    sign = Sign()
    segments = [shared_memory.SharedMemory(create=True, size=4096) for _ in range(2)]
    Path("segments").write_text("\n".join(segment.name for segment in segments))

    def iterate() -> int:
        segments[0].buf[0] = train(3000) % 256
        sign.look()
        return 1

    return hotloop.Loop(body=iterate)


def serial(blocks: int = 100) -> hotloop.Loop:
    """Two stages one after the other, and a sign once a simplification has some rounds."""
    load = hotloop.stage("load", spin, effect="pure")
    train = hotloop.stage("train", spin, effect="pure")
    sign = Sign(blocks)

    def iterate() -> int:
        load(6000)
        train(3000)
        sign.look()
        return 1

    return hotloop.Loop(body=iterate)


def still_warming_up() -> hotloop.Loop:
    """A first iteration that does not end."""

    def iterate() -> int:
        Path("measuring").touch()
        time.sleep(600)
        return 1

    return hotloop.Loop(body=iterate)
