"""How many contacts each connected agent has, and how many of them it makes itself.

Apart from the wiring because nothing here is drawn: the numbers are a stratified sample of one
distribution, the same for every seed. The seed says who has which and who meets whom, so that the
degree figures of a population do not depend on the luck of a seed.
"""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Rows an agent: half of the undirected degree, so 37 rows are a degree of 74. The published
# percentiles 25/50/75/90/99/100 of the undirected degree are 2, 6, 10, 18, 34, 74; between them
# the survival function falls geometrically. _BELOW is the one free number: it puts each percentile
# inside its step of the integers and makes the mean 136,378 rows on 37,518 agents.
_AGENTS, _CONNECTED, _ROWS = 37_518, 31_038, 136_378
_MOST_ROWS = 37
_BELOW = 0.82468956
_KNOTS = (0, 3, 5, 9, 17, _MOST_ROWS)
_LEFT = (
    _CONNECTED / _AGENTS,
    0.5 * _BELOW,
    0.25 * _BELOW,
    0.1 * _BELOW,
    0.01 * _BELOW,
    0.2 / _AGENTS,
)

# Of a degree d, one contact at least comes in; the other d - 1 come in with a share that is drawn
# from a beta distribution: mean _SHARE / (1 + d / _HALVING), concentration _CONCENTRATION. The
# three were searched for the published percentiles of the in- and the out-degree; of the sets that
# reach them all, this one is near to Astoria's correlation of the two (0.28 here, 0.29 there).
_SHARE, _HALVING, _CONCENTRATION = 0.8972, 12.0, 4.0
_MOST_IN, _MOST_OUT = 36, 73
_ROOM = 800  # connected agents from which the largest degrees are put in by hand

ROWS_PER_CONNECTED = _ROWS / _CONNECTED
"""Mean number of directed rows for each agent that has any contact."""

Degrees = NDArray[np.int16]


def degree_sequence(connected: int, rows: int) -> tuple[Degrees, Degrees]:
    """Out- and in-degrees of the agents that have contacts, by rising undirected degree.

    Shapes: two arrays (connected,), int16; each sums to `rows` where the agents can hold that
    many, else to as many as they can. Out- plus in-degree is even and at least 2; with every
    degree even, no edge of the network is a bridge. From 800 agents on, the last one has the
    largest undirected degree (74) and out-degree (73), the one before it the largest in-degree
    (36).
    Source: percentiles of the Astoria contact network; beta-binomial split, see the constants.
    """
    per_agent = _rows_per_agent(connected, rows)
    incoming = np.empty(connected, np.int16)
    _split(per_agent, _incoming_cdf(), incoming)
    most_in, most_out = min(_MOST_IN, connected - 1), min(_MOST_OUT, connected - 1)
    fixed = 0
    if connected >= _ROOM:
        incoming[-2:] = _MOST_IN, 1
        fixed = 2
    both = 2 * per_agent
    free = connected - fixed
    least = np.maximum(1, both - most_out).astype(np.int16)
    most = np.minimum(both, most_in).astype(np.int16)
    incoming[:free] = np.clip(incoming[:free], least[:free], most[:free])
    excess = int(incoming.sum(dtype=np.int64)) - int(per_agent.sum(dtype=np.int64))
    _nudge(incoming, least, most, free, excess)
    return (both - incoming).astype(np.int16), incoming


def _rows_per_agent(connected: int, rows: int) -> Degrees:
    """Half-degrees by rising size, summing to `rows` where caps allow it."""
    cap = min(_MOST_ROWS, connected - 1)
    log_left = np.interp(np.arange(_MOST_ROWS), _KNOTS, np.log(_LEFT))
    # Rounded: a logarithm may differ in its last bit between machines, a population must not.
    left = np.round(np.exp(log_left - log_left[0]), 9)
    per_agent = np.empty(connected, np.int16)
    _stratified(left, per_agent)
    free = connected
    if connected >= _ROOM:
        per_agent[-1] = _MOST_ROWS
        free -= 2  # the two that hold the maxima
    np.minimum(per_agent, cap, out=per_agent)
    least = np.ones(connected, np.int16)
    most = np.full(connected, cap, np.int16)
    _nudge(per_agent, least, most, free, int(per_agent.sum(dtype=np.int64)) - rows)
    return per_agent


def _incoming_cdf() -> NDArray[np.float64]:
    """Table (38, 75): for k rows, the chance that at most j of the 2k - 1 free contacts come in.

    Beta-binomial, by the ratio of neighbouring terms: only additions, multiplications and
    divisions in one order, so the same bits on every machine.
    """
    table = np.ones((_MOST_ROWS + 1, 2 * _MOST_ROWS + 1))
    for k in range(1, _MOST_ROWS + 1):
        n = 2 * k - 1
        mean = _SHARE / (1 + 2 * k / _HALVING)
        a, b = mean * _CONCENTRATION, (1 - mean) * _CONCENTRATION
        j = np.arange(n)
        ratio = (n - j) / (j + 1) * (j + a) / (n - j - 1 + b)
        total = np.cumsum(np.concatenate([[1.0], np.cumprod(ratio)]))
        table[k, : n + 1] = total / total[-1]
    return table


def _stratified(left: NDArray[np.float64], per_agent: Degrees) -> None:
    """The r-th of n agents gets the quantile at (r + 1/2) / n; `left[k]`: share above k rows."""
    n = per_agent.size
    k = 1
    for r in range(n):
        above = 1.0 - (r + 0.5) / n
        while k < left.size and left[k] >= above:
            k += 1
        per_agent[r] = k


def _split(per_agent: Degrees, cdf: NDArray[np.float64], incoming: Degrees) -> None:
    """In-degrees by inversion at the golden-ratio sequence, even within each degree."""
    place = np.uint64(0)
    for r in range(per_agent.size):
        k = per_agent[r]
        u = float(place >> np.uint64(11)) * 2.0**-53
        place += np.uint64(0x9E3779B97F4A7C15)
        j = 0
        while j < 2 * k - 1 and cdf[k, j] <= u:
            j += 1
        incoming[r] = 1 + j


def _nudge(values: Degrees, least: Degrees, most: Degrees, free: int, excess: int) -> None:
    """Bring the sum down (up) by `excess`, one an agent, spread over the first `free` agents."""
    sign = 1 if excess > 0 else -1
    remaining = abs(excess)
    stride = max(1, free // max(1, remaining))
    moved = True
    while remaining > 0 and moved:
        moved = False
        for start in range(stride):
            for r in range(start, free, stride):
                changed = values[r] - sign
                if remaining > 0 and least[r] <= changed <= most[r]:
                    values[r] = changed
                    remaining -= 1
                    moved = True


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    _stratified = njit(cache=True)(_stratified)
    _split = njit(cache=True)(_split)
    _nudge = njit(cache=True)(_nudge)
