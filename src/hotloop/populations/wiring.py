"""A random acyclic network with given degrees, compiled for the CPU.

All agents are in one list in random order, each as often as half of its degree, and neighbours in
the list meet. The last meets the first: the list is a ring, so every degree is even and all agents
are in one component. A row points from the agent that is earlier in the list, by the first position
of each, so that no row leads back. The contacts of Astoria are arranged in this way: agents with
many contacts are early, and have far more outgoing than incoming ones.

Random numbers are splitmix64 in integers: the same network from a seed on every machine, for any
number of threads. The list and the positions of each agent take 8 B a row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Agents = NDArray[np.int32]
Edges = NDArray[np.int32]
Positions = NDArray[np.int32]
Pointers = NDArray[np.int64]
Draws = NDArray[np.uint64]
"""Shape (1,): the state of one stream of random numbers."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TRIES = 1_000  # positions tried for one bad contact: only tiny networks need more


@dataclass(frozen=True)
class Ring:
    """Agents in a ring, whose neighbours meet, and the positions of each agent."""

    agents: Agents
    """Shape (E,): the agent at each position."""
    first: Pointers
    """Shape (N + 1,): agent a is at `positions[first[a] : first[a + 1]]`, in any order."""
    positions: Positions
    """Shape (E,)."""


def below(draws: Draws, bound: int) -> int:
    """Draw a whole number from 0 to bound - 1, and advance the stream.

    Source: splitmix64 (Steele, Lea and Flood 2014); the remainder's bias is bound * 2**-53.
    """
    draws[0] += _GOLDEN
    z = draws[0]
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(11)) % bound  # type: ignore[return-value]


def shuffle(values: NDArray[Any], draws: Draws) -> None:
    """Shuffle in place (Fisher-Yates); `values` (n,) may be a strided view."""
    for i in range(values.shape[0] - 1, 0, -1):
        j = below(draws, i + 1)
        values[i], values[j] = values[j], values[i]


def make_ring(halves: NDArray[np.int16], draws: Draws) -> Ring:
    """Make a ring in random order in which each agent occurs half of its degree times.

    halves: (N,), 0 for an agent without a contact; they sum to E.
    """
    first = np.zeros(halves.size + 1, np.int64)
    np.cumsum(halves, out=first[1:])
    agents = np.repeat(np.arange(halves.size, dtype=np.int32), halves)
    shuffle(agents, draws)
    positions = np.empty(agents.size, np.int32)
    _locate(agents, first[:-1].copy(), positions)
    return Ring(agents, first, positions)


def repair(ring: Ring, draws: Draws) -> bool:
    """Separate neighbours that are one agent or meet elsewhere too, by random exchanges.

    Returns whether all could be separated; in networks of a few dozen agents it may fail.
    """
    bad = np.empty(2 * ring.agents.size, np.int32)
    count = _bad_positions(ring.agents, ring.first, ring.positions, bad)
    return bool(_part(ring.agents, ring.first, ring.positions, bad[:count], draws))


def plant_self_loops(ring: Ring, count: int, draws: Draws) -> None:
    """Put an agent beside itself, `count` times; each agent once at most.

    Only agents with four contacts or more: the other contacts keep them in the network. A tiny
    network gets as many as possible.
    """
    _plant(ring.agents, ring.first, ring.positions, count, draws)


def directed_rows(ring: Ring) -> Edges:
    """Make rows src, dst, one for each two neighbours, from the agent that is first in the ring.

    Shape (E, 2), int32, sorted.
    """
    size = ring.first.size - 1
    earliest = np.empty(size, np.int32)
    out_ptr = np.zeros(size + 1, np.int64)
    edges = np.empty((ring.agents.size, 2), np.int32)
    _direct(ring.agents, earliest, out_ptr, edges)
    _sort_rows(out_ptr, edges)
    return edges


def _locate(agents: Agents, cursor: Pointers, positions: Positions) -> None:
    for position in range(agents.shape[0]):
        agent = agents[position]
        positions[cursor[agent]] = position
        cursor[agent] += 1


def _bad_positions(agents: Agents, first: Pointers, positions: Positions, bad: Positions) -> int:
    """Find positions beside the same agent or one met elsewhere, too; some are listed twice."""
    length = agents.shape[0]
    met_by = np.full(first.shape[0] - 1, -1, np.int32)
    count = 0
    for agent in range(first.shape[0] - 1):
        for k in range(first[agent], first[agent + 1]):
            for step in (1, -1):
                beside = positions[k] + step
                if beside == length:
                    beside = 0
                other = agents[beside]
                if other == agent or met_by[other] == agent:
                    bad[count] = beside % length
                    count += 1
                met_by[other] = agent
    return count


def _part(
    agents: Agents, first: Pointers, positions: Positions, bad: Positions, draws: Draws
) -> bool:
    for k in range(bad.shape[0]):
        position = bad[k]
        done = _is_clean(agents, first, positions, position)
        for _ in range(_TRIES):
            if done:
                break
            other = below(draws, agents.shape[0])
            if agents[other] == agents[position]:
                continue
            _exchange(agents, first, positions, position, other)
            done = _is_clean(agents, first, positions, position)
            done = done and _is_clean(agents, first, positions, other)
            if not done:
                _exchange(agents, first, positions, position, other)
    # Two neighbouring positions of one agent are both bad, and both are listed.
    parted = True
    for k in range(bad.shape[0]):
        parted = parted and _is_clean(agents, first, positions, bad[k])
    return parted


def _plant(agents: Agents, first: Pointers, positions: Positions, count: int, draws: Draws) -> None:
    length = agents.shape[0]
    for _ in range(count):
        for _ in range(_TRIES):
            position = below(draws, length)
            agent = agents[position]
            beside, after = (position + 1) % length, (position + 2) % length
            moved = agents[beside]
            many = first[agent + 1] - first[agent]
            if (
                many < 2
                or moved == agents[after]
                or _meetings(agents, first, positions, agent, agent)
            ):
                continue
            other = positions[first[agent] + below(draws, many)]
            if other in (position, after):
                continue
            _exchange(agents, first, positions, beside, other)
            once = _meetings(agents, first, positions, agent, agents[after]) == 1
            if once and _is_clean(agents, first, positions, other):
                break
            _exchange(agents, first, positions, beside, other)


def _direct(agents: Agents, earliest: Positions, out_ptr: Pointers, edges: Edges) -> None:
    for position in range(agents.shape[0] - 1, -1, -1):
        earliest[agents[position]] = position
    a = agents[-1]
    for position in range(agents.shape[0]):
        b = agents[position]
        out_ptr[(a if earliest[a] <= earliest[b] else b) + 1] += 1
        a = b
    for agent in range(out_ptr.shape[0] - 1):
        out_ptr[agent + 1] += out_ptr[agent]
    cursor = out_ptr[:-1].copy()
    for position in range(agents.shape[0]):
        b = agents[position]
        source, target = (a, b) if earliest[a] <= earliest[b] else (b, a)
        edges[cursor[source], 0], edges[cursor[source], 1] = source, target
        cursor[source] += 1
        a = b


def _sort_rows(out_ptr: Pointers, edges: Edges) -> None:
    """Sort the targets of each source, by insertion: there are 74 at most, and 4 on average."""
    for agent in range(out_ptr.shape[0] - 1):
        first = out_ptr[agent]
        for row in range(first + 1, out_ptr[agent + 1]):
            target, at = edges[row, 1], row
            while at > first and edges[at - 1, 1] > target:
                edges[at, 1] = edges[at - 1, 1]
                at -= 1
            edges[at, 1] = target


def _is_clean(agents: Agents, first: Pointers, positions: Positions, position: int) -> bool:
    """Whether the agent at a position meets both neighbours only here, and neither is itself."""
    length = agents.shape[0]
    agent = agents[position]
    for step in (1, length - 1):
        other = agents[(position + step) % length]
        if other == agent or _meetings(agents, first, positions, agent, other) != 1:
            return False
    return True


def _meetings(agents: Agents, first: Pointers, positions: Positions, agent: Any, other: Any) -> int:
    """Count how often an agent is beside another; twice for each self-loop if they are one."""
    length = agents.shape[0]
    count = 0
    for k in range(first[agent], first[agent + 1]):
        for step in (1, length - 1):
            count += agents[(positions[k] + step) % length] == other
    return count


def _exchange(agents: Agents, first: Pointers, positions: Positions, one: int, two: int) -> None:
    """Exchange the agents at two positions, which must differ."""
    a, b = agents[one], agents[two]
    for k in range(first[a], first[a + 1]):
        if positions[k] == one:
            positions[k] = two
            break
    for k in range(first[b], first[b + 1]):
        if positions[k] == two:
            positions[k] = one
            break
    agents[one], agents[two] = b, a


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    below = njit(cache=True)(below)
    shuffle = njit(cache=True)(shuffle)
    _locate = njit(cache=True)(_locate)
    _meetings = njit(cache=True)(_meetings)
    _is_clean = njit(cache=True)(_is_clean)
    _exchange = njit(cache=True)(_exchange)
    _bad_positions = njit(cache=True)(_bad_positions)
    _part = njit(cache=True)(_part)
    _plant = njit(cache=True)(_plant)
    _direct = njit(cache=True)(_direct)
    _sort_rows = njit(cache=True)(_sort_rows)
