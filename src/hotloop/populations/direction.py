"""Which way a contact network points: how many rows are there both ways, and are there cycles."""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray


def reciprocity(edges: NDArray[np.int32], size: int) -> float:
    """The share of rows whose reverse is a row as well, of rows that join two agents.

    edges: (E, 2) of agents below `size`. NaN without such rows.
    """
    src, dst = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
    src, dst = src[src != dst], dst[src != dst]
    if not len(src):
        return float("nan")
    reverse = np.unique(dst * size + src)
    at = np.searchsorted(reverse, rows := src * size + dst)
    return float((reverse[np.minimum(at, len(reverse) - 1)] == rows).mean())


def is_acyclic(edges: NDArray[np.int32], size: int) -> bool:
    """Whether nobody who infects others can be infected by them in turn; self-loops aside.

    edges: (E, 2) of agents below `size`. Kahn's way: agents whom nobody reaches are taken away
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
    """How many agents can be taken away, those whom nobody left reaches first."""
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
