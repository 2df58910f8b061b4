"""The array layout of a Gymnasium space: of one value, and of batches of them.

A tree is what Gymnasium batches a space into: an array for a space of fixed shape and type, a dict
for `Dict`, a tuple for `Tuple`. A space without fixed shape (Text, Graph, Sequence, OneOf, one of
your own) is an array of objects here; Gymnasium returns those as a tuple, see `public`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Tree = Any  # an array, or a dict or tuple of trees
_FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_ALIGNMENT_BYTES = 64  # a cache line: rows of two workers do not share one where they meet


@dataclass(frozen=True)
class Layout:
    """Types and shapes of one value of a space.

    dtype and shape: of a leaf; object and () where the space has no fixed ones. children: of a
    Dict (with keys) or a Tuple (keys is None), in the space's order.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    children: "tuple[Layout, ...] | None" = None
    keys: tuple[str, ...] | None = None

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> "Layout":
        """The layout of a space's values."""
        if isinstance(space, spaces.Dict):
            children = tuple(cls.of(child) for child in space.spaces.values())
            return cls(np.dtype(object), (), children, tuple(space.spaces))
        if isinstance(space, spaces.Tuple):
            return cls(np.dtype(object), (), tuple(cls.of(child) for child in space.spaces))
        if isinstance(space, _FIXED) and space.shape is not None:
            return cls(np.dtype(space.dtype), space.shape)
        return cls(np.dtype(object), ())

    @property
    def is_leaf(self) -> bool:
        """Whether the values are arrays or objects, not dicts or tuples."""
        return self.children is None

    @property
    def leaves(self) -> "list[Layout]":
        """The leaves, in order."""
        if self.children is None:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves]

    @cached_property  # asked in every step
    def has_objects(self) -> bool:
        """Whether some leaf has no fixed shape, so that it cannot lie in shared memory."""
        return any(leaf.dtype.hasobject for leaf in self.leaves)

    def empty(self, *prefix: int) -> Tree:
        """A tree of zeros, each leaf of shape (*prefix, *its shape); objects are None."""
        return self._build(
            lambda leaf: (
                np.full((*prefix, *leaf.shape), None, object)
                if leaf.dtype.hasobject
                else np.zeros((*prefix, *leaf.shape), leaf.dtype)
            )
        )

    def nbytes(self, *prefix: int) -> int:
        """The bytes that `in_buffer` needs."""
        return sum(_padded(leaf, prefix) for leaf in self.leaves)

    def in_buffer(self, buffer: Any, offset: int, *prefix: int) -> Tree:
        """Like `empty`, in `nbytes` of a buffer from `offset` on; objects stay outside of it."""
        at = offset

        def leaf_in_buffer(leaf: Layout) -> NDArray[Any]:
            nonlocal at
            shape = (*prefix, *leaf.shape)
            if leaf.dtype.hasobject:
                return np.full(shape, None, object)
            start, at = at, at + _padded(leaf, prefix)
            return np.ndarray(shape, leaf.dtype, buffer, start)

        return self._build(leaf_in_buffer)

    def columns(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of several envs, leaf by leaf."""
        if self.children is None:
            return [values]
        keys: Sequence[Any] = self.keys if self.keys is not None else range(len(self.children))
        return [
            column
            for key, child in zip(keys, self.children, strict=True)
            for column in child.columns([value[key] for value in values])
        ]

    def stack(self, values: Sequence[Any]) -> Tree:
        """A new tree with one row for each value.

        Raises: ValueError or TypeError for a value whose shape or type does not fit, as NumPy.
        """
        columns = iter(self.columns(values))
        return self._build(lambda leaf: _stack(leaf, next(columns)))

    def row(self, tree: Tree, index: int) -> Any:
        """One value out of a tree of rows, as the space has it; arrays are copies."""
        if self.children is None:
            value = tree[index]
            return value.copy() if isinstance(value, np.ndarray) else value
        if self.keys is None:
            return tuple(
                child.row(part, index) for child, part in zip(self.children, tree, strict=True)
            )
        return {
            key: child.row(tree[key], index)
            for key, child in zip(self.keys, self.children, strict=True)
        }

    def arrays(self, batch: Tree) -> list[NDArray[Any]]:
        """The leaves of a batch as Gymnasium returns it: the inverse of `public`."""
        if self.children is not None:
            keys: Sequence[Any] = self.keys or range(len(self.children))
            return [
                leaf
                for key, child in zip(keys, self.children, strict=True)
                for leaf in child.arrays(batch[key])
            ]
        if not self.dtype.hasobject:
            return [np.asarray(batch)]
        column = np.full(len(batch), None, object)
        for i, value in enumerate(batch):
            column[i] = value
        return [column]

    def public(self, tree: Tree) -> Tree:
        """The tree as Gymnasium returns it: arrays of objects become tuples."""
        if not self.has_objects:
            return tree
        arrays = iter(leaves(tree))

        def handed_out(leaf: Layout) -> Any:
            array = next(arrays)
            return tuple(array.tolist()) if leaf.dtype.hasobject else array

        return self._build(handed_out)

    def _build(self, make: "Callable[[Layout], Any]") -> Tree:
        if self.children is None:
            return make(self)
        built = [child._build(make) for child in self.children]
        if self.keys is None:
            return tuple(built)
        return dict(zip(self.keys, built, strict=True))


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves of a tree, in order."""
    if isinstance(tree, dict):
        for child in tree.values():
            yield from leaves(child)
    elif isinstance(tree, tuple):
        for child in tree:
            yield from leaves(child)
    else:
        yield tree


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """The tree of `function(leaf, *leaves at the same place)`."""
    if isinstance(tree, dict):
        return {
            key: tree_map(function, child, *(other[key] for other in others))
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        return tuple(tree_map(function, *children) for children in zip(tree, *others, strict=True))
    return function(tree, *others)


def stack_into(leaf: Layout, column: Sequence[Any], out: NDArray[Any]) -> None:
    """Write one value a row into `out`, (n, *shape), with the casts that NumPy calls same-kind."""
    if leaf.dtype.hasobject:
        for row, value in enumerate(column):
            out[row] = value
    elif leaf.shape:
        # Twice as fast as np.stack for small arrays, which looks at shapes just the same.
        _expect_lengths(leaf, column)
        np.concatenate(column, out=out.reshape(-1, *leaf.shape[1:]), casting="same_kind")
    else:
        np.copyto(out, _numbers(column), casting="same_kind")


def _stack(leaf: Layout, column: Sequence[Any]) -> NDArray[Any]:
    if leaf.dtype.hasobject:
        out = np.full(len(column), None, object)
        stack_into(leaf, column, out)
        return out
    if leaf.shape:
        _expect_lengths(leaf, column)
        joined = np.concatenate(column, dtype=leaf.dtype, casting="same_kind")
        if joined.shape[1:] != leaf.shape[1:]:
            raise ValueError(f"expected values of shape {leaf.shape}, got {np.shape(column[0])}")
        return joined.reshape(len(column), *leaf.shape)
    return _numbers(column).astype(leaf.dtype, casting="same_kind", copy=False)


def _expect_lengths(leaf: Layout, column: Sequence[Any]) -> None:
    # Joined, one that is too long and one that is too short would pass for two that fit.
    lengths = set(map(len, column))
    if lengths != {leaf.shape[0]}:
        raise ValueError(
            f"expected values of shape {leaf.shape}, got some of shapes "
            f"{sorted({np.shape(value) for value in column})[:4]}"
        )


def _numbers(column: Sequence[Any]) -> NDArray[Any]:
    array = np.array(column)
    if array.ndim != 1:
        raise ValueError(f"expected one number an env, got shape {array.shape[1:]}")
    return array


def _padded(leaf: Layout, prefix: tuple[int, ...]) -> int:
    if leaf.dtype.hasobject:
        return 0
    size = leaf.dtype.itemsize * math.prod(prefix) * math.prod(leaf.shape)
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
