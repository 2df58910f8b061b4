"""Actions on their way to the envs: checked once, kept in arrays, handed out one an env."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from hotloop.data.layout import Layout, Tree, leaves
from hotloop.errors import ShapeError

_DOUBLE = np.dtype(np.float64)


class Given(list[Any]):
    """Actions as they are, one an env, where no array holds them; they are not checked."""


class ActionCheck:
    """The actions of several envs as a tree of arrays with one row each.

    Floats stay as exact as they come: a single-precision space takes float64 too, as it does where
    a plain env is stepped. Other types become the space's, where NumPy calls that safe.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.layout = Layout.of(space)
        self._dtype = self.layout.dtype
        self._shape = self.layout.shape
        self._is_array = self.layout.is_leaf and not self._dtype.hasobject

    def __call__(self, actions: Any, num: int) -> Tree:
        """The tree; arrays that fit are not copied.

        Raises: ShapeError for another number of actions, another shape, or another kind of dtype.
        """
        if type(actions) is Given and len(actions) == num:
            return actions
        if self._is_array:
            if (
                type(actions) is np.ndarray
                and actions.dtype == self._dtype
                and actions.shape == (num, *self._shape)
            ):
                return actions
            return self._array(actions, self.layout, num, "actions")
        return self._tree(actions, self.layout, num, "actions")

    def _tree(self, actions: Any, layout: Layout, num: int, where: str) -> Tree:
        if layout.children is None:
            return self._array(actions, layout, num, where)
        if layout.keys is not None:
            if not isinstance(actions, dict) or set(actions) != set(layout.keys):
                got = list(actions) if isinstance(actions, dict) else type(actions).__name__
                raise ShapeError(
                    f"{where}: expected a dict of {list(layout.keys)}, one batch each, got {got}"
                )
            return {
                key: self._tree(actions[key], child, num, f"{where}[{key!r}]")
                for key, child in zip(layout.keys, layout.children, strict=True)
            }
        if not isinstance(actions, tuple) or len(actions) != len(layout.children):
            raise ShapeError(
                f"{where}: expected a tuple of {len(layout.children)} batches, "
                f"got {type(actions).__name__}"
            )
        return tuple(
            self._tree(actions[i], child, num, f"{where}[{i}]")
            for i, child in enumerate(layout.children)
        )

    def _array(self, actions: Any, layout: Layout, num: int, where: str) -> Any:
        if layout.dtype.hasobject:
            if isinstance(actions, str) or not hasattr(actions, "__len__") or len(actions) != num:
                raise ShapeError(f"{where}: expected {num} values of {self.space}, got {actions!r}")
            column = np.full(num, None, object)
            for i, action in enumerate(actions):
                column[i] = action
            return column
        try:
            array = np.asarray(actions)
        except ValueError as error:
            raise ShapeError(f"{where}: expected an array, got values of several shapes") from error
        expected = (num, *layout.shape)
        if array.shape != expected:
            raise ShapeError(
                f"{where}: expected shape {expected} (one row an env, {self.space}), got "
                f"{array.shape}; batch them as action_space.sample() does"
            )
        if array.dtype == layout.dtype or (layout.dtype.kind == "f" and array.dtype == _DOUBLE):
            return array
        if not np.can_cast(array.dtype, layout.dtype, "same_kind"):
            raise ShapeError(
                f"{where}: expected {layout.dtype} ({self.space}), got {array.dtype}; convert them "
                f"with actions.astype(np.{layout.dtype})"
            )
        return array.astype(layout.dtype)


def action_splitter(space: spaces.Space[Any]) -> Callable[[Tree], Sequence[Any]]:
    """What takes a tree of actions apart, one action an env.

    A Discrete space's are Python ints, which an env checks and uses faster than NumPy's.
    """
    layout = Layout.of(space)
    if isinstance(space, spaces.Discrete):
        return lambda actions: actions if type(actions) is Given else actions.tolist()
    if layout.is_leaf:
        return list
    return lambda actions: actions if type(actions) is Given else list(_rows(layout, actions))


def _rows(layout: Layout, actions: Tree) -> Sequence[Any]:
    if layout.children is None:
        return list(actions)
    keys: Sequence[Any] = layout.keys if layout.keys is not None else range(len(layout.children))
    columns = [_rows(child, actions[key]) for key, child in zip(keys, layout.children, strict=True)]
    if layout.keys is None:
        return list(zip(*columns, strict=True))
    return [dict(zip(layout.keys, row, strict=True)) for row in zip(*columns, strict=True)]


def float_widths(tree: Tree, layout: Layout) -> set[bool]:
    """Whether the floats of the actions are wider than the space's; both where leaves differ."""
    return {
        leaf.dtype == _DOUBLE
        for leaf, expected in zip(leaves(tree), layout.leaves, strict=True)
        if expected.dtype.kind == "f" and expected.dtype != _DOUBLE
    }
