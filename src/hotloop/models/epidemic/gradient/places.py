"""The network as message passing reads it: those who can be infected, renumbered.

A step back gathers one number for each edge, and what it gathers lies close together: agents of one
kind side by side, so that all of them have the same weights, and in it those whom many reach first.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from hotloop.models.epidemic.gradient.problem import SpreadStart

Array = np.ndarray[Any, Any]


class Places(NamedTuple):
    """Those who can be infected, (M,), by kind, then by falling number of senders.

    agent: (M,) int32. kind_ptr: (K + 1,) where each kind begins.
    place: (N,) int32, where an agent stands; -1 for who cannot be infected.
    ptr, dst: (M + 1,) and int32, the places that each place reaches, ascending, so by kind.
    seed_ptr, seed_dst: (S + 1,) and int32, the places that each reaches who is active at the start.
    """

    agent: Array
    kind_ptr: Array
    place: Array
    ptr: Array
    dst: Array
    seed_ptr: Array
    seed_dst: Array


def build_places(start: "SpreadStart") -> Places:
    """The places of a start; O(E) and a sort of the agents."""
    layout, network = start.layout, start.network
    agents = np.flatnonzero(layout.reached)
    order = np.lexsort((agents, -np.diff(network.in_ptr)[agents], layout.kind[agents]))
    agents = agents[order].astype(np.int32)
    place = np.full(network.num_agents, -1, np.int32)
    place[agents] = np.arange(len(agents), dtype=np.int32)
    kind_ptr = np.searchsorted(layout.kind[agents], np.arange(len(layout.kind_group) + 1))
    return Places(
        agents, kind_ptr, place,
        *_rows(agents, place, network.out_ptr, network.out_dst),
        *_rows(layout.seed_agent, place, network.out_ptr, network.out_dst),
    )  # fmt: skip


@njit(cache=True)
def _rows(senders: Array, place: Array, out_ptr: Array, out_dst: Array) -> tuple[Array, Array]:
    """The places that each sender reaches, without itself, in ascending order."""
    ptr = np.zeros(len(senders) + 1, np.int64)
    for n in range(len(senders)):
        agent = senders[n]
        count = 0
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            count += receiver != agent and place[receiver] >= 0
        ptr[n + 1] = ptr[n] + count
    dst = np.empty(ptr[-1], np.int32)
    for n in range(len(senders)):
        agent, at = senders[n], ptr[n]
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            if receiver != agent and place[receiver] >= 0:
                dst[at] = place[receiver]
                at += 1
        dst[ptr[n] : at].sort()
    return ptr, dst
