"""Weights of parameters by what was measured (Bayes' rule), and draws in proportion to them.

The error of a measurement is the logarithm of its ratio to the model: a rate that is 10% off counts
as much at 10 SPS as at 1M SPS. Its standard deviation σ is not known; it has the prior of
ERROR_DEGREES earlier measurements with a typical error of TYPICAL_ERROR, which is what the models
leave unexplained of published and own tables. Integrated over σ, the weight of a set of parameters
is (ν₀s₀² + Σe²)^(−(ν₀ + n)/2), and a further measurement follows Student's t with ν₀ + n degrees.
"""

import numpy as np
from numpy.typing import NDArray

from hotloop.loop.figures import Interval

Array = NDArray[np.float64]

TYPICAL_ERROR, ERROR_DEGREES = 0.06, 2
DRAWS = 2_000


def log_weights(squares: Array, count: int) -> Array:
    """The log of the weight of each set of parameters, from its sum of squared errors (M,)."""
    weights: Array = -(ERROR_DEGREES + count) / 2 * np.log(_spread(squares))
    return weights


def error_scale(squares: Array, count: int) -> Array:
    """The scale of Student's t of one more measurement, (M,)."""
    scale: Array = np.sqrt(_spread(squares) / (ERROR_DEGREES + count))
    return scale


def drawn(weights: Array) -> NDArray[np.int64]:
    """Places in proportion to weights that are given by their logs (M,); always the same ones."""
    summed = np.cumsum(np.exp(weights - weights.max()))
    places = (np.arange(DRAWS) + 0.5) / DRAWS * summed[-1]
    found: NDArray[np.int64] = np.minimum(np.searchsorted(summed, places), len(summed) - 1)
    return found


def measured_interval(rates: Array, scale: Array, count: int) -> Interval:
    """A rate as one more measurement would show it: the median of the draws (M,), and the ends that
    hold 95%. scale: of `error_scale`, (M,); count: measurements so far.
    """
    logs = np.log(rates)
    error = np.random.default_rng(0).standard_t(ERROR_DEGREES + count, len(logs)) * scale
    low, high = np.quantile(logs + error, [0.025, 0.975])
    middle = float(np.median(logs))
    return Interval(*(float(np.exp(x)) for x in (middle, min(low, middle), max(high, middle))))


def middle_interval(draws: Array) -> Interval:
    """A parameter: the median of its draws (M,), and the ends that hold 95% of them."""
    low, middle, high = (float(x) for x in np.quantile(draws, [0.025, 0.5, 0.975]))
    return Interval(middle, low, high)


def _spread(squares: Array) -> Array:
    spread: Array = ERROR_DEGREES * TYPICAL_ERROR**2 + squares
    return spread
