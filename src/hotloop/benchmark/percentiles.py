"""Percentiles with intervals, of the durations of iterations or of units.

A percentile is a value that was measured: the smallest one that at least this share of the weight
does not exceed. Its interval resamples windows of consecutive iterations, as that of a mean does.
"""

import math
from collections.abc import Sequence

import numpy as np

from hotloop.loop.figures import (
    RESAMPLES,
    Interval,
    percentile_interval,
    resampled_windows,
    window_of,
)

# Values beyond a percentile without which it has no interval: with 4 of them, in 400 values, the
# interval of p99 covered the truth in 83 to 90 of 100 simulated samples, with 10 in 90 to 96.
LEAST_BEYOND = 10
# So many values are kept apart exactly; of more, neighbours are taken together.
EXACT_VALUES = 2_000


def percentiles(
    values: np.ndarray, weights: np.ndarray, shares: Sequence[float], *, seed: int = 0
) -> list[Interval]:
    """Return the percentiles of consecutive values with these weights, both (n,), n at least 1.

    The ends are NaN where fewer than `LEAST_BEYOND` values lie beyond the percentile: resampling
    cannot say how far the truth lies beyond the largest.
    """
    order = np.argsort(values, kind="stable")
    ranked, weight = values[order], weights[order]
    exact = _at(ranked, np.cumsum(weight)[None, :], shares)[:, 0]
    last = _last_of_bins(len(ranked))
    window = window_of(len(values))
    count = int(window[-1]) + 1
    # The weight of each window in each bin; a resample adds up the windows that it drew.
    bins = np.searchsorted(last, np.arange(len(ranked)))
    held = np.bincount(window[order] * len(last) + bins, weight, count * len(last))
    drawn = resampled_windows(count, RESAMPLES, np.random.default_rng(seed))
    times_drawn = np.stack([(drawn == number).sum(axis=1) for number in range(count)], axis=1)
    cumulative = np.cumsum(times_drawn.astype(np.float64) @ held.reshape(count, -1), axis=1)
    draws = _at(ranked[last], cumulative, shares)
    return [
        percentile_interval(float(value), draw)
        if (1 - share) * len(values) >= LEAST_BEYOND - 1e-9
        else Interval(float(value), math.nan, math.nan)
        for share, value, draw in zip(shares, exact, draws, strict=True)
    ]


def _at(ranked: np.ndarray, cumulative: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """The values at these shares of each row's weight: (shares, rows)."""
    found = []
    for share in shares:
        # A hair less, so that rounding does not push an exact share to the next value.
        wanted = share * cumulative[:, -1:] * (1 - 1e-12)
        found.append(ranked[(cumulative < wanted).sum(axis=1).clip(max=len(ranked) - 1)])
    return np.stack(found)


def _last_of_bins(count: int) -> np.ndarray:
    """The last rank in each bin: every rank while they are few, else finer towards the top."""
    if count <= EXACT_VALUES:
        return np.arange(count)
    even = np.linspace(0, 1, EXACT_VALUES // 2)
    top = 1 - np.geomspace(1e-6, 0.06, EXACT_VALUES // 2)
    ranks: np.ndarray = np.unique(np.round(np.concatenate([even, top]) * (count - 1)))
    return ranks.astype(np.int64)
