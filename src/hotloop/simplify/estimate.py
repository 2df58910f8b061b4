"""From blocks to effects: ratios of medians, with intervals from windows of complete rounds.

One row of the data is a round, a randomised complete block in which every arm ran once; one
column is an arm; a value is the time of an iteration, in ns, or NaN where the arm did not run.
Whatever is compared is taken from the rounds that hold all of it, so slow and fast moods of the
machine fall on both sides alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hotloop.benchmark.noise import (
    CONFIDENCE,
    WINDOWS,
    Interval,
    percentile_interval,
    resampled_windows,
)

RESAMPLES = 2_000
MIN_ROUNDS = 5


@dataclass
class Samples:
    """The measured times: `ns` is (rounds, arms)."""

    ns: np.ndarray
    arms: list[str]
    seed: int = 0
    _drawn: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict, repr=False)

    def rounds(self, arms: Sequence[str]) -> np.ndarray:
        """The rounds, by number, in which all of these arms ran."""
        columns: np.ndarray = np.array([self.arms.index(arm) for arm in arms])
        return np.flatnonzero(np.isfinite(self.ns[:, columns]).all(axis=1))

    def has(self, *arms: str) -> bool:
        """Whether all of these arms ran together in enough rounds for an interval."""
        return all(arm in self.arms for arm in arms) and len(self.rounds(arms)) >= MIN_ROUNDS

    def medians(self, arms: Sequence[str]) -> "Medians":
        """Medians of these arms over their common rounds, with bootstrap draws of all at once."""
        rounds = self.rounds(arms)
        values = self.ns[rounds][:, [self.arms.index(arm) for arm in arms]]
        index, windows = self._resampled(rounds)
        # One arm at a time keeps the resampled copy small: (resamples, rounds).
        draws = np.stack([np.median(values[index, arm], axis=1) for arm in range(len(arms))], 1)
        return Medians(list(arms), np.median(values, axis=0), draws, windows)

    def _resampled(self, rounds: np.ndarray) -> tuple[np.ndarray, int]:
        """Row numbers of each bootstrap sample, drawn as whole windows of rounds."""
        count = len(rounds)
        length = max(1, count // WINDOWS)
        windows = count // length
        key = (count,)
        if key not in self._drawn:
            drawn = resampled_windows(windows, RESAMPLES, np.random.default_rng(self.seed))
            # The few rounds before the first whole window are never left out of the value itself.
            first = count - windows * length
            rows = first + drawn[:, :, None] * length + np.arange(length)
            self._drawn[key] = rows.reshape(RESAMPLES, -1)
        return self._drawn[key], windows


@dataclass(frozen=True)
class Medians:
    """Medians of several arms (arms,) and their joint draws (resamples, arms), in ns."""

    arms: list[str]
    values: np.ndarray
    draws: np.ndarray
    windows: int

    def interval(self, value: float, draws: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
        """The interval of any statistic computed alike from `values` and from `draws`."""
        return percentile_interval(value, draws, self.windows, confidence)

    def time(self, arm: str) -> Interval:
        """The median time of one arm."""
        at = self.arms.index(arm)
        return self.interval(float(self.values[at]), self.draws[:, at])

    def difference(self, arm: str, other: str) -> Interval:
        """The time of one arm less that of another."""
        a, b = self.arms.index(arm), self.arms.index(other)
        return self.interval(
            float(self.values[a] - self.values[b]), self.draws[:, a] - self.draws[:, b]
        )

    def gain(self, arm: str, base: str, confidence: float = CONFIDENCE) -> Interval:
        """The share of the base's time that the arm saves: 1 − median(arm) / median(base)."""
        a, b = self.arms.index(arm), self.arms.index(base)
        return self.interval(
            float(1 - self.values[a] / self.values[b]),
            1 - self.draws[:, a] / self.draws[:, b],
            confidence,
        )

    def p_value(self, arm: str, base: str) -> float:
        """Two-sided bootstrap p-value of the two arms taking the same time."""
        a, b = self.arms.index(arm), self.arms.index(base)
        below = int((self.draws[:, a] <= self.draws[:, b]).sum())
        above = int((self.draws[:, a] >= self.draws[:, b]).sum())
        # Few windows make the draws too narrow, as in `percentile_interval`: the tail that the
        # interval would be cut at is the p-value's own scale.
        return min(1.0, 2 * (min(below, above) + 1) / (len(self.draws) + 1))


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


@dataclass(frozen=True)
class Slack:
    """T(d) = T0 + max(0, d − s): how long a stage can be held up before the loop notices."""

    slack_ns: Interval
    slope: float  # of the last stretch; 1 where every further delay is felt in full


def fit_slack(medians: Medians, base: str, delayed: Sequence[tuple[str, float]]) -> Slack:
    """Fit the slack from arms with known delays.

    delayed: (arm, delay in ns that really happened in an iteration), at least one.
    Least squares in s; with one delay that is s = d − (T(d) − T0), not below 0.
    """
    at = [medians.arms.index(arm) for arm, _ in delayed]
    base_at = medians.arms.index(base)
    delays = np.array([delay for _, delay in delayed])
    felt = medians.draws[:, at] - medians.draws[:, [base_at]]
    felt_value = medians.values[at] - medians.values[base_at]
    draws = _best_slack(delays, felt)
    value = float(_best_slack(delays, felt_value[None])[0])
    longest = int(delays.argmax())
    return Slack(medians.interval(value, draws), float(felt_value[longest] / delays[longest]))


def _best_slack(delays: np.ndarray, felt: np.ndarray) -> np.ndarray:
    """The s that fits best, for each row of felt delays (rows, delays)."""
    grid = np.linspace(0, float(delays.max()), 201)
    model = np.maximum(0, delays[None, :] - grid[:, None])
    error = ((felt[:, None, :] - model[None]) ** 2).sum(axis=2)
    best: np.ndarray = grid[error.argmin(axis=1)]
    return best
