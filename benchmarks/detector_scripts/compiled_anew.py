"""A kernel that is made for each step's parameters, and so compiled in each of them."""

import numba
import numpy as np

import hotloop

rng = np.random.default_rng(0)
state = rng.random(10_000)


def kernel(rate):
    @numba.njit
    def decay(values):
        total = 0.0
        for k in range(len(values)):
            values[k] *= rate
            total += values[k]
        return total

    return decay


for step in hotloop.iterations(range(1_000_000), unit="steps"):
    total = kernel(1.0 - 1e-6 * step)(state)  # fault: compilation
    state += total / len(state) * 1e-6
