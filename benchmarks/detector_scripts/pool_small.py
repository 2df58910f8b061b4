"""A pool that is sent seeds and returns numbers: no fault."""

import multiprocessing

import numpy as np

import hotloop


def simulate(seed):
    rng = np.random.default_rng(seed)
    return float(rng.normal(size=(2000, 8)).cumsum(axis=0).max())


def main():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        best = 0.0
        for step in hotloop.iterations(range(1_000_000), unit="rounds"):
            best = max(best, *pool.map(simulate, range(8 * step, 8 * step + 8)))


main()
