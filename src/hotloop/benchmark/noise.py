"""How sure a number is: intervals by resampling windows of time.

Neighbouring iterations share the machine's mood, so single iterations are not independent. What
is resampled are windows of consecutive ones, long enough to hold a mood each.
"""

import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000
WINDOWS = 40
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with the range that covers the truth in 95 of 100 such measurements."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends."""
        return (self.high - self.low) / 2

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high

    def scaled(self, factor: float) -> "Interval":
        """The interval of the value times a known factor."""
        ends = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, *ends)

    def at_most(self, limit: float) -> "Interval":
        """The interval of a value that cannot be larger than `limit`."""
        return Interval(min(self.value, limit), min(self.low, limit), min(self.high, limit))


def window_of(count: int, windows: int = WINDOWS) -> np.ndarray:
    """The window number of each of `count` consecutive samples: (count,), int64."""
    return np.arange(count) * min(windows, count) // max(count, 1)


def resampled_windows(windows: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Window numbers drawn with replacement: (resamples, windows)."""
    return rng.integers(0, windows, size=(resamples, windows))


def resampled_rows(count: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Row numbers of bootstrap samples of `count` rows, drawn as whole windows: (resamples, n).

    Windows are equally long; the few rows before the first whole one are never drawn.
    """
    length = max(1, count // WINDOWS)
    windows = count // length
    drawn = resampled_windows(windows, resamples, rng)
    rows: np.ndarray = count - windows * length + drawn[:, :, None] * length + np.arange(length)
    return rows.reshape(resamples, -1)


def percentile_interval(
    value: float, draws: np.ndarray, *, windows: int | None = None, confidence: float = CONFIDENCE
) -> Interval:
    """The interval of a statistic from its bootstrap draws.

    windows: for means and rates, how many windows were resampled. With few of them the plain
    percentile interval is too short, because resampling underestimates the spread by √((n − 1)/n)
    and takes it for known; the quantiles are moved out as far as Student's t lies beyond the
    normal distribution. Intervals of medians come out wide enough without it.
    """
    tail = (1 - confidence) / 2
    if windows is not None:
        tail = _outer_tail(tail, windows)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def rate_interval(
    units: np.ndarray, duration_ns: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Units per second over iterations with these units and durations, both (n,).

    The value is the ratio of the sums; the interval resamples windows of iterations.
    """
    if len(units) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    window = window_of(len(units))
    count = int(window[-1]) + 1
    units_by_window = np.bincount(window, units, count)
    seconds_by_window = np.bincount(window, duration_ns * 1e-9, count)
    value = float(units.sum() / (duration_ns.sum() * 1e-9))
    if count < 2:
        return Interval(value, float("nan"), float("nan"))
    drawn = resampled_windows(count, resamples, np.random.default_rng(seed))
    draws = units_by_window[drawn].sum(axis=1) / seconds_by_window[drawn].sum(axis=1)
    return percentile_interval(value, draws, windows=count)


def mean_interval(values: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of samples (n,) with an interval from resampled windows."""
    return rate_interval(values, np.full(len(values), 1e9), resamples=resamples, seed=seed)


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


def _outer_tail(tail: float, windows: int) -> float:
    """The tail of the bootstrap distribution that stands for `tail` with so few windows."""
    if windows < 3:
        return 0.0
    z = _normal_quantile(1 - tail)
    degrees = windows - 1
    # Cornish-Fisher: Student's quantile from the normal one.
    t = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    return 1 - _normal_cdf(t * np.sqrt(windows / degrees))


def _normal_cdf(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _normal_quantile(p: float) -> float:
    return statistics.NormalDist().inv_cdf(p)
