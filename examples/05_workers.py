"""You will see a stage in worker processes measured and replaced where it runs.

    hotloop simplify examples/05_workers.py:make_loop --budget 25

Which arm runs is one byte a stage in memory that the workers share; each keeps its own tape.
"""

import multiprocessing

import numpy as np

import hotloop

WORKERS = 2


def decode(seed: int) -> np.ndarray:
    image = np.random.default_rng(seed).normal(size=(96, 96))
    return np.abs(np.fft.fft2(image))[:8, :8].copy()


def make_loop() -> hotloop.Loop:
    context = multiprocessing.get_context("fork")
    seeds, images = context.SimpleQueue(), context.SimpleQueue()
    decode_stage = hotloop.stage("decode", decode, effect="pure")
    weights = np.zeros(64)

    def work() -> None:
        while True:
            images.put(decode_stage(seeds.get()))

    workers = [context.Process(target=work, daemon=True) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()

    def fit(image: np.ndarray) -> None:
        for _ in range(30):
            weights[:] -= 1e-9 * (image.ravel() @ weights - 1.0) * image.ravel()

    train = hotloop.stage("train", fit, effect="stateful")
    for seed in range(2 * WORKERS):
        seeds.put(seed)

    def body() -> int:
        train(images.get())
        seeds.put(0)
        return 1

    def close() -> None:
        for worker in workers:
            worker.kill()

    return hotloop.Loop(
        body=body, unit="images", state=[weights], in_flight=2 * WORKERS, close=close
    )
