"""Numbers of contacts of the connected agents, by age.

Apart from the wiring because nothing here is drawn: the numbers are a stratified sample of one
distribution for each age, the same for every seed. The seed decides which agent has which number
and who meets whom, so that the number of contacts in a population does not vary between seeds.
"""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Astoria's agents and those of them without a contact, by age code 0 to 5.
AGENTS_BY_AGE = (6_723, 11_573, 5_724, 4_647, 3_910, 4_941)
ALONE_BY_AGE = (1_085, 1_824, 876, 710, 757, 1_228)
_AGENTS, _ALONE, _ROWS = sum(AGENTS_BY_AGE), sum(ALONE_BY_AGE), 136_378

# Half of an agent's undirected degree has a negative binomial distribution whose mean and standard
# deviation are both this number, by age code. In Astoria the means are 4.06, 3.98, 4.02, 3.97, 3.00
# and 1.97, the deviations 4.04, 3.97, 4.01, 3.92, 3.02 and 1.96.
MEANS = (4, 4, 4, 4, 3, 2)
_MOST_HALF = 37  # the largest undirected degree is 74
_ENOUGH = 800  # connected agents from which on one has the largest degree

ROWS_PER_CONNECTED = _ROWS / (_AGENTS - _ALONE)
"""Mean number of directed rows for each agent that has any contact."""

Degrees = NDArray[np.int16]


def half_degrees(agents_by_age: NDArray[np.int64], connected: int, rows: int) -> list[Degrees]:
    """Compute half of the undirected degrees of the connected agents, by age code, ascending.

    Shapes: agents_by_age (6,), whose sum is at least `connected`; an int16 array for each age,
    `connected` numbers of 1 to 37 together. They sum to `rows` where the agents can hold that
    many, else to as many as they can. From 800 connected agents on, one has 37.
    Source: counts and moments of the Astoria contact network; see the constants.
    """
    by_age = _connected_by_age(agents_by_age, connected)
    ends = np.cumsum(by_age)
    halves = np.empty(connected, np.int16)
    for mean, end, count in zip(MEANS, ends, by_age, strict=True):
        _stratified(_cdf(mean), halves[end - count : end])
    most = min(_MOST_HALF, max(1, (connected - 1) // 2))  # each pair of agents meets once
    np.minimum(halves, most, out=halves)
    if connected >= _ENOUGH:
        halves[int(np.argmax(halves))] = _MOST_HALF
    _nudge(halves, most, int(halves.sum(dtype=np.int64)) - rows)
    return np.split(halves, ends[:-1])


def _connected_by_age(agents_by_age: NDArray[np.int64], connected: int) -> NDArray[np.int64]:
    """Compute how many agents of each age have contacts: Astoria's shares, scaled to the total.

    Where it is less than Astoria's the shares of the connected are scaled, else those of the
    others, so that no age has more connected agents than it has agents.
    """
    total = int(agents_by_age.sum())
    alone = np.array(ALONE_BY_AGE) / np.array(AGENTS_BY_AGE)
    if connected * _AGENTS <= (_AGENTS - _ALONE) * total:
        return _shared(connected, agents_by_age * (1.0 - alone))
    return agents_by_age - _shared(total - connected, agents_by_age * alone)


def _shared(count: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Divide `count` into whole numbers in proportion to the weights."""
    ends = np.cumsum(weights)
    whole = np.round(ends * (count / ends[-1])).astype(np.int64)
    whole[-1] = count
    shares: NDArray[np.int64] = np.diff(whole, prepend=0)
    return shares


def _cdf(mean: int) -> NDArray[np.float64]:
    """Tabulate (38,) the chance that a half-degree is at most k, given that it is 1 to 37.

    Negative binomial, by the ratio of neighbouring terms: only additions, multiplications and
    divisions in one order, so the same bits on every machine.
    """
    chance = 1.0 / mean  # mean over variance, where the variance is the mean squared
    size = mean / (mean - 1.0)
    k = np.arange(1, _MOST_HALF)
    ratio = (k + size) / (k + 1) * (1.0 - chance)
    total = np.cumsum(np.concatenate([[0.0, 1.0], np.cumprod(ratio)]))
    return np.asarray(total / total[-1])


def _stratified(cdf: NDArray[np.float64], halves: Degrees) -> None:
    """Give the r-th of n agents the quantile at (r + 1/2) / n; `cdf[k]`: share of at most k."""
    n = halves.size
    k = 1
    for r in range(n):
        while k < cdf.size - 1 and cdf[k] <= (r + 0.5) / n:
            k += 1
        halves[r] = k


def _nudge(halves: Degrees, most: int, excess: int) -> None:
    """Reduce (raise) the sum by `excess`, one an agent, spread over all; the maxima stay."""
    sign = 1 if excess > 0 else -1
    remaining = abs(excess)
    stride = max(1, halves.size // max(1, remaining))
    moved = True
    while remaining > 0 and moved:
        moved = False
        for start in range(stride):
            for r in range(start, halves.size, stride):
                changed = halves[r] - sign
                if remaining > 0 and 1 <= changed <= most and halves[r] < most:
                    halves[r] = changed
                    remaining -= 1
                    moved = True


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    _stratified = njit(cache=True)(_stratified)
    _nudge = njit(cache=True)(_nudge)
