"""The network of message passing: the agents that can be infected, renumbered as nodes.

A step back reads one number for each edge. The nodes are ordered so that these reads are close in
memory: by kind, as nodes of one kind have the same weights, then by falling number of senders.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hotloop.models.epidemic.gradient.structure import SpreadStructure
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]


class CompactNetwork(NamedTuple):
    """The agents that can be infected as M nodes, and their edges.

    agent: (M,) int32, the agent of each node. kind_ptr: (K + 1,) where the nodes of a kind begin.
    node: (N,) int32, the node of each agent; -1 for an agent that cannot be infected.
    ptr, dst: (M + 1,), and int32 the nodes that each node reaches, ascending, and so by kind.
    initial_ptr, initial_dst: (S + 1,), and int32 the nodes that each initial agent reaches.
    """

    agent: Array
    kind_ptr: Array
    node: Array
    ptr: Array
    dst: Array
    initial_ptr: Array
    initial_dst: Array


def build_compact_network(structure: SpreadStructure, network: Network) -> CompactNetwork:
    """Renumber the agents that can be infected; O(E) and a sort of the agents."""
    agents = np.flatnonzero(structure.reached)
    order = np.lexsort((agents, -np.diff(network.in_ptr)[agents], structure.kind[agents]))
    agents = agents[order].astype(np.int32)
    node = np.full(network.num_agents, -1, np.int32)
    node[agents] = np.arange(len(agents), dtype=np.int32)
    kind_ptr = np.searchsorted(structure.kind[agents], np.arange(len(structure.kind_group) + 1))
    return CompactNetwork(
        agents, kind_ptr, node,
        *_rows(agents, node, network.out_ptr, network.out_dst),
        *_rows(structure.initial_agent, node, network.out_ptr, network.out_dst),
    )  # fmt: skip


@njit(cache=True)
def _rows(senders: Array, node: Array, out_ptr: Array, out_dst: Array) -> tuple[Array, Array]:
    """List the nodes that each sender reaches, without itself, ascending."""
    ptr = np.zeros(len(senders) + 1, np.int64)
    for n in range(len(senders)):
        agent = senders[n]
        count = 0
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            count += receiver != agent and node[receiver] >= 0
        ptr[n + 1] = ptr[n] + count
    dst = np.empty(ptr[-1], np.int32)
    for n in range(len(senders)):
        agent, at = senders[n], ptr[n]
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            if receiver != agent and node[receiver] >= 0:
                dst[at] = node[receiver]
                at += 1
        dst[ptr[n] : at].sort()
    return ptr, dst
