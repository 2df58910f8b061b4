"""Short loops of a network, which message passing ignores: it is exact on trees.

Two ends of a contact that are joined by another short route, in any direction, share infections
by more than this contact: an infection returns along a contact that goes both ways, and two senders
of one agent that have a common sender are infected together.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]
SAMPLES = 20_000
MEASURED = "short loops"


class LoopCounts(NamedTuple):
    """Mean number of other routes between the ends of a contact, in any direction.

    back: the share of contacts whose reverse exists, too. two, three: routes of so many steps.
    """

    back: float
    two: float
    three: float


def short_loops(network: Network) -> LoopCounts:
    """Estimate the short loops from random contacts, once for each network; takes milliseconds."""
    if MEASURED not in network.measured:
        rng = np.random.default_rng(0)
        edges = rng.integers(0, max(network.num_edges, 1), SAMPLES if network.num_edges else 0)
        rolls = rng.random((len(edges), 2))
        rows = (network.out_ptr, network.out_dst, network.in_ptr, network.in_src)
        network.measured[MEASURED] = LoopCounts(*(float(x) for x in _sampled(edges, rolls, *rows)))
    loops: LoopCounts = network.measured[MEASURED]
    return loops


@njit(cache=True)
def _sampled(
    edges: Array, rolls: Array, out_ptr: Array, out_dst: Array, in_ptr: Array, in_src: Array
) -> tuple[float, float, float]:
    """Walk on from each contact j -> i: to k, a neighbour of j, and m, a neighbour of k."""
    back, two, three, count = 0.0, 0.0, 0.0, 0
    for n in range(len(edges)):
        i = np.int64(out_dst[edges[n]])
        j = np.int64(np.searchsorted(out_ptr, edges[n], side="right") - 1)
        if i == j:
            continue
        count += 1
        back += _reaches(i, j, out_ptr, out_dst)
        degree = _degree(j, out_ptr, in_ptr)
        k = _neighbour(j, int(rolls[n, 0] * degree), out_ptr, out_dst, in_ptr, in_src)
        if k in (i, j):
            continue
        two += degree * _joined(k, i, out_ptr, out_dst)
        degree *= _degree(k, out_ptr, in_ptr)
        m = _neighbour(
            k, int(rolls[n, 1] * _degree(k, out_ptr, in_ptr)), out_ptr, out_dst, in_ptr, in_src
        )
        if m not in (i, j, k):
            three += degree * _joined(m, i, out_ptr, out_dst)
    count = max(count, 1)
    return back / count, two / count, three / count


@njit(cache=True, inline="always")
def _degree(agent: Any, out_ptr: Array, in_ptr: Array) -> Any:
    return np.int64(out_ptr[agent + 1] - out_ptr[agent] + in_ptr[agent + 1] - in_ptr[agent])


@njit(cache=True, inline="always")
def _neighbour(
    agent: Any, number: Any, out_ptr: Array, out_dst: Array, in_ptr: Array, in_src: Array
) -> Any:
    outgoing = out_ptr[agent + 1] - out_ptr[agent]
    if number < outgoing:
        return np.int64(out_dst[out_ptr[agent] + number])
    return np.int64(in_src[in_ptr[agent] + number - outgoing])


@njit(cache=True, inline="always")
def _reaches(src: Any, dst: Any, out_ptr: Array, out_dst: Array) -> Any:
    """Whether src reaches dst, by bisection in the ascending row."""
    row = out_dst[out_ptr[src] : out_ptr[src + 1]]
    at = np.searchsorted(row, dst)
    return at < len(row) and row[at] == dst


@njit(cache=True, inline="always")
def _joined(one: Any, other: Any, out_ptr: Array, out_dst: Array) -> Any:
    return _reaches(one, other, out_ptr, out_dst) or _reaches(other, one, out_ptr, out_dst)
