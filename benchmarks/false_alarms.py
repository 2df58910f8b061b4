"""How often does an experiment see a difference where there is none, on a real, restless machine?

Beside the loop run spinners: processes that take a core for a while, then let go, at random. Each
repetition is a whole experiment of its own on a loop of real work; it raises a false alarm if any
of its arms that are the same as the baseline is told apart from it, after Holm's correction, with
no second chance. The common ways of comparing are judged on the same blocks: the means of two
halves run one after the other, and paired differences of neighbouring blocks.

    python benchmarks/false_alarms.py --repetitions 300 --markdown docs/benchmarks/false_alarms.md
"""

import argparse
import math
import multiprocessing
import random
import time
from pathlib import Path

import numpy as np

from hotloop.loop import Loop, drive, stage
from hotloop.loop.board import process_board
from hotloop.simplify.arms import BASELINE, aa_name
from hotloop.simplify.experiment import Experiment, SimplifySettings
from hotloop.simplify.record import Record
from hotloop.simplify.verdict import aa_test
from tables import table, write_page

SPINNERS = 2
OURS = "hotloop: a whole experiment"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repetitions", type=int, default=300)
    options.add_argument("--budget", type=float, default=1.6)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    loop = make_loop()
    spinners = [
        multiprocessing.Process(target=spin, args=(seed,), daemon=True) for seed in range(SPINNERS)
    ]
    for spinner in spinners:
        spinner.start()
    alarms = {OURS: 0, "one A/A pair, run in sequence, means": 0}
    alarms["one A/A pair, neighbouring blocks, paired means"] = 0
    rounds = []
    try:
        for repetition in range(chosen.repetitions):
            record = experiment(loop, chosen.budget, repetition)
            rounds.append(1 + max(record.round_of))
            alarms[OURS] += not aa_test(record, repetition).holds
            first, second = pair(record)
            alarms["one A/A pair, run in sequence, means"] += differs(
                first[: len(first) // 2], first[len(first) // 2 :]
            )
            alarms["one A/A pair, neighbouring blocks, paired means"] += differs(
                first - second, np.zeros(0)
            )
    finally:
        for spinner in spinners:
            spinner.kill()
    count = chosen.repetitions
    rows = [
        [name, f"{hits} of {count}", f"{hits / count:.1%}", wilson(hits, count)]
        for name, hits in alarms.items()
    ]
    parts = [
        f"{count} experiments of {chosen.budget:g} s beside {SPINNERS} spinners that each take a "
        f"core for 2 to 60 ms, then rest as long, on {np.median(rounds):.0f} rounds (median) of "
        f"{4 + 2 * 2 + 1} arms. Nominal: 5%. A false alarm of an experiment is one of its three "
        "A/A pairs significant after Holm's correction, before any extension of the run; of the "
        "two other ways, t > 1.96 for one pair.",
        table(["method", "alarms", "rate", "95% interval"], rows),
        f"At most 10% wanted: **{'reached' if alarms[OURS] <= 0.1 * count else 'missed'}**.",
    ]
    write_page(chosen.markdown, "False alarms under noise", parts, "benchmarks/false_alarms.py")


def make_loop() -> Loop:
    values = np.arange(20_000, dtype=float)
    first = stage(
        "first", lambda: float(np.sqrt(values).sum()) and sum(range(6_000)), effect="pure"
    )
    second = stage("second", lambda: sum(k * k for k in range(4_000)), effect="pure")

    def body() -> int:
        first()
        second()
        return 1

    return Loop(body=body)


def experiment(loop: Loop, budget: float, seed: int) -> Record:
    board = process_board()
    made = Experiment(board, SimplifySettings(budget=budget, seed=seed, looks=1))
    made.may_extend = False  # the A/A is judged as it first stands
    drive(loop, made.run(loop), board)
    return made.record


def pair(record: Record) -> tuple[np.ndarray, np.ndarray]:
    times = record.samples(0).ns
    names = record.arm_names()
    both = times[:, [names.index(BASELINE), names.index(aa_name(1))]]
    both = both[np.isfinite(both).all(axis=1)]
    return both[:, 0], both[:, 1]


def differs(a: np.ndarray, b: np.ndarray) -> bool:
    variance = a.var(ddof=1) / len(a) + (b.var(ddof=1) / len(b) if len(b) else 0.0)
    return abs(a.mean() - (b.mean() if len(b) else 0.0)) > 1.96 * math.sqrt(variance)


def spin(seed: int) -> None:
    rng = random.Random(seed)
    while True:
        end = time.perf_counter() + rng.uniform(0.002, 0.060)
        while time.perf_counter() < end:
            pass
        time.sleep(rng.uniform(0.002, 0.060))


def wilson(hits: int, count: int) -> str:
    """Wilson's 95% interval of a proportion."""
    z, p = 1.96, hits / count
    middle = p + z * z / (2 * count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return f"{max(0.0, (middle - half) / scale):.1%} to {(middle + half) / scale:.1%}"


if __name__ == "__main__":
    main()
