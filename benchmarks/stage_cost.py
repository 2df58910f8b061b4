"""What does a stage cost a call, when nothing is measured and when it is timed?

The bare function, the idle stage and the timed stage take turns in short batches, in one process;
the cost is the difference to the bare function in the same turn.

    python benchmarks/stage_cost.py --markdown docs/benchmarks/stage_cost.md
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from hotloop.benchmark.noise import Interval, percentile_interval, smooth_median
from hotloop.loop import Arm, Board, stage
from hotloop.loop.arm import OFF, REAL
from hotloop.loop.board import process_board
from tables import table, write_page

TURNS = 400
CALLS = 2_000
TARGETS_NS = {"idle": 150, "timing": 500}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    board = process_board()

    def bare(x: int) -> int:
        return x

    staged = stage("measured", bare)
    rows = []
    for name, mode in (("idle", OFF), ("timing", REAL)):
        board.set(Arm(name, rest=mode))
        cost = measure(board, bare, staged)
        target = TARGETS_NS[name]
        verdict = "reached" if cost.high <= target else "missed"
        rows.append(
            [name, f"{cost.value:.0f} [{cost.low:.0f}, {cost.high:.0f}]", str(target), verdict]
        )
    board.set(Arm("off", rest=OFF))
    parts = [
        "Nanoseconds that a stage adds to a call of a function with one argument: median over "
        f"{TURNS} turns of {CALLS} calls, with its 95% interval. A log is emptied between turns, "
        "as between the blocks of a measurement.",
        table(["stage", "ns a call", "target", ""], rows),
    ]
    write_page(chosen.markdown, "What a stage costs", parts, "benchmarks/stage_cost.py")


def measure(board: Board, bare: Callable[[int], int], staged: Callable[[int], int]) -> Interval:
    differences = []
    for _ in range(TURNS):
        board.drain_events()
        differences.append((batch(staged) - batch(bare)) / CALLS)
    values = np.array(differences)
    drawn = np.random.default_rng(0).integers(0, TURNS, (2_000, TURNS))
    return percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))


def batch(function: Callable[[int], int]) -> int:
    start = perf_counter_ns()
    for k in range(CALLS):
        function(k)
    return perf_counter_ns() - start


if __name__ == "__main__":
    main()
