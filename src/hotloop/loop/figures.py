"""How sure a number is: intervals of one measurement, and of two that were taken in turn.

Throughput drifts over seconds, so neighbouring iterations are not independent. An interval of one
measurement resamples windows of consecutive iterations, long enough to hold such a drift. Two
variants are compared within rounds that hold both: the drift is in both and drops out of their
ratio, whose interval comes from leaving out one round after the other (jackknife, Student's t).
"""

import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000
WINDOWS = 40
CONFIDENCE = 0.95
MAX_LOG = 500.0  # beyond it a number has no place in a float
MAX_DEGREES = 400  # beyond it Student's t differs from the normal distribution in the third digit


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

    def above_zero(self) -> "Interval":
        """The interval of a positive value, as wide as this one in logarithms.

        v·exp(±r/v) in place of v ± r, which is the same where r is small. For ratios that are
        shown: from few and noisy rounds a time would seem to be negative.
        """
        if not (self.value > 0 and math.isfinite(self.half_width)):
            return self
        factor = math.exp(min(self.half_width / self.value, MAX_LOG))
        return Interval(self.value, self.value / factor, self.value * factor)


@dataclass(frozen=True)
class Unknown:
    """A number that was not measured, and why."""

    why: str


Figure = Interval | float | Unknown


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


def paired_ratio(mine: np.ndarray, base: np.ndarray, *, confidence: float = CONFIDENCE) -> Interval:
    """The ratio of two sums over the same rounds, with its jackknife interval.

    mine, base: what each round measured of either variant, (rounds,): times for the same work, or
    work in the same time. Every round holds both variants, one soon after the other. With one round
    the interval has no ends.
    """
    value = float(mine.sum() / base.sum())
    if len(mine) < 2:
        return Interval(value, float("nan"), float("nan"))
    left_out = (mine.sum() - mine) / (base.sum() - base)
    return student_interval(value, jackknife_error(left_out), len(mine) - 1, confidence=confidence)


def jackknife_error(left_out: np.ndarray) -> float:
    """The standard error of a statistic, from its values without each round (rounds,).

    √((n − 1)/n · Σ(xᵢ − x̄)²). Infinite for a single round, and where it is no number.
    """
    count = len(left_out)
    if count < 2:
        return float("inf")
    # Ratios to next to nothing, as to a stage that takes no time, have squares beyond all numbers.
    with np.errstate(over="ignore", invalid="ignore"):
        away = left_out - left_out.mean()
        squares = float(away @ away)
    return math.sqrt((count - 1) / count * squares) if math.isfinite(squares) else float("inf")


def student_interval(
    value: float, error: float, degrees: int, *, confidence: float = CONFIDENCE
) -> Interval:
    """The interval of a value with this standard error and so many degrees of freedom."""
    if not math.isfinite(error):
        return Interval(value, -math.inf, math.inf)
    reach = student_quantile(1 - (1 - confidence) / 2, degrees) * error
    return Interval(value, value - reach, value + reach)


def student_tail(t: float, degrees: int) -> float:
    """P(T > t) for t ≥ 0 and a whole number of degrees of freedom, at least 1.

    A finite series in θ = atan(t/√ν): 1 − 2P is, for odd ν, 2/π·(θ + sin θ·(cos θ +
    2/3·cos³θ + …)), for even ν, sin θ·(1 + 1/2·cos²θ + 3/8·cos⁴θ + …).
    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """
    degrees = min(degrees, MAX_DEGREES)
    theta = math.atan(t / math.sqrt(degrees))
    sine, square = math.sin(theta), math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= square * k / (k + 1)
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return min(0.5, max(0.0, 0.5 - 0.5 * inside))


@functools.lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: int) -> float:
    """The t with P(T ≤ t) = probability, for a probability of at least one half."""
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if student_tail(middle, degrees) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def median_interval(values: np.ndarray) -> Interval:
    """The median of values (n,), with the interval that it has of normal ones with their spread.

    The standard error of a median is √(π/2) times that of a mean.
    """
    error = math.sqrt(math.pi / 2) * median_spread(values) / math.sqrt(len(values))
    return student_interval(float(np.median(values)), error, len(values) - 1)


def median_spread(values: np.ndarray) -> float:
    """The standard deviation of values (n,), by the median of their distances from the median.

    1.4826 times that distance, which is right for normal values, and which bursts do not change.
    """
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


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
