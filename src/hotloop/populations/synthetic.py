"""Populations drawn from a seed: any number of agents with the figures of one real district.

The figures are those published for Astoria (New York): 37,518 agents and 136,378 directed
contacts. Nothing of a real person is in them but counts and percentiles.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.ages import AGE_GROUPS
from hotloop.populations.data import PopulationData

GENERATOR_VERSION = 3
"""Goes up when the same settings give another population, or its file has other arrays: cache files
of before are then ignored."""

COLUMNS = ("age", "stage")
"""Of a drawn population: age codes, and the agents that Astoria's files mark (1; the others 0)."""

ASTORIA_AGENTS, ASTORIA_EDGES = 37_518, 136_378
BROOKLYN_AGENTS, BROOKLYN_EDGES = 2_700_000, 9_900_000
MOST_AGENTS = 500_000_000

_SELF_LOOPS = 6  # of Astoria; others in proportion
# The agents that Astoria's files mark, by their outgoing contacts: agents without any contact, then
# those with 0, 1, 2 to 3, 4 to 6, 7 to 9, 10 to 19 and from 20 outgoing ones. They have 3.4 on
# average, all agents 3.6.
MARKED = (11, 8, 5, 7, 7, 3, 3, 1)
_OUTGOING_FROM = (1, 2, 4, 7, 10, 20)
_DEGREE_STREAM, _NETWORK_STREAM, _AGE_STREAM, _MARK_STREAM = range(4)


@dataclass(frozen=True)
class Settings:
    """The settings of one synthetic population; equal settings give equal arrays."""

    num_agents: int
    """Agents, 1 to 500 million."""
    num_edges: int
    """Directed rows of the network wanted."""
    seed: int = 0
    """Any whole number from 0; taken modulo 2**64."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("num_agents", self.num_agents, 1, MOST_AGENTS),
            ("num_edges", self.num_edges, 0, 4 * MOST_AGENTS),
            ("seed", self.seed, 0, None),
        ):
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or value < least or (most is not None and value > most):
                limit = f"from {least}" if most is None else f"from {least} to {most}"
                raise PopulationError(
                    f"synthetic population: {name}: expected a whole number {limit}, got {value!r}"
                )
            object.__setattr__(self, name, int(value))

    @classmethod
    def of_size(cls, num_agents: int, *, seed: int = 0, num_edges: int | None = None) -> "Settings":
        """Make settings for a number of agents; edges in Astoria's proportion unless given."""
        if num_edges is None and isinstance(num_agents, (int, np.integer)):
            num_edges = _proportional(ASTORIA_EDGES, int(num_agents))
        return cls(num_agents, 0 if num_edges is None else num_edges, seed)


def generate(
    num_agents: int, seed: int = 0, name: str | None = None, *, num_edges: int | None = None
) -> PopulationData:
    """Draw a population of that many agents, the same arrays from a seed on every machine.

    `num_edges` rows are in Astoria's proportion (3.635 an agent) unless given; more or fewer rows
    change the share of agents without a contact, not the shape of the rest.

    The network is made as Astoria's is: all agents are in a list in random order, each as often as
    half of its degree, and neighbours in the list meet. Half of a degree is negative binomial,
    with a mean and a standard deviation of 4, 4, 4, 4, 3, 2 by age code. Each contact is one row,
    from the agent that is earlier in the list, by its first position, so no row leads back. The
    column "stage" marks some agents, see `draw_marked`.

    Exact for every seed, from 1,000 agents on: the number of agents and of rows; the counts of the
    age codes; agents without a contact (6,480 of Astoria's 37,518; 16% to 25% by age); 6 self-loops
    in 37,518 agents and no other cycle; no repeated row; one component that holds every agent with
    a contact; the largest undirected degree, 74; 45 marked in 37,518 agents; the multiset of
    undirected degrees of each age, all even, and with it Astoria's percentiles (25/50/75/90/99: 2,
    6, 10, 18, 34). The last two agents have no contact, the one before them has.
    Near, as they follow from the order of the list: out- and in-degrees (Astoria's percentiles
    50/90/99, out 1, 11, 27, in 3, 8, 15, are met within one; the largest, there 73 and 36, were 58
    to 73 and 26 to 49 in 300 seeds), their correlation (0.29), transitivity (a random network of
    these degrees, 0.0007 at Astoria's size, less above), age across an edge (independent but for
    the degrees: 21% of edges join the same code). Below 1,000 agents the counts are as near as
    they fit.
    Agents' ids say nothing about who meets whom, nor about the order of the list. Rows are sorted.

    Shapes: see PopulationData; columns are "age" and "stage". Memory: 24 B a row, 30 B an agent.

    Raises: PopulationError for numbers out of range.
    """
    settings = Settings.of_size(num_agents, seed=seed, num_edges=num_edges)
    ages = _ages(settings)
    edges = _network(settings, ages)
    return PopulationData(
        name=name or f"synthetic-{settings.num_agents}",
        columns={"age": ages, "stage": draw_marked(edges, settings.num_agents, settings.seed)},
        edges=edges,
    )


def draw_marked(edges: NDArray[np.int32], num_agents: int, seed: int) -> NDArray[np.uint8]:
    """Mark 45 in 37,518 agents with a 1, at least one; a process on the network may start there.

    The marked agents have as many outgoing contacts as those of Astoria: their number in each of
    eight groups is a stratified sample of the counts there. Within a group every agent has the same
    chance; where a group has too few, any other agent is taken.

    Shapes: edges (E, 2), rows src, dst; returns (N,). Takes any network, drawn or not.
    """
    draws = _stream(seed, _MARK_STREAM)
    outgoing = np.bincount(edges[:, 0], minlength=num_agents)
    group = 1 + np.digitize(outgoing, _OUTGOING_FROM).astype(np.int8)
    group[(outgoing == 0) & (np.bincount(edges[:, 1], minlength=num_agents) == 0)] = 0
    count = max(1, _proportional(sum(MARKED), num_agents))
    middles = (2 * np.arange(count, dtype=np.int64) + 1) * sum(MARKED)  # in 1 / (2 count)
    wanted = np.searchsorted(np.cumsum(MARKED) * 2 * count, middles, side="right")
    marked = np.zeros(num_agents, np.uint8)
    missing = 0
    for k in range(len(MARKED)):
        missing += _mark(np.flatnonzero(group == k), int((wanted == k).sum()), marked, draws)
    if missing:
        _mark(np.flatnonzero(marked == 0), missing, marked, draws)
    return marked


def _mark(
    members: NDArray[np.int64], count: int, marked: NDArray[np.uint8], draws: NDArray[np.uint64]
) -> int:
    """Mark that many of the members; returns how many too few there are."""
    from hotloop.populations import wiring

    taken = min(count, members.size)
    for k in range(taken):
        other = k + wiring.below(draws, members.size - k)
        members[k], members[other] = members[other], members[k]
    marked[members[:taken]] = 1
    return count - taken


def _network(settings: Settings, ages: NDArray[np.uint8]) -> NDArray[np.int32]:
    # Compiled on first use: half a second that a mere name or a cached population need not pay.
    from hotloop.populations import degrees, wiring

    size = settings.num_agents
    connected = round(settings.num_edges / degrees.ROWS_PER_CONNECTED)
    if connected > size:
        most = int(size * degrees.ROWS_PER_CONNECTED)
        raise PopulationError(
            f"synthetic population: num_edges: expected at most {most} for {size} agents, "
            f"got {settings.num_edges}; ask for fewer edges or more agents"
        )
    if connected < 3:
        return np.empty((0, 2), np.int32)
    draws = _stream(settings.seed, _NETWORK_STREAM)
    ring = wiring.make_ring(_halves(settings, ages, connected), draws)
    all_parted = wiring.repair(ring, draws)
    if all_parted:
        wiring.plant_self_loops(ring, _proportional(_SELF_LOOPS, size), draws)
    edges = wiring.directed_rows(ring)
    if not all_parted:
        edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    return edges


def _halves(settings: Settings, ages: NDArray[np.uint8], connected: int) -> NDArray[np.int16]:
    """Half of each agent's degree, (N,): a multiset for each age, in random order."""
    from hotloop.populations import degrees, wiring

    draws = _stream(settings.seed, _DEGREE_STREAM)
    counts = np.bincount(ages, minlength=len(AGE_GROUPS))
    halves = np.zeros(ages.size, np.int16)
    by_age = degrees.half_degrees(counts, connected, settings.num_edges)
    for age, (count, positive) in enumerate(zip(counts, by_age, strict=True)):
        of_age = np.zeros(count, np.int16)
        of_age[: positive.size] = positive
        wiring.shuffle(of_age, draws)
        halves[ages == age] = of_age
    for agent, wanted in ((-1, False), (-2, False), (-3, True)):
        if ages.size > 3 and (halves[agent] > 0) != wanted:
            others = np.flatnonzero((ages[:-3] == ages[agent]) & ((halves[:-3] > 0) == wanted))
            if others.size:
                halves[[agent, others[0]]] = halves[[others[0], agent]]
    return halves


def _ages(settings: Settings) -> NDArray[np.uint8]:
    from hotloop.populations import degrees, wiring

    size = settings.num_agents
    ends = np.cumsum(degrees.AGENTS_BY_AGE, dtype=np.int64) * size // ASTORIA_AGENTS
    ages = np.repeat(np.arange(len(AGE_GROUPS), dtype=np.uint8), np.diff(ends, prepend=0))
    wiring.shuffle(ages, _stream(settings.seed, _AGE_STREAM))
    return ages


def _stream(seed: int, stream: int) -> NDArray[np.uint64]:
    """Make the state (1,) of an independent stream; mixed, so that near seeds differ."""
    mask = (1 << 64) - 1
    z = (seed * 4 + stream + 1) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return np.array([z ^ (z >> 31)], np.uint64)


def _proportional(of_astoria: int, num_agents: int) -> int:
    """Scale a count of Astoria's to another size; exact at Astoria's."""
    return (of_astoria * num_agents + ASTORIA_AGENTS // 2) // ASTORIA_AGENTS
