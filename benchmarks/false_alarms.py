"""How often does an experiment see a difference where there is none, on a real, restless machine?

Beside the loop run spinners: processes that take a core for a while, then let go, at random. Each
repetition is a whole experiment of its own on a loop of real work; it raises a false alarm if any
of its arms in which nothing is changed comes out different from the others by more than the margin
of equivalence, wholly outside its interval, with no second chance. The common ways of comparing
are judged on the same blocks: the means of two halves run one after the other, and paired
differences of neighbouring blocks. Raw results are appended to a file, from which a run that was
broken off goes on.

    python benchmarks/false_alarms.py --repetitions 400 --markdown docs/benchmarks/false_alarms.md
"""

import argparse
import json
import math
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.loop import Loop, drive, stage
from hotloop.loop.control import process_control
from hotloop.simplify.aa import aa_test
from hotloop.simplify.arm_names import BASELINE, aa_name
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from tables import table, write_page

SPINNERS = 2
OURS = "hotloop: a whole experiment"
SEQUENCE = "one A/A pair, run in sequence, means"
NEIGHBOURS = "one A/A pair, neighbouring blocks, paired means"
RESULTS = Path("docs/benchmarks/false_alarms.jsonl")
WANTED = 0.06


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repetitions", type=int, default=400)
    options.add_argument("--budget", type=float, default=2.0)
    options.add_argument("--results", type=Path, default=RESULTS)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    done = read(chosen.results)
    if len(done) < chosen.repetitions:
        measure(chosen.results, range(len(done), chosen.repetitions), chosen.budget)
        done = read(chosen.results)
    count = len(done)
    alarms = {name: sum(line[name] for line in done) for name in (OURS, SEQUENCE, NEIGHBOURS)}
    rows = [
        [
            name,
            f"{hits} of {count}",
            f"{hits / count:.1%}",
            "{:.1%} to {:.1%}".format(*wilson(hits, count)),
        ]
        for name, hits in alarms.items()
    ]
    rounds = np.median([line["rounds"] for line in done])
    upper = wilson(alarms[OURS], count)[1]
    parts = [
        f"{count} experiments of {chosen.budget:g} s beside {SPINNERS} spinners that each take a "
        f"core for 2 to 60 ms, then rest as long, on {rounds:.0f} rounds (median). A false alarm "
        "of an experiment is that it would refuse its verdict: an unchanged arm that differs from "
        "the others by more than 1%, wholly outside its interval, before any extension of the run. "
        "Of the two other ways it is t > 1.96 for one pair.",
        table(["method", "alarms", "rate", "95% interval"], rows),
        f"An upper limit of at most {WANTED:.0%} wanted: "
        f"**{'reached' if upper <= WANTED else 'missed'}**.",
    ]
    write_page(chosen.markdown, "False alarms under noise", parts, "benchmarks/false_alarms.py")


def read(results: Path) -> list[dict[str, Any]]:
    """What was measured before."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def measure(results: Path, repetitions: range, budget: float) -> None:
    """Experiments beside spinners; each appends a line."""
    loop = make_loop()
    spinners = [
        multiprocessing.Process(target=spin, args=(seed,), daemon=True) for seed in range(SPINNERS)
    ]
    for spinner in spinners:
        spinner.start()
    try:
        for repetition in repetitions:
            record = experiment(loop, budget, repetition)
            first, second = pair(record)
            halves = first[: len(first) // 2], first[len(first) // 2 :]
            line = {
                "repetition": repetition,
                "rounds": 1 + max(record.round_of),
                OURS: not aa_test(record, repetition).holds,
                SEQUENCE: bool(differs(*halves)),
                NEIGHBOURS: bool(differs(first - second, np.zeros(0))),
            }
            with open(results, "a") as file:
                file.write(json.dumps(line) + "\n")
    finally:
        for spinner in spinners:
            spinner.kill()


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
    control = process_control()
    made = Experiment(control, SimplifySettings(budget=budget, seed=seed, looks=1))
    made.may_extend = False  # the A/A is judged as it first stands
    drive(loop, made.run(loop), control)
    return made.record


def pair(record: Record) -> tuple[np.ndarray, np.ndarray]:
    samples = record.samples(0)
    times = samples.ns / samples.units
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


def between(low: float, high: float) -> str:
    return f"{low:.1%} to {high:.1%}"


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a proportion."""
    z, p = 1.96, hits / count
    middle = p + z * z / (2 * count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (middle - half) / scale), (middle + half) / scale


if __name__ == "__main__":
    main()
