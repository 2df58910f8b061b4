"""What a comparison measures: one row for each block of either side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

COLUMNS = (
    "launch",
    "round",
    "side",
    "iterations",
    "units",
    "wall_ns",
    "cpu_ns",
    "process_cpu_ns",
    "stolen_ns",
    "switches",
    "waits",
    "pressure_us",
)


@dataclass
class Record:
    """The blocks of a comparison, growing while it runs.

    rows: one a block, by COLUMNS; side is 0 for A and 1 for B. ended_s: when each launch ended,
    in seconds since the start. last_look: whether the budget was used up.
    """

    unit: str = "iterations"
    budget_s: float = 0.0
    rows: list[tuple[float, ...]] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    last_look: bool = False

    def add(self, launch: int, number: int, side: int, block: Mapping[str, float]) -> None:
        """Add a block, as a side has answered."""
        self.rows.append((launch, number, side, *(block[name] for name in COLUMNS[3:])))

    @property
    def shares(self) -> np.ndarray:
        """The share of the budget that was used after each launch, 1 at the last: (launches,)."""
        shares = np.minimum(np.array(self.ended_s) / self.budget_s, 1.0)
        if self.last_look and len(shares):
            shares[-1] = 1.0
        return shares

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns: (blocks,) each; and when each launch ended: (launches,)."""
        table = np.array(self.rows, np.float64).reshape(-1, len(COLUMNS))
        columns = {name: table[:, number] for number, name in enumerate(COLUMNS)}
        return columns | {"ended_s": np.array(self.ended_s)}

    def facts(self) -> dict[str, Any]:
        """Everything that is not an array, for a run file."""
        return {"unit": self.unit, "budget_s": self.budget_s, "last_look": self.last_look}
