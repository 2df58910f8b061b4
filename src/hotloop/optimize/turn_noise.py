"""How much turns of one choice differ, which says how many of them a decision needs."""

import math

import numpy as np

# Two turns that are alike by chance must not decide a whole search.
USUAL_DEGREES = 4


class TurnNoise:
    """How much turns of one choice differ: the spread of the logarithm of a rate, pooled.

    What a round has in common is taken out wherever it holds two choices.
    """

    def __init__(self, usual: float = 0.0) -> None:
        """usual: the spread that is assumed before any turn; it counts as `USUAL_DEGREES` turns."""
        self._squares, self._degrees = USUAL_DEGREES * usual**2, USUAL_DEGREES if usual else 0

    def start(self, rates: np.ndarray) -> None:
        """Count the turns of one choice alone: (rounds,)."""
        logs = np.log(rates)
        self._squares += float(((logs - logs.mean()) ** 2).sum())
        self._degrees += len(logs) - 1

    def add(self, rates: np.ndarray) -> None:
        """Count a race: (rounds, choices)."""
        squares, degrees = _residuals(rates)
        self._squares += squares
        self._degrees += degrees

    @property
    def of_turn(self) -> float:
        """The standard deviation of the logarithm of one turn's rate."""
        return math.sqrt(self._squares / self._degrees)

    def of_difference(self, rates: np.ndarray) -> float:
        """The standard error of the logarithm of a ratio of two that ran in all of its rounds."""
        squares, degrees = _residuals(rates)
        spread = math.sqrt((self._squares + squares) / (self._degrees + degrees))
        return spread * math.sqrt(2 / len(rates))


def _residuals(rates: np.ndarray) -> tuple[float, int]:
    """The sum of squares of logarithms without the means of choices and rounds, and its degrees."""
    logs = np.log(rates)
    squares, degrees = 0.0, 0
    for k in range(1, logs.shape[1]):
        difference = logs[:, k] - logs[:, 0]
        difference = difference[np.isfinite(difference)]
        if len(difference) > 1:
            # The difference of two turns has twice the variance of one.
            squares += float(((difference - difference.mean()) ** 2).sum()) / 2
            degrees += len(difference) - 1
    return squares, degrees
