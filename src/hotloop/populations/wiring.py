"""Who meets whom: a random directed network with given degrees, compiled for the CPU.

Every kernel works in place on one edge list, grouped by source, so that ten million agents need
little more than their result. Random numbers are splitmix64 in integers: the same network from a
seed on every machine, whatever the number of threads.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Edges = NDArray[np.int32]
Pointers = NDArray[np.int64]
Draws = NDArray[np.uint64]
"""Shape (1,): the state of one stream of random numbers."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TRIES = 1_000  # partners tried for one bad edge: only tiny networks ever run out


def below(draws: Draws, bound: int) -> int:
    """A random whole number from 0 to bound - 1, and the stream one further.

    Source: splitmix64 (Steele, Lea and Flood 2014); the remainder's bias is bound * 2**-53.
    """
    draws[0] += _GOLDEN
    z = draws[0]
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(11)) % bound  # type: ignore[return-value]


def shuffle(values: NDArray[Any], draws: Draws) -> None:
    """Fisher-Yates, in place; `values` (n,) may be a strided view."""
    for i in range(values.shape[0] - 1, 0, -1):
        j = below(draws, i + 1)
        values[i], values[j] = values[j], values[i]


def join_stubs(out_ptr: Pointers, incoming: NDArray[np.int16], edges: Edges, draws: Draws) -> None:
    """Every outgoing half-edge meets a random incoming one (the configuration model).

    Shapes: out_ptr (N + 1,), incoming (N,), edges (E, 2), filled here, rows grouped by source.
    """
    at = 0
    for agent in range(incoming.shape[0]):
        for row in range(out_ptr[agent], out_ptr[agent + 1]):
            edges[row, 0] = agent
        for _ in range(incoming[agent]):
            edges[at, 1] = agent
            at += 1
    shuffle(edges[:, 1], draws)


def repair(out_ptr: Pointers, edges: Edges, draws: Draws) -> int:
    """Remove self-loops and repeated rows by swapping targets with random other rows.

    Degrees stay as they are. Returns the number of rows that found no partner, whose target is
    then -1: 0 but in networks of a few dozen agents.
    """
    lost = 0
    for e in range(edges.shape[0]):
        i, x = edges[e, 0], edges[e, 1]
        bad = i == x
        for row in range(out_ptr[i], e):
            bad |= edges[row, 1] == x
        if not bad:
            continue
        found = False
        for _ in range(_TRIES):
            f = below(draws, edges.shape[0])
            j, y = edges[f, 0], edges[f, 1]
            if y < 0 or j in (i, x) or y in (i, x):
                continue
            if _meets(out_ptr, edges, i, y) or _meets(out_ptr, edges, j, x):
                continue
            edges[e, 1], edges[f, 1] = y, x
            found = True
            break
        if not found:
            edges[e, 1] = -1
            lost += 1
    return lost


def plant_self_loops(
    out_ptr: Pointers, incoming: NDArray[np.int16], edges: Edges, count: int, draws: Draws
) -> None:
    """Turn c->a and a->d into a->a and c->d, `count` times; degrees stay as they are.

    Only agents with four contacts or more: the other contacts keep them in the network. A tiny
    network gets as many as it has room for.
    """
    for _ in range(count):
        for _ in range(_TRIES):
            e = below(draws, edges.shape[0])
            c, a = edges[e, 0], edges[e, 1]
            outgoing = out_ptr[a + 1] - out_ptr[a]
            if c == a or outgoing == 0 or outgoing + incoming[a] < 4:
                continue
            f = out_ptr[a] + below(draws, outgoing)
            d = edges[f, 1]
            if d in (a, c) or _meets(out_ptr, edges, a, a) or _meets(out_ptr, edges, c, d):
                continue
            edges[e, 1], edges[f, 1] = d, a
            break


def connect(out_ptr: Pointers, edges: Edges, draws: Draws) -> None:
    """Join every component that has edges to the largest one; degrees stay as they are.

    One row of the component swaps its target with one row of the largest. Where all degrees are
    even no edge is a bridge, so either side stays whole without its row and the two new rows
    join them: one pass is enough.
    """
    agents = out_ptr.shape[0] - 1
    parent = np.arange(agents).astype(np.int32)
    for e in range(edges.shape[0]):
        a, b = _root(parent, edges[e, 0]), _root(parent, edges[e, 1])
        if a != b:
            parent[max(a, b)] = min(a, b)
    size = np.zeros(agents, np.int32)
    for agent in range(agents):
        size[_root(parent, agent)] += 1
    giant = int(np.argmax(size))
    for e in range(edges.shape[0]):
        a, b = edges[e, 0], edges[e, 1]
        if a == b or _root(parent, a) == _root(parent, giant):
            continue
        for _ in range(_TRIES):
            f = below(draws, edges.shape[0])
            c, d = edges[f, 0], edges[f, 1]
            if c == d or _root(parent, c) != _root(parent, giant):
                continue
            edges[e, 1], edges[f, 1] = d, b
            parent[_root(parent, a)] = _root(parent, giant)
            break


def sort_rows(out_ptr: Pointers, edges: Edges) -> None:
    """Sort the targets of each source, by insertion: there are 73 at most, and 4 on average."""
    for agent in range(out_ptr.shape[0] - 1):
        first = out_ptr[agent]
        for row in range(first + 1, out_ptr[agent + 1]):
            target, at = edges[row, 1], row
            while at > first and edges[at - 1, 1] > target:
                edges[at, 1] = edges[at - 1, 1]
                at -= 1
            edges[at, 1] = target


def _meets(out_ptr: Pointers, edges: Edges, source: int, target: int) -> bool:
    """Whether the row source->target is there."""
    for row in range(out_ptr[source], out_ptr[source + 1]):  # noqa: SIM110  (compiled)
        if edges[row, 1] == target:
            return True
    return False


def _root(parent: NDArray[np.int32], agent: Any) -> Any:
    """The component's first agent, halving the path on the way."""
    while parent[agent] != agent:
        parent[agent] = parent[parent[agent]]
        agent = parent[agent]
    return agent


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    below = njit(cache=True)(below)
    _root = njit(cache=True)(_root)
    _meets = njit(cache=True)(_meets)
    shuffle = njit(cache=True)(shuffle)
    join_stubs = njit(cache=True)(join_stubs)
    repair = njit(cache=True)(repair)
    plant_self_loops = njit(cache=True)(plant_self_loops)
    connect = njit(cache=True)(connect)
    sort_rows = njit(cache=True)(sort_rows)
