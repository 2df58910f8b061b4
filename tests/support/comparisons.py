"""Records of comparisons whose ratios are chosen."""

import math
from collections.abc import Sequence

from hotloop.repeat.record import COLUMNS, Record

UNITS = 100


def record_of(
    slowdowns: Sequence[float], *, launch_s: float = 1.0, budget_s: float = 100.0
) -> Record:
    """A record with one launch for each slowdown of B, as a share of A's time."""
    record = Record(unit="calls", budget_s=budget_s)
    for launch, slowdown in enumerate(slowdowns):
        for side, wall_s in enumerate((1.0, 1.0 + slowdown)):
            block = dict.fromkeys(COLUMNS[3:], 0.0)
            block |= {"iterations": UNITS, "units": UNITS, "wall_ns": wall_s * 1e9}
            record.add(launch, 0, side, block | {"cpu_ns": wall_s * 1e9})
        record.ended_s.append((launch + 1) * launch_s)
    return record


def about(slowdown: float, spread: float, launches: int) -> list[float]:
    """Slowdowns of so many launches, on both sides of a value in turn."""
    return [
        math.expm1(math.log1p(slowdown) + spread * (-1) ** launch) for launch in range(launches)
    ]
