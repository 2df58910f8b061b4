"""You will see a stage with a third of the time that gains nothing, and why.

    hotloop simplify examples/04_threads.py:make_loop --budget 20

A thread fetches ahead through a queue while the loop trains. Training has a large share, and
slack: made free, it only waits longer. The delay that it could bear is in the column `slack`.
"""

import queue
import threading
import time

import hotloop


def make_loop() -> hotloop.Loop:
    items: queue.Queue[int] = queue.Queue(maxsize=2)
    stopped = threading.Event()

    def wait_for_disk(item: int) -> int:
        time.sleep(0.003)
        return item

    def wait_for_gpu(_item: int) -> None:
        time.sleep(0.001)

    fetch = hotloop.stage("fetch", wait_for_disk, effect="pure", kind="io")
    train = hotloop.stage("train", wait_for_gpu, effect="pure")

    def produce() -> None:
        item = 0
        while not stopped.is_set():
            fetched = fetch(item)
            item += 1
            while not stopped.is_set():
                try:
                    items.put(fetched, timeout=0.1)
                    break
                except queue.Full:
                    continue

    threading.Thread(target=produce, daemon=True).start()

    def body() -> int:
        train(items.get())
        return 1

    return hotloop.Loop(body=body, unit="samples", close=stopped.set)
