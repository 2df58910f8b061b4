"""Networks of agents: which agent reaches which, as sparse rows in both directions.

An edge (src, dst) lets src reach dst. A network is stored in two orders: by receiver (`in_ptr`,
`in_src`: a dense pull reads who reaches every agent) and by sender (`out_ptr`, `out_dst`: a push
reads whom the few active agents reach). Both are built once, by counting, and never change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numba import njit

from hotloop.errors import NetworkError
from hotloop.sim.draws import CONTACTS, uniform, uniform_numpy
from hotloop.sim.sums import COMPILED, DrawnSums, RowSums, summed, widened

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Network:
    """A static network: N agents, E directed edges.

    in_ptr, out_ptr: (N + 1,) where each agent's row begins; int32, or int64 from 2**31 edges on.
    in_src: (E,) int32, the senders that reach each receiver, ascending within a row.
    out_dst: (E,) int32, the receivers that each sender reaches, ascending within a row.

    8 bytes an edge and 8 an agent (16 with int64), and 4 of each more once messages were summed
    on a CPU. `on(device)` gives the edges as tensors.
    """

    in_ptr: Array
    in_src: Array
    out_ptr: Array
    out_dst: Array

    @classmethod
    def from_edges(cls, num_agents: int, edges: Array) -> "Network":
        """Build both orders of `edges`, (E, 2) of int rows (src, dst).

        Raises: NetworkError for edges to agents that do not exist, or of another shape or kind.
        """
        edges = checked_edges(num_agents, edges)
        src, dst = edges[:, 0], edges[:, 1]
        out_ptr, out_dst = _rows(num_agents, src, dst)
        # Filled in the order of senders, so that each receiver's row is sorted.
        in_ptr, in_src = _transposed(num_agents, out_ptr, out_dst)
        # Transposed again, which sorts the rows of senders.
        out_ptr, out_dst = _transposed(num_agents, in_ptr, in_src)
        return cls(_narrow(in_ptr), in_src, _narrow(out_ptr), out_dst)

    @property
    def num_agents(self) -> int:
        """N."""
        return len(self.in_ptr) - 1

    @property
    def num_edges(self) -> int:
        """E, directed."""
        return len(self.in_src)

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        return sum(a.nbytes for a in (self.in_ptr, self.in_src, self.out_ptr, self.out_dst))

    @cached_property
    def max_in_degree(self) -> int:
        """Most senders that reach one agent."""
        return int(np.diff(self.in_ptr).max(initial=0))

    def at(self, _step: int) -> "Network":
        """Return the network of a step: always this one."""
        return self

    @cached_property
    def _tensors(self) -> dict[torch.device, "EdgeTensors"]:
        return {}

    @cached_property
    def measured(self) -> dict[str, Any]:
        """Measurements on this network, by name, kept so that none is made twice."""
        return {}

    def on(self, device: torch.device | str) -> "EdgeTensors":
        """Return the edges by receiver as tensors on a device, moved there once."""
        device = torch.device(device)
        if device not in self._tensors:
            dst = np.repeat(np.arange(self.num_agents, dtype=np.int32), np.diff(self.in_ptr))
            self._tensors[device] = EdgeTensors(
                torch.from_numpy(self.in_src).to(device), torch.from_numpy(dst).to(device)
            )
        return self._tensors[device]

    @cached_property
    def _sums(self) -> RowSums:
        return RowSums(self.in_ptr, self.in_src, self.out_ptr, self.out_dst)

    def sum_from(self, messages: torch.Tensor, step: int = 0) -> torch.Tensor:
        """Sum, for every agent, the messages of the agents that reach it.

        messages: (..., N); integers sum to the same bits in every order and on every device,
        floating-point numbers do not.

        Returns: (..., N), of the messages' dtype; int32 for bool and integers of 8 and 16 bits,
        whose sums would not fit.

        Raises: NetworkError for messages of another shape.
        """
        del step  # the same network in every step
        if messages.device.type == "cpu" and messages.dtype in COMPILED:
            return summed(messages, self._sums)
        return self.on(messages.device).sum_from(messages)


@dataclass(frozen=True, eq=False)
class EdgeTensors:
    """The edges of a network on a device: (E,) int32 senders and receivers, by receiver."""

    src: torch.Tensor
    dst: torch.Tensor

    def sum_from(self, messages: torch.Tensor) -> torch.Tensor:
        """Do as Network.sum_from, in torch's operations alone."""
        messages = widened(messages)
        if messages.dim() == 2 and messages.device.type == "cpu":
            # A batched index_add is a hundred times slower there than one call a row.
            return torch.stack([self.sum_from(row) for row in messages])
        sent = messages.index_select(-1, self.src)
        return torch.zeros_like(messages).index_add_(-1, self.dst, sent)


@dataclass(frozen=True, eq=False)
class PeriodicNetwork:
    """Networks that alternate: step t runs on the (t mod K)-th, such as weekdays and weekends."""

    networks: Sequence[Network]

    def __post_init__(self) -> None:
        if not self.networks:
            raise NetworkError("a periodic network needs at least one network")
        sizes = sorted({network.num_agents for network in self.networks})
        if len(sizes) > 1:
            raise NetworkError(
                f"the networks of a periodic network differ in their number of agents: {sizes}; "
                "build each with the same num_agents"
            )

    @property
    def num_agents(self) -> int:
        """N."""
        return self.networks[0].num_agents

    @property
    def num_edges(self) -> int:
        """E of all networks together."""
        return sum(network.num_edges for network in self.networks)

    @property
    def nbytes(self) -> int:
        """Bytes of all networks together."""
        return sum(network.nbytes for network in self.networks)

    @property
    def max_in_degree(self) -> int:
        """Most senders that reach one agent in a step."""
        return max(network.max_in_degree for network in self.networks)

    def at(self, step: int) -> Network:
        """Return the network of a step."""
        return self.networks[step % len(self.networks)]

    def sum_from(self, messages: torch.Tensor, step: int = 0) -> torch.Tensor:
        """Do as Network.sum_from, on the network of a step."""
        return self.at(step).sum_from(messages)


@dataclass(frozen=True, eq=False)
class RandomContacts:
    """Contacts drawn anew every step: each agent is reached by `degree` others at random.

    A draw belongs to (seed, step, receiver, contact), so every path and device sees the same.
    Contacts may repeat, and an agent may meet itself with probability 1/N.
    """

    num_agents: int
    degree: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_agents < 1 or self.degree < 0:
            raise NetworkError(
                "random contacts need at least one agent and a degree of 0 or more; got "
                f"{self.num_agents} agents and degree {self.degree}"
            )

    @property
    def num_edges(self) -> int:
        """E of a step."""
        return self.num_agents * self.degree

    @property
    def nbytes(self) -> int:
        """Bytes of one step's network, if it is built."""
        return 8 * self.num_edges + 16 * (self.num_agents + 1)

    @property
    def max_in_degree(self) -> int:
        """Senders that reach one agent in a step."""
        return self.degree

    def at(self, step: int) -> Network:
        """Build the network of a step from its draws."""
        drawn = uniform_numpy(self.seed, step, CONTACTS, self.num_edges)
        senders = (drawn * self.num_agents).astype(np.int32)
        in_ptr = np.arange(self.num_agents + 1, dtype=np.int64) * self.degree
        out_ptr, out_dst = _transposed(self.num_agents, in_ptr, senders)
        return Network(_narrow(in_ptr), senders, _narrow(out_ptr), out_dst)

    def sum_from(self, messages: torch.Tensor, step: int | torch.Tensor = 0) -> torch.Tensor:
        """Do as Network.sum_from, on the contacts of a step, drawn on the messages' device."""
        if messages.device.type == "cpu" and messages.dtype in COMPILED:
            return summed(messages, DrawnSums(self.num_agents, self.degree, self.seed, int(step)))
        return self.sum_by_operations(messages, step)

    def sum_by_operations(
        self, messages: torch.Tensor, step: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Do as `sum_from`, in torch's operations alone."""
        messages = widened(messages)
        # Filled by a kernel: a graph cannot capture a copy from the host.
        seed = torch.full((), self.seed, dtype=torch.int64, device=messages.device)
        drawn = uniform(seed, step, CONTACTS, self.num_edges)
        senders = (drawn * self.num_agents).long()
        gathered = messages.index_select(-1, senders)
        per_agent = gathered.view(*gathered.shape[:-1], self.num_agents, self.degree)
        return per_agent.sum(-1, dtype=messages.dtype)


AnyNetwork = Network | PeriodicNetwork | RandomContacts


def checked_edges(num_agents: int, edges: Array, name: str = "edges") -> Array:
    """Check that `edges` is an (E, 2) int array of ids that exist.

    Raises: NetworkError.
    """
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), np.int32)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise NetworkError(f"{name}: expected rows of (src, dst), shape (E, 2); got {edges.shape}")
    if edges.dtype.kind not in "iu":
        raise NetworkError(f"{name}: expected integer ids of agents, got dtype {edges.dtype}")
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= num_agents:
        row = int(np.flatnonzero(((edges < 0) | (edges >= num_agents)).any(axis=1))[0])
        raise NetworkError(
            f"{name}: row {row} is {tuple(edges[row].tolist())}, but the agents are 0 to "
            f"{num_agents - 1}; ids from {low} to {high} occur. Number the agents from 0, or give "
            "the population all of them"
        )
    return edges


def _narrow(pointers: Array) -> Array:
    # Every dense step then reads half the bytes.
    return pointers.astype(np.int32) if pointers[-1] < 2**31 else pointers


@njit(cache=True)
def _rows(num_agents: int, keys: Array, values: Array) -> tuple[Array, Array]:
    """Group values by key with a counting sort; their order within a key stays."""
    pointers = np.zeros(num_agents + 1, np.int64)
    for key in keys:
        pointers[key + 1] += 1
    for agent in range(num_agents):
        pointers[agent + 1] += pointers[agent]
    place = pointers[:-1].copy()
    grouped = np.empty(len(values), np.int32)
    for i in range(len(keys)):
        grouped[place[keys[i]]] = values[i]
        place[keys[i]] += 1
    return pointers, grouped


@njit(cache=True)
def _transposed(num_agents: int, pointers: Array, columns: Array) -> tuple[Array, Array]:
    """Group the same edges by their other end; rows are ascending."""
    turned = np.zeros(num_agents + 1, np.int64)
    for column in columns:
        turned[column + 1] += 1
    for agent in range(num_agents):
        turned[agent + 1] += turned[agent]
    place = turned[:-1].copy()
    grouped = np.empty(len(columns), np.int32)
    for row in range(num_agents):
        for e in range(pointers[row], pointers[row + 1]):
            grouped[place[columns[e]]] = row
            place[columns[e]] += 1
    return turned, grouped
