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

GENERATOR_VERSION = 1
"""Goes up when the same settings give another population: old cache files are then left alone."""

ASTORIA_AGENTS, ASTORIA_EDGES = 37_518, 136_378
BROOKLYN_AGENTS, BROOKLYN_EDGES = 2_700_000, 9_900_000
MOST_AGENTS = 500_000_000

_AGE_SHARES = (0.179, 0.309, 0.153, 0.124, 0.104, 0.132)  # of AGE_GROUPS; normalised below
_EXPOSED, _SELF_LOOPS = 45, 6  # of Astoria; others in proportion
_CONNECTED_STREAM, _NETWORK_STREAM, _AGE_STREAM, _STAGE_STREAM = range(4)


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

    Exact for every seed, from 1,000 agents on: the number of agents and of rows; agents without
    a contact (6,480 of Astoria's 37,518); 6 self-loops in 37,518 agents; no repeated row; one
    component that holds every agent with a contact; largest undirected, out- and in-degree 74,
    73 and 36; 45 exposed in 37,518 agents; the counts of the age codes; the multiset of degrees,
    and with it Astoria's percentiles (undirected 25/50/75/90/99: 2, 6, 10, 18, 34; out 50/90/99:
    1, 11, 27; in: 3, 8, 15). The last two agents have no contact, the one before them has.
    Near: transitivity (a random network of these degrees, 0.0007 at Astoria's size, less above),
    age across an edge (independent: 19% of edges join the same code; 21% in Astoria), reciprocated
    pairs (by chance only, a few). Below 1,000 agents the counts are as near as they fit.
    Agents' ids say nothing about who meets whom: there is no locality in them. Rows are sorted.

    Shapes: see PopulationData; columns hold "age". Memory: 8 B a row and 20 B an agent.
    Raises: PopulationError for numbers that cannot be.
    """
    settings = Settings.of_size(num_agents, seed=seed, num_edges=num_edges)
    return PopulationData(
        name=name or f"synthetic-{settings.num_agents}",
        columns={"age": _ages(settings)},
        edges=_network(settings),
        stages=_stages(settings),
    )


def _network(settings: Settings) -> NDArray[np.int32]:
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
    outgoing, incoming = degrees.degree_sequence(connected, settings.num_edges)
    ids = _connected_ids(settings, connected)
    draws = _stream(settings.seed, _NETWORK_STREAM)
    out_ptr = np.zeros(size + 1, np.int64)
    out_ptr[ids + 1] = outgoing
    np.cumsum(out_ptr, out=out_ptr)
    in_degree = np.zeros(size, np.int16)
    in_degree[ids] = incoming
    edges = np.empty((int(out_ptr[-1]), 2), np.int32)
    wiring.join_stubs(out_ptr, in_degree, edges, draws)
    if wiring.repair(out_ptr, edges, draws):
        edges = edges[edges[:, 1] >= 0]
        out_ptr[1:] = np.cumsum(np.bincount(edges[:, 0], minlength=size))
    loops = _proportional(_SELF_LOOPS, size)
    wiring.plant_self_loops(out_ptr, in_degree, edges, loops, draws)
    wiring.connect(out_ptr, edges, draws)
    wiring.sort_rows(out_ptr, edges)
    return edges


def _connected_ids(settings: Settings, connected: int) -> NDArray[np.int32]:
    """The agents that have contacts, in random order: never the last two where others are free."""
    from hotloop.populations import wiring

    size = settings.num_agents
    draws = _stream(settings.seed, _CONNECTED_STREAM)
    spare = 2 if size - connected >= 2 else 0
    ids = np.arange(size - spare, dtype=np.int32)
    wiring.shuffle(ids, draws)
    last = int(np.argmax(ids))  # the ids that have contacts end with this one
    if last >= connected:
        at = wiring.below(draws, connected)
        ids[[at, last]] = ids[[last, at]]
    return ids[:connected]


def _ages(settings: Settings) -> NDArray[np.uint8]:
    from hotloop.populations import wiring

    size = settings.num_agents
    shares = np.array(_AGE_SHARES) / sum(_AGE_SHARES)
    ends = np.round(np.cumsum(shares) * size).astype(np.int64)
    ends[-1] = size
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
