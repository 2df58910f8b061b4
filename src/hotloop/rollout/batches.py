"""Split and join batches of observations by env, in the form in which Gymnasium returns them.

Apart from `hotloop.data.layout`: its trees hold arrays of objects where these hold tuples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hotloop.data.layout import Layout, Tree


def layout_of(values: Any) -> Layout:
    """Return the layout of one row of an array."""
    array = np.asarray(values)
    return Layout(array.dtype, array.shape[1:])


def rows_of(layout: Layout, batch: Tree, rows: slice) -> Tree:
    """Return the observations of some envs."""
    return _map_leaves(layout, lambda _, leaf: leaf[rows], batch)


def row_of(layout: Layout, batch: Tree, b: int) -> Any:
    """Return the observation of one env."""
    return _map_leaves(layout, lambda _, leaf: leaf[b], batch)


def copy_of(layout: Layout, batch: Tree) -> Tree:
    """Copy the observations."""
    return _map_leaves(
        layout, lambda kind, leaf: tuple(leaf) if kind.dtype.hasobject else np.copy(leaf), batch
    )


def concatenated(layout: Layout, batches: list[Tree]) -> Tree:
    """Join the observations of groups of envs, in their order."""

    def join(kind: Layout, *leaves: Any) -> Any:
        if kind.dtype.hasobject:
            return tuple(item for leaf in leaves for item in leaf)
        return np.concatenate(leaves)

    return _map_leaves(layout, join, *batches)


def _map_leaves(layout: Layout, make: Callable[..., Any], *batches: Tree) -> Tree:
    """Return `make(leaf layout, *leaves)` for every leaf; a leaf of objects is a tuple of them."""
    if layout.children is None:
        return make(layout, *batches)
    keys: Any = layout.keys if layout.keys is not None else range(len(layout.children))
    made = [
        _map_leaves(child, make, *(batch[key] for batch in batches))
        for key, child in zip(keys, layout.children, strict=True)
    ]
    return tuple(made) if layout.keys is None else dict(zip(layout.keys, made, strict=True))
