"""The direction of a contact network: its share of rows both ways, and whether it has cycles."""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.populations.data import edge_keys


def reciprocity(edges: NDArray[np.int32], size: int) -> float:
    """Compute the share of rows whose reverse is a row as well, of rows that join two agents.

    edges: (E, 2) of agents below `size`. NaN without such rows.
    """
    joined = edges[edges[:, 0] != edges[:, 1]]
    if not len(joined):
        return float("nan")
    rows, reversed_rows = edge_keys(joined, size)
    reverse = np.unique(reversed_rows)
    at = np.searchsorted(reverse, rows)
    return float((reverse[np.minimum(at, len(reverse) - 1)] == rows).mean())


def is_acyclic(edges: NDArray[np.int32], size: int) -> bool:
    """Whether no chain of edges leads back to where it began; self-loops do not count.

    edges: (E, 2) of agents below `size`. Kahn's algorithm: agents that no other reaches are removed
    until none is left, or only those on cycles and behind them.
    """
    joined = edges[edges[:, 0] != edges[:, 1]]
    order = np.argsort(joined[:, 0], kind="stable")
    first = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(joined[:, 0], minlength=size), out=first[1:])
    incoming = np.bincount(joined[:, 1], minlength=size)
    return int(_peeled(first, joined[order, 1], incoming)) == size


def _peeled(
    first: NDArray[np.int64], targets: NDArray[np.int32], incoming: NDArray[np.int64]
) -> int:
    """Count the agents that can be removed, those first that no remaining one reaches."""
    queue = np.empty(len(incoming), np.int64)
    length = 0
    for agent in range(len(incoming)):
        if incoming[agent] == 0:
            queue[length] = agent
            length += 1
    done = 0
    while done < length:
        agent = queue[done]
        done += 1
        for k in range(first[agent], first[agent + 1]):
            target = targets[k]
            incoming[target] -= 1
            if incoming[target] == 0:
                queue[length] = target
                length += 1
    return done


if not TYPE_CHECKING:  # numba has no annotations
    _peeled = njit(cache=True)(_peeled)
