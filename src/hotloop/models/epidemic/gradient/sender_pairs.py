"""The network of the expected model: edges grouped by sender and kind of receiver.

The model keeps one number for each *pair* of a sender and a kind of receiver: about one for three
edges.
"""

from typing import Any, NamedTuple

import numpy as np

from hotloop.models.epidemic.gradient.structure import SpreadStructure
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]


class SenderPairs(NamedTuple):
    """Pairs of a sender and a kind of receiver, of agents that can be infected.

    pair_agent: (P,) int32 senders, sorted by kind, then by number of receivers (loops of equal
    length run fast after each other), then by agent.
    kind_ptr: (K + 1,) where the pairs of each kind begin.
    pair_ptr, pair_dst: the receivers of each pair. in_ptr, in_pair: the pairs that reach an agent.
    """

    pair_agent: Array
    kind_ptr: Array
    pair_ptr: Array
    pair_dst: Array
    in_ptr: Array
    in_pair: Array


def build_sender_pairs(structure: SpreadStructure, network: Network) -> SenderPairs:
    """Sort the edges of a network into pairs; O(E log E)."""
    size, dst, kind = network.num_agents, network.out_dst, structure.kind
    src = np.repeat(np.arange(size, dtype=np.int64), np.diff(network.out_ptr))
    kept = structure.reached[src] & structure.susceptible[dst] & (src != dst)
    src, dst = src[kept], dst[kept]
    pair, pair_of = np.unique(kind[dst] * np.int64(size) + src, return_inverse=True)
    agent, pair_kind = pair % size, pair // size
    counts = np.bincount(pair_of, minlength=len(pair))
    order = np.lexsort((agent, counts, pair_kind))
    rank = np.empty(len(pair), np.int64)
    rank[order] = np.arange(len(pair))
    edge_pair = rank[pair_of]
    by_pair = np.argsort(edge_pair, kind="stable")
    by_dst = np.argsort(dst, kind="stable")
    return SenderPairs(
        agent[order].astype(np.int32),
        np.searchsorted(pair_kind[order], np.arange(len(structure.kind_group) + 1)),
        np.concatenate([[0], np.cumsum(counts[order])]),
        dst[by_pair].astype(np.int32),
        np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=size))]),
        edge_pair[by_dst].astype(np.int32),
    )
