"""Sampling in proportion to priorities: a sum tree, and the weights that correct for it.

A tree is one array of double precision: node k has the children 2k and 2k + 1, node 1 is the root,
and the leaves are its second half. In single precision a descent may end at a leaf of priority 0.
A node is always the sum of its two children, computed anew: nothing drifts, however many updates.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import SettingError, ShapeError, expect_whole
from hotloop.ops.arguments import from_0_to_1

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]


def sum_tree(capacity: int) -> Doubles:
    """Make a tree of `capacity` items of priority 0.

    Returns: (2 S,) for the smallest power of two S that is at least `capacity`; the total is
    `tree[1]`, the priorities are `tree[S : S + capacity]`.
    Raises: SettingError for a capacity below 1.
    """
    expect_whole("sum_tree: capacity", capacity, 1)
    return np.zeros(2 << max(0, int(capacity) - 1).bit_length())


def set_priorities(tree: Doubles, index: Ints, priority: Doubles) -> None:
    """Set the priorities of items, in place; of an item that is named twice, the last one counts.

    Shapes: `tree` from `sum_tree`; `index` and `priority` (n,).
    Raises: ShapeError for other shapes, an index outside of the tree, or a priority that is
    negative or not finite; nothing is changed then.
    """
    _expect_tree("set_priorities", tree)
    index, priority = np.asarray(index, np.int64), np.asarray(priority, np.float64)
    if index.ndim != 1 or priority.shape != index.shape:
        raise ShapeError(
            "set_priorities: expected index and priority of one shape (n,), got "
            f"{index.shape} and {priority.shape}"
        )
    if not len(index):
        return
    if not (np.isfinite(priority).all() and (priority >= 0).all()):
        raise ShapeError("set_priorities: priority: expected numbers of 0 or more, got others")
    if index.min() < 0 or index.max() >= len(tree) // 2:
        raise ShapeError(
            f"set_priorities: index: expected 0 to {len(tree) // 2 - 1}, got "
            f"{index.min()} to {index.max()}"
        )
    _set_priorities(tree, index, priority)


def draw_by_priority(tree: Doubles, uniform: Doubles) -> Ints:
    """Draw items with P(i) = pᵢ / Σ p.

    Shapes: `uniform` (n,), numbers of [0, 1); returns indices (n,). Number u gives the first item
    at which the sum of the priorities passes u Σ p; items of priority 0 are never drawn.
    Raises: ShapeError for other shapes or numbers; SettingError for a tree whose total is 0.
    Source: Schaul et al. 2016, section 3.3.
    """
    _expect_tree("draw_by_priority", tree)
    uniform = np.asarray(uniform, np.float64)
    if uniform.ndim != 1 or not ((uniform >= 0) & (uniform < 1)).all():
        raise ShapeError("draw_by_priority: uniform: expected (n,) numbers of [0, 1), got others")
    if not tree[1] > 0:
        raise SettingError(
            "draw_by_priority: expected items with priorities above 0, got none; set some first"
        )
    index = np.empty(len(uniform), np.int64)
    _draw_by_priority(tree, uniform, index)
    return index


def importance_weights(probability: Doubles, count: int, *, beta: float) -> Doubles:
    """Compute the weights that correct for drawing by priority: wᵢ = (N Pᵢ)^−β / max w.

    Shapes: `probability` (n,), P of the items drawn; returns (n,), the largest is 1: updates are
    only ever made smaller. count: N, of all items. β = 0 corrects nothing, 1 in full.
    Raises: SettingError for beta outside of [0, 1] or a count below 1.
    Source: Schaul et al. 2016, section 3.4; the maximum is that of the batch.
    """
    [beta] = from_0_to_1("importance_weights", beta=beta)
    expect_whole("importance_weights: count", count, 1)
    probability = np.asarray(probability, np.float64)
    if not len(probability):
        return probability.copy()
    # (N P)^−β over its maximum: N and every common factor cancel.
    weights: Doubles = (probability.min() / probability) ** beta
    return weights


def _expect_tree(function: str, tree: NDArray[Any]) -> None:
    length = len(tree) if tree.ndim == 1 else 0
    if tree.dtype != np.float64 or length < 2 or length & (length - 1):
        raise ShapeError(
            f"{function}: tree: expected what `sum_tree` made, got {tree.dtype} {tree.shape}"
        )


def _set_priorities(tree: Doubles, index: Ints, priority: Doubles) -> None:
    half = len(tree) // 2
    nodes = half + index
    for k in range(len(nodes)):
        tree[nodes[k]] = priority[k]
    # Level by level, so that children are whole before their parent is computed. A level that has
    # no more nodes than items is computed whole, in the order of memory.
    level = half // 2
    while level >= 1:
        if level > len(nodes):
            for k in range(len(nodes)):
                node = nodes[k] // 2
                nodes[k] = node
                tree[node] = tree[2 * node] + tree[2 * node + 1]
        else:
            for node in range(level, 2 * level):
                tree[node] = tree[2 * node] + tree[2 * node + 1]
        level //= 2


def _draw_by_priority(tree: Doubles, uniform: Doubles, index: Ints) -> None:
    half = len(tree) // 2
    rest = uniform * tree[1]
    index[:] = 1
    # Level by level: the reads of all items are on their way at once.
    level = 1
    while level < half:
        for k in range(len(index)):
            node = 2 * index[k]
            left = tree[node]
            # To the right only where something is: rounding may leave a rest as large as the sum.
            right = (rest[k] >= left) & (tree[node + 1] > 0.0)
            rest[k] -= left if right else 0.0
            index[k] = node + right
        level *= 2
    index -= half


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _set_priorities = njit(cache=True, nogil=True)(_set_priorities)
    _draw_by_priority = njit(cache=True, nogil=True)(_draw_by_priority)
