"""The table of a vector env: the results of its envs' last steps, one row an env."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree, leaves, stack_into
from hotloop.envs.group import EnvInfos, Results
from hotloop.envs.infos import AnyInfos, Columns, Infos, concat_infos, merge_infos, split_infos
from hotloop.errors import ShapeError

Rows = NDArray[np.int64]


class Table:
    """The results of the last step or reset of each env, one row an env, until handed out."""

    def __init__(
        self,
        layout: Layout,
        obs: Tree,
        reward: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        self.layout = layout
        self.obs = obs
        self.reward = reward
        self.terminated = terminated
        self.truncated = truncated
        self._leaves = list(zip(layout.leaves, leaves(obs), strict=True))
        self._infos: dict[int, list[dict[str, Any]]] = {}
        self._columns: dict[int, Columns] = {}  # of vector envs, by their first row

    @classmethod
    def empty(cls, layout: Layout, num_envs: int, reward_shape: tuple[int, ...]) -> "Table":
        """Rows of zeros."""
        return cls(
            layout,
            layout.empty(num_envs),
            np.zeros((num_envs, *reward_shape)),
            np.zeros(num_envs, np.bool_),
            np.zeros(num_envs, np.bool_),
        )

    def write(self, first: int, results: Results) -> None:
        """Write results of consecutive envs into the rows from `first` on."""
        rows = slice(first, first + len(results.terminated))
        self.write_obs(rows, results.obs)
        try:
            self.reward[rows] = results.reward
        except (TypeError, ValueError):
            as_rewards(results.reward, self.reward.shape[1:])  # says what is wrong
            raise
        self.terminated[rows] = results.terminated
        self.truncated[rows] = results.truncated

    def write_obs(self, rows: slice, observations: Sequence[Any]) -> None:
        """Write observations of consecutive envs into their rows."""
        columns = self.layout.columns(observations)
        for (leaf, out), column in zip(self._leaves, columns, strict=True):
            stack_into(leaf, column, out[rows])

    def add_infos(self, first: int, infos: AnyInfos) -> None:
        """Keep infos, their rows counted from `first`, until they are handed out."""
        for k, info in infos:
            if isinstance(info, Columns):
                if first + k in self._columns:
                    self._split_columns()
                self._columns[first + k] = info
            else:
                self._infos.setdefault(first + k, []).append(info)

    def take_infos(self, rows: Rows) -> Infos:
        """Gymnasium's infos of these rows, in this order."""
        if self._columns and not self._infos:
            parts = self._take_columns(rows)
            if parts is not None:
                return concat_infos(parts)
        return merge_infos(len(rows), self.take_env_infos(rows))

    def take_env_infos(self, rows: Rows) -> EnvInfos:
        """The infos of these rows as pairs: a position within `rows`, and an info."""
        self._split_columns()
        if not self._infos:
            return []
        return [
            (k, info) for k, row in enumerate(rows.tolist()) for info in self._infos.pop(row, ())
        ]

    def _take_columns(self, rows: Rows) -> list[tuple[int, Infos]] | None:
        """The infos of vector envs side by side; None where rows hold a part of one, or mixed."""
        asked = rows.tolist()
        parts: list[tuple[int, Infos]] = []
        taken: list[int] = []
        at = 0
        while at < len(asked):
            columns = self._columns.get(asked[at])
            size = 1 if columns is None else columns.num_envs
            if asked[at : at + size] != list(range(asked[at], asked[at] + size)):
                return None
            if columns is not None:
                taken.append(asked[at])
            parts.append((size, {} if columns is None else columns.infos))
            at += size
        if len(taken) < len(self._columns) and self._have_part(asked, taken):
            return None
        for first in taken:
            del self._columns[first]
        return parts

    def _have_part(self, asked: list[int], taken: list[int]) -> bool:
        """Whether rows are asked for whose columns are not taken."""
        left = {first: columns for first, columns in self._columns.items() if first not in taken}
        return any(
            not set(asked).isdisjoint(range(first, first + columns.num_envs))
            for first, columns in left.items()
        )

    def _split_columns(self) -> None:
        for first, columns in self._columns.items():
            for k, info in enumerate(split_infos(columns.infos, columns.num_envs)):
                if info:
                    self._infos.setdefault(first + k, []).append(info)
        self._columns.clear()


def as_rewards(rewards: Sequence[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """One row of `shape` an env.

    Raises: ShapeError for rewards of another shape.
    """
    array = np.array(rewards, np.float64)
    if array.shape != (len(rewards), *shape):
        raise ShapeError(
            f"rewards: expected {shape or 'one number'} an env, got shape {array.shape[1:]}; an "
            "env whose rewards are vectors declares them as `reward_space`"
        )
    return array
