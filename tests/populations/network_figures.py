"""What the tests count about a network, in plain numpy."""

import numpy as np


def degrees(edges, size):
    """Out- and in-degree of every agent."""
    return np.bincount(edges[:, 0], minlength=size), np.bincount(edges[:, 1], minlength=size)


def percentiles(values, at):
    """Percentiles as whole numbers."""
    return [int(value) for value in np.percentile(values, at)]


def repeated_rows(edges, size):
    """Rows that are there more than once."""
    return len(edges) - len(np.unique(edges[:, 0].astype(np.int64) * size + edges[:, 1]))


def longest_chain(edges, size):
    """Number of agents on the longest chain of rows, one row's dst the next one's src."""
    edges = edges[edges[:, 0] != edges[:, 1]]
    incoming = np.bincount(edges[:, 1], minlength=size)
    rows = _by_source(edges, size)
    here, length = np.flatnonzero(incoming == 0), 0
    while len(here):
        length += 1
        targets = np.concatenate([rows[agent] for agent in here])
        np.subtract.at(incoming, targets, 1)
        targets = np.unique(targets)
        here = targets[incoming[targets] == 0]
    return length


def reached(edges, size, starts):
    """For each of some agents: the number of others to whom a chain of rows leads from it."""
    rows = _by_source(edges, size)
    numbers = []
    for start in starts:
        seen = np.zeros(size, bool)
        seen[start] = True
        here = [start]
        while len(here):
            targets = np.unique(np.concatenate([rows[agent] for agent in here]))
            here = targets[~seen[targets]]
            seen[here] = True
        numbers.append(int(seen.sum()) - 1)
    return numbers


def _by_source(edges, size):
    """Each agent's targets."""
    order = np.argsort(edges[:, 0], kind="stable")
    ends = np.cumsum(np.bincount(edges[:, 0], minlength=size))
    return np.split(edges[order, 1], ends[:-1])


def component_sizes(edges, size):
    """Sizes of the components with two agents or more, the largest first."""
    label = np.arange(size)
    while True:
        least = label.copy()
        np.minimum.at(least, edges[:, 0], label[edges[:, 1]])
        np.minimum.at(least, edges[:, 1], label[edges[:, 0]])
        least = least[least]
        if (least == label).all():
            break
        label = least
    sizes = np.bincount(label)
    return sorted(sizes[sizes > 1].tolist(), reverse=True)


def transitivity(edges):
    """Closed share of the undirected paths of two edges."""
    near = {}
    for i, j in edges.tolist():
        if i != j:
            near.setdefault(i, set()).add(j)
            near.setdefault(j, set()).add(i)
    closed = sum(len(near[i] & near[j]) for i in near for j in near[i])
    paths = sum(len(friends) * (len(friends) - 1) for friends in near.values())
    return closed / paths
