"""Images sent through a pool of processes: they are pickled there and back."""

import multiprocessing

import numpy as np

import hotloop

images = np.random.default_rng(0).random((8, 256, 256), dtype=np.float32)


def sharpen(image):
    return 2 * image - (np.roll(image, 1, 0) + np.roll(image, 1, 1)) / 2


def main():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for step in hotloop.iterations(range(1_000_000), unit="batches"):
            batch = list(np.roll(images, step, axis=1))
            sharp = pool.map(sharpen, batch)  # fault: pickling
            np.stack(sharp).mean()


main()
