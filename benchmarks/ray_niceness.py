"""What does it cost that Ray runs its workers at nice 15?

A vector env on Ray steps CartPole, in a Ray that is started for it: once with workers that give way
to all other programs, as Ray starts them, and once with workers that do not, as hotloop starts
them. Both take turns, in random order, alone and beside two processes that compute without end.

    OMP_NUM_THREADS=1 python benchmarks/ray_niceness.py --write docs/benchmarks/ray_niceness.md
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import ray

from hotloop import make_vec
from hotloop.envs.ray.cluster import environment, start_ray
from hotloop.loop.figures import paired_ratio
from spinning import spinning
from tables import ratio_text, table, write_page

RAYS, FULL = "15", "0"  # the niceness that Ray gives, and that hotloop does
NUM_ENVS, WORKERS, SPINNERS = 16, 2, 2
MADE_BY = "benchmarks/ray_niceness.py"
TURN_S, WARM_STEPS = 2.0, 50
CELLS = {"alone": 0, f"beside {SPINNERS} busy processes": SPINNERS}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", type=Path, help="the page to write")
    options.add_argument("--rounds", type=int, default=8, help="turns of each side and cell")
    chosen = options.parse_args()
    shuffled = random.Random(0)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(chosen.rounds):
        for cell, spinners in CELLS.items():
            for niceness in shuffled.sample((RAYS, FULL), 2):
                with spinning(spinners):
                    found.setdefault((cell, niceness), []).append(turn(niceness))
    parts = [
        f"CartPole-v1, {NUM_ENVS} envs in {WORKERS} actors; {chosen.rounds} turns of each side, "
        f"each in a Ray of its own, with {TURN_S:g} s of steps. Ratios with their 95% interval.",
        table(
            ["", "env steps/s, nice 15", "nice 0", "ratio", "ready after, nice 15", "nice 0"],
            [row(cell, found[cell, RAYS], found[cell, FULL]) for cell in CELLS],
        ),
    ]
    write_page(chosen.write, "Ray's workers at nice 15 and at nice 0", parts, MADE_BY)


def turn(niceness: str) -> tuple[float, float]:
    """Env steps a second, and seconds until the envs were ready, in a Ray that has just started."""
    with environment({"RAY_worker_niceness": niceness}):
        start_ray("local", quiet=True)
        try:
            begin = time.perf_counter()
            envs = make_vec("CartPole-v1", NUM_ENVS, backend="ray", num_workers=WORKERS, num_cpus=1)
            envs.reset(seed=0)
            ready_s = time.perf_counter() - begin
            actions = np.zeros(NUM_ENVS, np.int64)
            for _ in range(WARM_STEPS):
                envs.step(actions)
            steps, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < TURN_S:
                envs.step(actions)
                steps += NUM_ENVS
            rate = steps / (time.perf_counter() - begin)
            envs.close()
        finally:
            ray.shutdown()
    return rate, ready_s


def row(cell: str, theirs: list[tuple[float, float]], ours: list[tuple[float, float]]) -> list[str]:
    """A row of the table."""
    (rates, ready_s), (full, full_ready_s) = np.array(theirs).T, np.array(ours).T
    ratio = paired_ratio(full, rates)
    return [
        cell,
        f"{np.median(rates):,.0f}",
        f"{np.median(full):,.0f}",
        ratio_text((ratio.value, ratio.low, ratio.high)),
        f"{np.median(ready_s):.1f} s",
        f"{np.median(full_ready_s):.1f} s",
    ]


if __name__ == "__main__":
    main()
