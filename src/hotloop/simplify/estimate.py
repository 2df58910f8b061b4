"""From blocks to effects: ratios of medians, with intervals from windows of complete rounds.

One row of the data is a round, a randomised complete block in which every arm ran once; one
column is an arm; a value is the time of an iteration, in ns, or NaN where the arm did not run.
Whatever is compared is taken from the rounds that hold all of it, so slow and fast moods of the
machine fall on both sides alike.
"""

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotloop.benchmark.noise import (
    CONFIDENCE,
    Interval,
    percentile_interval,
    resampled_rows,
)

RESAMPLES = 2_000
MIN_ROUNDS = 5
# With fewer arms a round's effect would hold too much of each arm's own noise: at four, intervals
# cover 90% (simulated), at eleven 94%.
LEAST_ARMS = 8


@dataclass
class Samples:
    """The measured times: `ns` is (rounds, arms)."""

    ns: np.ndarray
    arms: list[str]
    seed: int = 0

    def __post_init__(self) -> None:
        self._level = without_round_effects(self.ns)
        # A k-th of an arm's own noise goes with the round's effect, and is missing in the draws.
        arms = self.ns.shape[1]
        self._widened = math.sqrt(arms / (arms - 1)) if arms >= LEAST_ARMS else 1.0

    _cache: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)

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
        columns = [self._median(rounds, arm) for arm in arms]
        return Medians(
            list(arms),
            np.array([value for value, _ in columns]),
            np.stack([draws for _, draws in columns], axis=1),
        )

    def _median(self, rounds: np.ndarray, arm: str) -> tuple[float, np.ndarray]:
        """One arm's median over these rounds, and its draws; kept, for most are asked for often."""
        key = (rounds.tobytes(), arm)
        if key not in self._cache:
            values = self._level[rounds, self.arms.index(arm)]
            value = float(smooth_median(values))
            draws = smooth_median(values[self._resampled(len(rounds))])
            self._cache[key] = (value, value + (draws - value) * self._widened)
        found: tuple[float, np.ndarray] = self._cache[key]
        return found

    def _resampled(self, count: int) -> np.ndarray:
        """Row numbers of each bootstrap sample, drawn as whole windows of rounds."""
        key = (count,)
        if key not in self._cache:
            # The rows that are never drawn count in the value all the same.
            rng = np.random.default_rng(self.seed)
            self._cache[key] = resampled_rows(count, RESAMPLES, rng)
        rows_of: np.ndarray = self._cache[key]
        return rows_of


@dataclass(frozen=True)
class Medians:
    """Medians of several arms (arms,) and their joint draws (resamples, arms), in ns."""

    arms: list[str]
    values: np.ndarray
    draws: np.ndarray

    def interval(self, value: float, draws: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
        """The interval of any statistic computed alike from `values` and from `draws`."""
        return percentile_interval(value, draws, confidence=confidence)

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
        return min(1.0, 2 * (min(below, above) + 1) / (len(self.draws) + 1))


def without_round_effects(ns: np.ndarray) -> np.ndarray:
    """Times (rounds, arms) with what is common to all arms of a round taken out.

    A round is a block in the sense of the design of experiments: a machine that is slow for a
    second is slow for all arms of that second. With residuals log t(r, a) − median of log t(·, a),
    the effect of round r is one step of Huber's estimate of their centre: the median of the round,
    plus the mean of the distances from it, cut at 1.5 times their usual size. (The median alone
    would make one arm of every round fit exactly, and intervals too short.) Effects are centred,
    so that the typical round keeps its times. Source: Huber 1964.
    """
    if ns.shape[1] < LEAST_ARMS:
        return ns
    with warnings.catch_warnings():  # an arm or a round without any time stays as it is
        warnings.simplefilter("ignore", RuntimeWarning)
        log_ns = np.log(ns)
        residual = log_ns - np.nanmedian(log_ns, axis=0)
        centre = np.nanmedian(residual, axis=1, keepdims=True)
        distance = residual - centre
        limit = 1.5 * 1.4826 * np.nanmedian(np.abs(distance))
        effect = centre[:, 0] + np.nanmean(np.clip(distance, -limit, limit), axis=1)
        effect[np.isfinite(ns).sum(axis=1) < LEAST_ARMS] = np.nan
        effect -= np.nanmedian(effect)
    level: np.ndarray = ns * np.exp(-np.nan_to_num(effect))[:, None]
    return level


def smooth_median(values: np.ndarray) -> np.ndarray:
    """The median along the last axis, as a weighted mean of the order statistics (n,) in it.

    The weight of the i-th is the probability that Beta((n + 1)/2, (n + 1)/2) falls into
    [(i − 1)/n, i/n]. Bursts weigh as little as in the plain median; but the plain one jumps from
    one value to the next, and its bootstrap intervals cover 98% where they promise 95.
    Source: Harrell and Davis 1982.
    """
    result: np.ndarray = np.sort(values, axis=-1) @ _median_weights(values.shape[-1])
    return result


@functools.lru_cache(maxsize=256)
def _median_weights(count: int) -> np.ndarray:
    # The density is integrated by midpoints: 40 an interval are exact to six digits.
    x = (np.arange(40 * count) + 0.5) / (40 * count)
    power = (count + 1) / 2 - 1
    log_density = power * (np.log(x) + np.log1p(-x))
    density = np.exp(log_density - log_density.max())
    weights: np.ndarray = (density / density.sum()).reshape(count, 40).sum(axis=1)
    return weights


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
