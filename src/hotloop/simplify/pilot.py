"""How long a block must be: what is left in the queues when the arm changes.

In a loop with queues the first iterations of a block still eat what the arm before had produced.
The pilot switches back and forth between arms without draining and looks at the durations by
their position in the block.
"""

from dataclasses import dataclass

import numpy as np

from hotloop.simplify.arms import BASELINE


@dataclass(frozen=True)
class Pilot:
    """What a switch of arms does to the iterations after it."""

    transient: int  # iterations until the time of an iteration is that of the new arm
    moved: float  # how much a gain differs between the halves of what comes after
    carry_over: float  # how much it would be off if nothing were drained


def pilot_of(times: dict[tuple[str, str], np.ndarray]) -> Pilot:
    """Read the pilot's blocks: (arm before, arm) to durations (repeats, iterations)."""
    medians = {pair: np.median(rows, axis=0) for pair, rows in times.items()}
    transient = max(_transient(row) for row in medians.values())
    base = np.median([row for (_, arm), row in medians.items() if arm == BASELINE], axis=0)
    length = len(base)
    middle = transient + (length - transient) // 2
    moved, carried = 0.0, 0.0
    for (_, arm), row in medians.items():
        if arm == BASELINE or middle >= length - 1:
            continue
        first = 1 - row[transient:middle].mean() / base[transient:middle].mean()
        second = 1 - row[middle:].mean() / base[middle:].mean()
        moved = max(moved, abs(first - second))
        carried = max(carried, abs(1 - row.mean() / base.mean() - second))
    return Pilot(transient, float(moved), float(carried))


def _transient(row: np.ndarray) -> int:
    """Leading iterations whose time is not that of the second half."""
    late = row[len(row) // 2 :]
    settled = float(np.median(late))
    spread = 1.4826 * float(np.median(np.abs(late - settled)))
    off = np.abs(row[: len(row) // 2] - settled) > max(0.15 * settled, 4 * spread)
    for end in range(len(off), 0, -1):
        if off[end - 1] and off[:end].mean() >= 0.5:
            return end
    return 0
