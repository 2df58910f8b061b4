"""The network as the expected model reads it: grouped by sender and kind of receiver.

The model keeps one number for each *pair* of a sender and a kind of receiver: about one for three
edges.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hotloop.models.epidemic.gradient.problem import SpreadStart

Array = np.ndarray[Any, Any]


class Pairs(NamedTuple):
    """Pairs of a sender that can be infected and a kind of receiver that can be, too.

    pair_agent: (P,) int32, by kind, then by number of receivers (loops of one length after
    another are quick), then by agent; kind_ptr: (K + 1,) where each kind begins.
    pair_ptr, pair_dst: the receivers of each pair. in_ptr, in_pair: the pairs that reach an agent.
    """

    pair_agent: Array
    kind_ptr: Array
    pair_ptr: Array
    pair_dst: Array
    in_ptr: Array
    in_pair: Array


def build_pairs(start: "SpreadStart") -> Pairs:
    """Sort the edges of a start's network into pairs; O(E log E)."""
    layout, network = start.layout, start.network
    size, dst, kind = network.num_agents, network.out_dst, layout.kind
    src = np.repeat(np.arange(size, dtype=np.int64), np.diff(network.out_ptr))
    kept = layout.reached[src] & layout.free[dst] & (src != dst)
    src, dst = src[kept], dst[kept]
    pair, pair_of = np.unique(kind[dst] * np.int64(size) + src, return_inverse=True)
    agent, pair_kind = pair % size, pair // size
    counts = np.bincount(pair_of, minlength=len(pair))
    order = np.lexsort((agent, counts, pair_kind))
    place = np.empty(len(pair), np.int64)
    place[order] = np.arange(len(pair))
    edge_pair = place[pair_of]
    by_pair = np.argsort(edge_pair, kind="stable")
    by_dst = np.argsort(dst, kind="stable")
    return Pairs(
        agent[order].astype(np.int32),
        np.searchsorted(pair_kind[order], np.arange(len(layout.kind_group) + 1)),
        np.concatenate([[0], np.cumsum(counts[order])]),
        dst[by_pair].astype(np.int32),
        np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=size))]),
        edge_pair[by_dst].astype(np.int32),
    )
