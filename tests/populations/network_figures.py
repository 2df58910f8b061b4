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


def reciprocated_rows(edges, size):
    """Rows i -> j, i not j, whose j -> i is there as well."""
    forth = edges[:, 0].astype(np.int64) * size + edges[:, 1]
    back = edges[:, 1].astype(np.int64) * size + edges[:, 0]
    return int((np.isin(forth, back) & (edges[:, 0] != edges[:, 1])).sum())


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
