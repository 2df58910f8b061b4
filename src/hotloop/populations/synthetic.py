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

GENERATOR_VERSION = 2
"""Goes up when the same settings give another population: old cache files are then left alone."""

ASTORIA_AGENTS, ASTORIA_EDGES = 37_518, 136_378
BROOKLYN_AGENTS, BROOKLYN_EDGES = 2_700_000, 9_900_000
MOST_AGENTS = 500_000_000

_EXPOSED, _SELF_LOOPS = 45, 6  # of Astoria; others in proportion
_DEGREE_STREAM, _NETWORK_STREAM, _AGE_STREAM, _STAGE_STREAM = range(4)


@dataclass(frozen=True)
class Settings:
    """What one synthetic population is made from; equal settings give equal arrays."""

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
        """Settings for a number of agents; edges in Astoria's proportion unless given."""
        if num_edges is None and isinstance(num_agents, (int, np.integer)):
            num_edges = _proportional(ASTORIA_EDGES, int(num_agents))
        return cls(num_agents, 0 if num_edges is None else num_edges, seed)


def generate(
    num_agents: int, seed: int = 0, name: str | None = None, *, num_edges: int | None = None
) -> PopulationData:
    """A population of that many agents, the same arrays from a seed on every machine.

    `num_edges` rows are in Astoria's proportion (3.635 an agent) unless given; more or fewer rows
    change the share of agents without a contact, not the shape of the rest.

    The network is made as Astoria's is: all agents stand in a list in random order, each as often
    as half of its degree, and neighbours in the list meet. Half of a degree is negative binomial,
    with a mean and a standard deviation of 4, 4, 4, 4, 3, 2 by age code. Each contact is one row,
    from the agent that stands earlier in the list, by its first place, so no row leads back. The
    exposed are drawn from all agents alike.

    Exact for every seed, from 1,000 agents on: the number of agents and of rows; the counts of the
    age codes; agents without a contact (6,480 of Astoria's 37,518; 16% to 25% by age); 6 self-loops
    in 37,518 agents and no other cycle; no repeated row; one component that holds every agent with
    a contact; the largest undirected degree, 74; 45 exposed in 37,518 agents; the multiset of
    undirected degrees of each age, all even, and with it Astoria's percentiles (25/50/75/90/99: 2,
    6, 10, 18, 34). The last two agents have no contact, the one before them has.
    Near, as they follow from the order of the list: out- and in-degrees (Astoria's percentiles
    50/90/99, out 1, 11, 27, in 3, 8, 15, are met within one; the largest, there 73 and 36, are 58
    to 74 and 24 to 37), their correlation (0.29), transitivity (a random network of these degrees,
    0.0007 at Astoria's size, less above), age across an edge (independent but for the degrees: 21%
    of edges join the same code). Below 1,000 agents the counts are as near as they fit.
    Agents' ids say nothing about who meets whom, nor about the order of the list. Rows are sorted.

    Shapes: see PopulationData; columns hold "age". Memory: 24 B a row and 20 B an agent.
    Raises: PopulationError for numbers that cannot be.
    """
    settings = Settings.of_size(num_agents, seed=seed, num_edges=num_edges)
    ages = _ages(settings)
    return PopulationData(
        name=name or f"synthetic-{settings.num_agents}",
        columns={"age": ages},
        edges=_network(settings, ages),
        stages=_stages(settings),
    )


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


def _halves(
    settings: Settings, ages: NDArray[np.uint8], connected: int
) -> NDArray[np.int16]:
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
    ends = np.cumsum(degrees.AGENTS_BY_AGE) * size // ASTORIA_AGENTS
    ages = np.repeat(np.arange(len(AGE_GROUPS), dtype=np.uint8), np.diff(ends, prepend=0))
    wiring.shuffle(ages, _stream(settings.seed, _AGE_STREAM))
    return ages


def _stages(settings: Settings) -> NDArray[np.uint8]:
    from hotloop.populations import wiring

    size = settings.num_agents
    draws = _stream(settings.seed, _STAGE_STREAM)
    stages = np.zeros(size, np.uint8)
    exposed = max(1, _proportional(_EXPOSED, size))
    while exposed:
        agent = wiring.below(draws, size)
        exposed -= int(stages[agent] == 0)
        stages[agent] = 1
    return stages


def _stream(seed: int, stream: int) -> NDArray[np.uint64]:
    """State (1,) of an independent stream: the seed mixed once, so that near seeds are far."""
    mask = (1 << 64) - 1
    z = (seed * 4 + stream + 1) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return np.array([z ^ (z >> 31)], np.uint64)


def _proportional(of_astoria: int, num_agents: int) -> int:
    """An Astoria count carried to another size: exact at Astoria's."""
    return (of_astoria * num_agents + ASTORIA_AGENTS // 2) // ASTORIA_AGENTS
