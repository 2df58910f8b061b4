"""The steps of the episodes of a group of envs, and which are at their time limit.

Nearly always all envs step together and none is at its limit: then a step of all is one addition
and one comparison of plain numbers.
"""

import numpy as np
from numpy.typing import NDArray

NO_LIMIT = 2**62


class TimeLimits:
    """Step counts of `num` envs, and their limits."""

    def __init__(self, num: int) -> None:
        self._steps = np.zeros(num, np.int64)  # less the `_unseen`
        self._limits = np.full(num, NO_LIMIT)
        self._unseen = 0  # steps of all since `_steps` was brought up to date
        self._safe = 0  # so many unseen steps bring no env to its limit

    def limit(self, row: int, limit: int) -> None:
        """Let the episodes of an env end at `limit` steps."""
        self._limits[row] = limit
        self._safe = 0

    def begin(self, row: int, steps: int = 0) -> None:
        """Set the steps of an env's episode: 0 where one begins."""
        self._steps[row] = steps - self._unseen
        self._safe = min(self._safe, int(self._limits[row]) - steps + self._unseen - 1)

    def step_all(self) -> NDArray[np.bool_] | None:
        """Count a step of every env; returns which are at their limit, None for none."""
        self._unseen += 1
        if self._unseen <= self._safe:
            return None
        steps = self.steps()
        over: NDArray[np.bool_] = steps >= self._limits
        left = (self._limits - steps)[~over]
        self._safe = int(left.min()) - 1 if len(left) else 0
        return over if over.any() else None

    def step_one(self, row: int) -> bool:
        """Count a step of one env; returns whether it is at its limit."""
        steps = int(self._steps[row]) + self._unseen + 1
        self.begin(row, steps)
        return bool(steps >= self._limits[row])

    def steps(self) -> NDArray[np.int64]:
        """The steps of every env's episode."""
        self._steps += self._unseen
        self._safe -= self._unseen
        self._unseen = 0
        return self._steps
