"""Variants of one thing that take turns, so that what drifts on a machine is in all of them alike.

How fast a shared machine is changes from second to second. What the turns of one round show of two
variants was measured within the same seconds, so their ratio within rounds is what counts.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hotloop.loop.figures import CONFIDENCE, Interval, paired_ratio

Turn = Callable[[], float]
"""Works for a moment. Returns units a second; not a number where the variant failed."""


class Race:
    """Variants in rounds; in a round each that still runs has one turn, in random order.

    turns: of each variant. running: the variants that still run; one whose turn is not a number
    leaves.
    """

    def __init__(self, turns: Sequence[Turn], seed: int = 0) -> None:
        self.running = list(range(len(turns)))
        self._turns = list(turns)
        self._order = random.Random(seed)
        self._rounds: list[list[float]] = []

    def add(self, turn: Turn) -> int:
        """Let one more variant take turns, from the next round on. Returns its number."""
        self._turns.append(turn)
        self.running.append(len(self._turns) - 1)
        return self.running[-1]

    def round(self) -> None:
        """One turn of each variant that still runs."""
        rates = [float("nan")] * len(self._turns)
        self._rounds.append(rates)  # what was measured stays when a turn raises
        for racer in self._order.sample(self.running, len(self.running)):
            rates[racer] = self._turns[racer]()
        self.running = [racer for racer in self.running if rates[racer] == rates[racer]]

    def drop(self, racer: int) -> None:
        """Let a variant run no more."""
        self.running.remove(racer)

    @property
    def rates(self) -> NDArray[np.float64]:
        """Units a second, (rounds, variants); not a number where one did not run."""
        width = len(self._turns)
        rows = [row + [float("nan")] * (width - len(row)) for row in self._rounds]
        return np.array(rows, np.float64).reshape(len(rows), width)

    def ratio(self, racer: int, other: int, *, confidence: float = CONFIDENCE) -> Interval:
        """How many times faster one is than another, over the rounds that hold both."""
        return ratio_of(self.rates, racer, other, confidence=confidence)


def ratio_of(
    rates: NDArray[np.float64], racer: int, other: int, *, confidence: float = CONFIDENCE
) -> Interval:
    """How many times faster one variant is than another, over the rounds that hold both.

    rates: (rounds, variants). Without such a round nothing is a number.
    """
    both = rates[np.isfinite(rates[:, [racer, other]]).all(axis=1)]
    if not len(both):
        return Interval(float("nan"), float("nan"), float("nan"))
    return paired_ratio(both[:, racer], both[:, other], confidence=confidence)


def fastest(rates: NDArray[np.float64]) -> int:
    """The variant with the highest mean rate; rates: (rounds, variants)."""
    return int(rates.mean(axis=0).argmax())


def is_settled(rates: NDArray[np.float64]) -> bool:
    """Whether one variant is proved faster than every other; rates: (rounds, variants)."""
    best = fastest(rates)
    others = [variant for variant in range(rates.shape[1]) if variant != best]
    return all(ratio_of(rates, best, other).low > 1 for other in others)


def as_fast(
    rates: NDArray[np.float64], worth: float = 0.0, *, confidence: float = CONFIDENCE
) -> list[int]:
    """The variants that may be taken for the fastest: no other is proved faster by `worth`.

    rates: (rounds, variants). worth: the gain, as a share, below which a faster one does not
    matter. Among them the caller prefers what costs least otherwise, such as the fewest processes.
    """
    best = fastest(rates)

    def is_slower(variant: int) -> bool:
        ratio = ratio_of(rates, best, variant, confidence=confidence)
        return ratio.low > 1 and ratio.value >= 1 + worth

    return [k for k in range(rates.shape[1]) if k == best or not is_slower(k)]
