"""What the kernels of a spread work on: cohorts made from the columns, buffers, and parts."""

from typing import Any

import numpy as np

from hotloop.models.epidemic.kernels import (
    BLOCK_AGENTS,
    BLOCK_EDGES,
    Agents,
    Rows,
    Scratch,
    Work,
)
from hotloop.models.epidemic.spread import Spread
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]


def gather_work(agents: Agents, work: Work | None, spread: Spread) -> Work:
    """Make the cohorts and their agents from the columns alone.

    work: whose memory is used again; None allocates it.
    """
    size = len(agents.compartment)
    ids = np.flatnonzero((agents.compartment > 0) & (agents.compartment <= spread.num_active))
    keys = np.stack([agents.infected_time[ids], agents.compartment[ids], agents.next_time[ids]])
    order = np.lexsort(keys)
    ids, keys = ids[order], keys[:, order]
    ends = np.append(np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1, len(ids))
    ends = ends[ends > 0]
    begins = np.append(0, ends[:-1])[: len(ends)]
    # One more cohort a step, each until its last compartment has passed.
    cohorts = np.zeros((len(ends) + sum(spread.durations) + 3, 5), np.int64)
    cohorts[: len(ends)] = np.column_stack([begins, ends, *keys[:, begins]])
    active = np.full(size, 0, np.int32) if work is None else work.active
    active[: len(ids)] = ids
    counts = np.zeros(8, np.int64) if work is None else work.counts
    counts[:3] = len(ends), len(ids), len(ids)
    return Work(active, cohorts, counts)


def make_scratch(size: int, pressure: type) -> Scratch:
    """Allocate the buffers of one thread, and write to them, so that no step pays for that."""
    return Scratch(
        np.full(size, 0, pressure),
        np.full(size, 0, np.int32),
        np.full(size, 0, np.int32),
        np.full(size, 0, np.uint8),
    )


def make_buffers(max_in_degree: int, pressure: type) -> tuple[Array, Array, Array]:
    """Allocate the buffers of one part of the agents in a dense step."""
    return (
        np.empty(max(BLOCK_EDGES, max_in_degree) + 1, pressure),
        np.empty(BLOCK_AGENTS + 1, np.int32),
        np.empty(BLOCK_AGENTS + 1, pressure),
    )


def rows_of(network: Network) -> Rows:
    """Collect the arrays of a network that kernels read."""
    return Rows(network.in_ptr, network.in_src, network.out_ptr, network.out_dst)


def part_bounds(rows: Rows, threads: int) -> list[int]:
    """Cut the agents into parts of about equal cost; returns where each begins, and the end."""
    size, edges = len(rows.in_ptr) - 1, int(rows.in_ptr[-1])
    parts = 2 * threads
    cost = (edges + 2 * size) / parts
    bounds = [0]
    for part in range(1, parts):
        low, high = bounds[-1], size
        while low < high:
            middle = (low + high) // 2
            if int(rows.in_ptr[middle]) + 2 * middle < part * cost:
                low = middle + 1
            else:
                high = middle
        bounds.append(low)
    return [*bounds, size]
