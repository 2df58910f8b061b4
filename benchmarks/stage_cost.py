"""What does a stage cost a call, when nothing is measured and when it is timed?

The bare function, the idle stage, the timed stage and the cheapest wrapper that could be switched
at all (a closure that checks one byte) take turns in short batches, in one process; the cost is the
difference to the bare function in the same turn.

    python benchmarks/stage_cost.py --markdown docs/benchmarks/stage_cost.md
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from hotloop.loop import Arm, SharedControl, stage
from hotloop.loop.arm import OFF, REAL
from hotloop.loop.control import process_control
from hotloop.loop.figures import Interval
from tables import median_interval, table, write_page

TURNS = 400
CALLS = 2_000
IDLE_RATIO = 1.3
TIMING_NS = 500


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    control = process_control()

    def bare(x: int) -> int:
        return x

    staged = stage("measured", bare)
    closure = checked(bare, memoryview(bytearray(256)), 3)
    control.set(Arm("idle", rest=OFF))
    cheapest, idle = measure(control, bare, closure), measure(control, bare, staged)
    ratio = interleaved_ratio(bare, staged, closure)
    control.set(Arm("timing", rest=REAL))
    timing = measure(control, bare, staged)
    control.set(Arm("off", rest=OFF))
    rows = [
        ["a closure that checks a byte", text(cheapest), "", ""],
        [
            "idle",
            text(idle),
            f"{IDLE_RATIO} × the closure",
            f"{text(ratio, 2)} ×: {said(ratio, IDLE_RATIO)}",
        ],
        ["timing", text(timing), str(TIMING_NS), said(timing, TIMING_NS)],
    ]
    parts = [
        "Nanoseconds that a stage adds to a call of a function with one argument: median over "
        f"{TURNS} turns of {CALLS} calls, with its 95% interval. A log is emptied between turns, "
        "as between the blocks of a measurement.",
        table(["what is around it", "ns a call", "target", ""], rows),
    ]
    write_page(chosen.markdown, "What a stage costs", parts, "benchmarks/stage_cost.py")


def checked(function: Callable[..., Any], modes: memoryview, index: int) -> Callable[..., Any]:
    """The least that a wrapper must do to be switched on from outside."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if modes[index]:
            return None
        return function(*args, **kwargs)

    return wrapped


def interleaved_ratio(
    bare: Callable[[int], int], staged: Callable[[int], int], closure: Callable[[int], int]
) -> Interval:
    """What the idle stage adds, over what the closure adds, turn by turn."""
    turns = np.array([[batch(each) for each in (bare, staged, closure)] for _ in range(TURNS)])
    ratios = (turns[:, 1] - turns[:, 0]) / (turns[:, 2] - turns[:, 0])
    return median_interval(ratios)


def text(of: Interval, digits: int = 0) -> str:
    return f"{of.value:.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}]"


def said(of: Interval, target: float) -> str:
    return "reached" if of.high <= target else "missed"


def measure(
    control: SharedControl, bare: Callable[[int], int], staged: Callable[[int], int]
) -> Interval:
    differences = []
    for _ in range(TURNS):
        control.drain_events()
        differences.append((batch(staged) - batch(bare)) / CALLS)
    return median_interval(np.array(differences))


def batch(function: Callable[[int], int]) -> int:
    start = perf_counter_ns()
    for k in range(CALLS):
        function(k)
    return perf_counter_ns() - start


if __name__ == "__main__":
    main()
