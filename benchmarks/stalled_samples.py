"""How near is a sampled share of the time to the true one, beside programs that take the core?

A loop computes in two functions, whose processor time is known from before. Its stack is sampled,
and the share of the one is computed twice from the same samples: with all the time since the sample
before, and as hotloop does, without the stalls of the loop's thread. Once more, with a call of the
system between the two: it is a place where the kernel may take the loop's core away.

    OMP_NUM_THREADS=1 python benchmarks/stalled_samples.py \\
        --write docs/benchmarks/stalled_samples.md
"""

import argparse
import itertools
import os
import time
import types
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hotloop.benchmark.stack_sampler import STALL_S, StackSampler
from spinning import spinning
from tables import table, write_page

WATCH_S = 0.6  # as long as a detector watches
BESIDE = (0, 2, 4, 8)
FAR = 0.2


def searched() -> int:
    """The function whose share is asked."""
    return sum(number & 3 for number in range(2_000))


def other() -> int:
    """What the loop does besides."""
    return sum(number & 5 for number in range(3_000))


def true_share() -> float:
    """The share of the processor time of `searched`."""
    spent = []
    for part in (searched, other):
        begin = time.thread_time()
        for _ in range(2_000):
            part()
        spent.append(time.thread_time() - begin)
    return spent[0] / sum(spent)


def shares(calls_system: bool) -> tuple[float, float]:
    """Return the share of `searched` in one watch with all time, and that without stalls."""
    at, within, all_s, without_stalls_s = time.perf_counter(), [], [], []

    def take(stack: Sequence[types.FrameType], seconds: float) -> None:
        nonlocal at
        now = time.perf_counter()
        within.append(any(frame.f_code is searched.__code__ for frame in stack))
        all_s.append(now - at)
        without_stalls_s.append(seconds)
        at = now

    sampler = StackSampler(take)
    sampler.start()
    end = time.perf_counter() + WATCH_S
    while time.perf_counter() < end:
        searched()
        if calls_system:
            os.getppid()
        other()
    sampler.stop()
    is_within = np.array(within)
    all_time, without_stalls = (
        float(np.array(stands_for)[is_within].sum() / np.sum(stands_for))
        for stands_for in (all_s, without_stalls_s)
    )
    return all_time, without_stalls


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", type=Path, help="the page to write")
    options.add_argument("--watches", type=int, default=40, help="of each number of programs")
    chosen = options.parse_args()
    truth, rows = true_share(), []
    for calls_system, count in itertools.product((False, True), BESIDE):
        with spinning(count):
            found = np.array([shares(calls_system) for _ in range(chosen.watches)])
        errors = np.abs(found - truth)
        rows.append(
            [
                "yes" if calls_system else "no",
                f"{count}",
                *(f"{each:.3f}" for each in np.median(errors, axis=0)),
                *(f"{each:.3f}" for each in np.quantile(errors, 0.95, axis=0)),
                *(f"{each} of {len(errors)}" for each in (errors > FAR).sum(axis=0)),
            ]
        )
    parts = [
        f"{chosen.watches} watches of {WATCH_S} s beside each number of programs that compute "
        f"without end. The true share is {truth:.2f}; a stall is a time of more "
        f"than {STALL_S * 1e3:.0f} ms in which the loop was ready to run and had no core.",
        table(
            [
                "calls the system",
                "programs beside",
                "median error, all time",
                "without stalls",
                "95% of the errors are below, all time",
                "without stalls",
                f"wrong by more than {FAR}, all time",
                "without stalls",
            ],
            rows,
        ),
    ]
    title = "Shares of sampled stacks beside busy programs"
    write_page(chosen.write, title, parts, "benchmarks/stalled_samples.py")


if __name__ == "__main__":
    main()
