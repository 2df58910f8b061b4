"""Batches of observations as Gymnasium hands them out, taken apart and put together by env.

Apart from `hotloop.data.layout`, whose trees hold arrays of objects where these hold tuples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hotloop.data.layout import Layout, Tree


def layout_of(values: Any) -> Layout:
    """The layout of one row of an array."""
    array = np.asarray(values)
    return Layout(array.dtype, array.shape[1:])


def _walk(layout: Layout, make: Callable[..., Any], *trees: Tree) -> Tree:
    """`make(leaf layout, *leaves)` for every leaf; a leaf of objects is a tuple of them."""
    if layout.children is None:
        return make(layout, *trees)
    keys: Any = layout.keys if layout.keys is not None else range(len(layout.children))
    made = [
        _walk(child, make, *(tree[key] for tree in trees))
        for key, child in zip(keys, layout.children, strict=True)
    ]
    return tuple(made) if layout.keys is None else dict(zip(layout.keys, made, strict=True))


def taken(layout: Layout, tree: Tree, columns: slice) -> Tree:
    """The observations of some envs."""
    return _walk(layout, lambda _, leaf: leaf[columns], tree)


def one(layout: Layout, tree: Tree, b: int) -> Any:
    """One env's observation."""
    return _walk(layout, lambda _, leaf: leaf[b], tree)


def copied(layout: Layout, tree: Tree) -> Tree:
    """The observations in memory of their own."""
    return _walk(
        layout, lambda kind, leaf: tuple(leaf) if kind.dtype.hasobject else np.copy(leaf), tree
    )


def joined(layout: Layout, parts: list[Tree]) -> Tree:
    """The observations of all envs, from those of the groups in order."""

    def join(kind: Layout, *leaves: Any) -> Any:
        if kind.dtype.hasobject:
            return tuple(item for leaf in leaves for item in leaf)
        return np.concatenate(leaves)

    return _walk(layout, join, *parts)
