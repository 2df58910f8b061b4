"""Looking at a comparison while it goes on, without being fooled more often than was agreed.

Who looks after every launch and stops when the result pleases is wrong far more often than one
time in twenty. So the probability of being wrong is spent bit by bit: by the time a share t of the
budget is used, α·ln(1 + (e − 1)·t) of it may be spent (Lan and DeMets 1983, in the form of
Pocock's constant boundary). What a look may spend fixes how far its estimate must lie from zero,
given that no look before it did: a one-dimensional integral for each look (Armitage, McPherson and
Rowe 1969). The error of the estimate is itself estimated, from few launches at first: the same
level is applied to Student's t (Jennison and Turnbull 2000, 11.5).
"""

import math

import numpy as np

_STEP = 0.04  # of the grid, in standard errors
_REACH = 8.0  # the normal distribution beyond is 1e-15


def spent(alpha: float, share: float) -> float:
    """The probability that may be spent when this share of the budget, 0 to 1, is used."""
    return alpha * math.log1p((math.e - 1) * min(max(share, 0.0), 1.0))


class Spending:
    """One side of a sequential test: after each look, the level at which it may stop.

    alpha: the probability that any look stops although nothing is there.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self._spent = 0.0
        self._information = 0.0
        # The density of √information · z before the next look, on `_grid`, where none has stopped.
        self._grid = np.zeros(1)
        self._density = np.ones(1)

    def level(self, information: float, share: float) -> float:
        """The one-sided level of the next look.

        information: how much has been measured, in any unit, more than at the look before.
        share: of the budget that is used then, 0 to 1.
        """
        allowed = spent(self.alpha, share) - self._spent
        root = math.sqrt(information)
        grid = np.arange(-_REACH, _REACH + _STEP, _STEP) * root
        density = self._moved(grid, information - self._information)
        width = _STEP * root
        # From the right end: where the probability of being beyond reaches what may be spent.
        beyond = np.cumsum(density[::-1])[::-1] * width
        over = beyond > allowed
        last = int(over.nonzero()[0][-1]) if over.any() else 0
        boundary = grid[min(last + 1, len(grid) - 1)] / root
        inside = grid / root < boundary
        self._grid, self._density = grid[inside], density[inside]
        self._spent += float(density[~inside].sum() * width)
        self._information = information
        return 0.5 * math.erfc(boundary / math.sqrt(2))

    def _moved(self, grid: np.ndarray, variance: float) -> np.ndarray:
        """The density after so much more information, on a new grid."""
        away = grid[:, None] - self._grid[None, :]
        kernel = np.exp(-0.5 * away * away / variance) / math.sqrt(2 * math.pi * variance)
        width = self._grid[1] - self._grid[0] if len(self._grid) > 1 else 1.0
        moved: np.ndarray = kernel @ self._density * width
        return moved
