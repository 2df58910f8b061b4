"""Mean times of arms, and what is worked out from them: each with an interval.

Errors come from leaving out one round after the other, and from what moves all rounds together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hotloop.loop.figures import (
    CONFIDENCE,
    Interval,
    jackknife_error,
    student_interval,
    student_tail,
)

DRAWS = 4_000


@dataclass(frozen=True)
class Means:
    """Mean times of several arms (arms,), in ns a unit, and the same without each round.

    replicates: (rounds, arms). common: (causes, arms) errors that the rounds do not show, each
    of one cause that moves all arms together.
    """

    arms: list[str]
    values: np.ndarray
    replicates: np.ndarray
    degrees: int
    common: np.ndarray
    seed: int = 0

    @cached_property
    def draws(self) -> np.ndarray:
        """Joint draws (draws, arms) of the mean times: multivariate t, from the jackknife."""
        rng = np.random.default_rng(self.seed)
        rounds = len(self.replicates)
        away = self.replicates - self.replicates.mean(axis=0)
        normal = rng.standard_normal((DRAWS, rounds))
        tails = np.sqrt(self.degrees / rng.chisquare(self.degrees, (DRAWS, 1)))
        spread = math.sqrt((rounds - 1) / rounds) * (normal @ away)
        common = rng.standard_normal((DRAWS, len(self.common))) @ self.common
        drawn = self.values + tails * (spread + common)
        positive: np.ndarray = np.maximum(drawn, 0.0)
        return positive

    def log_ratio(self, arm: str, base: str) -> np.ndarray:
        """log T(arm) / T(base) without each round."""
        a, b = self.arms.index(arm), self.arms.index(base)
        tiny = 1e-300
        ratio: np.ndarray = np.maximum(self.replicates[:, a], tiny) / np.maximum(
            self.replicates[:, b], tiny
        )
        logarithm: np.ndarray = np.log(ratio)
        return logarithm

    def interval(self, value: float, draws: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
        """The interval of any statistic computed alike from `values` and from `draws`."""
        tail = (1 - confidence) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return Interval(value, min(value, float(low)), max(value, float(high)))

    def time(self, arm: str) -> Interval:
        """The mean time of one arm."""
        at = self.arms.index(arm)
        error = math.hypot(jackknife_error(self.replicates[:, at]), *self.common[:, at])
        return self.around(float(self.values[at]), error, CONFIDENCE)

    def difference(self, arm: str, other: str) -> Interval:
        """The time of one arm less that of another."""
        return self.statistic(lambda time: time(arm) - time(other))

    def statistic(self, of: Callable[[Callable[[str], np.ndarray]], np.ndarray]) -> Interval:
        """A smooth function of the arms' times, with its jackknife interval.

        of: is given a function from an arm's name to its times, and returns as many values.
        """
        value = float(of(lambda arm: self.values[[self.arms.index(arm)]])[0])
        left = of(lambda arm: self.replicates[:, self.arms.index(arm)])
        moved = of(lambda arm: (self.values + self.common)[:, self.arms.index(arm)])
        return self.around(value, math.hypot(jackknife_error(left), *(moved - value)), CONFIDENCE)

    def gain(self, arm: str, base: str, confidence: float = CONFIDENCE) -> Interval:
        """The share of the base's time that the arm saves: 1 − T(arm) / T(base)."""
        value, error = self._gain(arm, base)
        return self.around(value, error, confidence)

    def p_value(self, arm: str, base: str) -> float:
        """Two-sided p-value of the two arms taking the same time."""
        value, error = self._gain(arm, base)
        if error == 0:
            return 1.0 if value == 0 else 0.0
        return min(1.0, 2 * student_tail(abs(value) / error, self.degrees))

    def _gain(self, arm: str, base: str) -> tuple[float, float]:
        a, b = self.arms.index(arm), self.arms.index(base)
        ratio = float(self.values[a] / self.values[b])
        left = self.replicates[:, a] / np.maximum(self.replicates[:, b], 1e-300)
        # What moves both times together moves their ratio by what is left of it.
        common = (self.common[:, a] - ratio * self.common[:, b]) / float(self.values[b])
        return 1 - ratio, math.hypot(jackknife_error(left), *common)

    def around(self, value: float, error: float, confidence: float = CONFIDENCE) -> Interval:
        """The interval of a value with this standard error."""
        return student_interval(value, error, self.degrees, confidence=confidence)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment: adjusted p-values in the given order.

    The smallest is multiplied by m, the next by m − 1, and so on, never falling.
    Source: Holm 1979.
    """
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, k in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = running
    return adjusted
