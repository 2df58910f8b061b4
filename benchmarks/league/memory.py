"""Loops bound by memory: making one stage free changes what the others find in the cache."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hotloop.loop import Loop, stage
from league.entry import Draws, Entry, Fixes

MIB = 2**20


@contextmanager
def three_arrays(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Three arrays of 16 MiB: two are mixed into the third, the third is reduced."""
    rng = np.random.default_rng(draws.seed())
    first, second = (rng.random(2 * MIB) for _ in range(2))
    third = np.zeros(2 * MIB)

    def fill() -> None:
        np.multiply(first, 1.0001, out=second[: 2 * MIB])

    def mix() -> None:
        count = fixes.count("mix", 2 * MIB)
        np.add(first[:count], second[:count], out=third[:count])

    def reduce() -> float:
        count = fixes.count("reduce", 2 * MIB)
        return float(third[:count].sum())

    def leave() -> None:
        return None

    # What they write holds no state that any later stage depends on.
    fill_stage = stage("fill", fill if fixes["fill"] else leave, effect="pure")
    mix_stage = stage("mix", mix, effect="pure")
    reduce_stage = stage("reduce", reduce, effect="pure")

    def body() -> int:
        fill_stage()
        mix_stage()
        reduce_stage()
        return 1

    yield Loop(body=body, name="memory-three")


@contextmanager
def same_array(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Two stages read the same 8 MiB, a third runs over 24 MiB twice between two iterations."""
    rng = np.random.default_rng(draws.seed())
    shared, large = rng.random(MIB), rng.random(3 * MIB)

    def mean() -> float:
        return float(shared.mean()) if fixes["mean"] else 0.5

    def peak() -> float:
        return float(shared.max()) if fixes["peak"] else 1.0

    def sweep() -> float:
        return sum(float(large.sum()) for _ in range(fixes.count("sweep", 2)))

    staged = [stage(f.__name__, f, effect="pure") for f in (mean, peak, sweep)]

    def body() -> int:
        for each in staged:
            each()
        return 1

    yield Loop(body=body, name="memory-same")


LOOPS = {
    "memory-three": Entry(three_arrays, "memory", (("fill", 0.0), ("mix", 0.5))),
    "memory-same": Entry(same_array, "memory", (("mean", 0.0), ("sweep", 0.5))),
}
