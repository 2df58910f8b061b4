"""A vector env composed of other vector envs (native ones, pools) in this process.

What a worker process can hold can be held here as well, to be debugged in one process.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Tree, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.arguments import as_autoreset_mode
from hotloop.envs.infos import AnyInfos, concat_infos
from hotloop.envs.serial.engine import SerialVectorEnv
from hotloop.envs.slab import Slab, VectorSlab, expect_whole_slabs, make_slabs
from hotloop.envs.table import Rows, Table
from hotloop.envs.vector import Batch, VectorEnv
from hotloop.errors import TargetError


def make_serial(
    fns: Sequence[Callable[[], Any]],
    *,
    autoreset_mode: str | AutoresetMode | None = None,
    batch_size: int | None = None,
    splits: int = 1,
    copy: bool = True,
) -> VectorEnv:
    """A vector env of this process, of functions that make envs or vector envs.

    Raises: as `SerialVectorEnv` and `ComposedVectorEnv`.
    """
    settings: dict[str, Any] = {
        "autoreset_mode": autoreset_mode,
        "batch_size": batch_size,
        "splits": splits,
        "copy": copy,
    }
    if not fns:
        return SerialVectorEnv(fns, **settings)  # refuses it
    try:
        first = fns[0]()
    except BaseException as error:
        error.add_note("while making env 0")
        raise
    made = iter([first])
    again = [lambda: next(made), *fns[1:]]
    if isinstance(first, gymnasium.vector.VectorEnv):
        return ComposedVectorEnv(again, **settings)
    return SerialVectorEnv(again, **settings)


class ComposedVectorEnv(VectorEnv):
    """Gymnasium's vector contract over vector envs of this process, each stepped as a whole.

    autoreset_mode: None for the one that the vector envs have. Raises: TargetError for vector envs
    that are not alike or have another mode; what making one raises.
    """

    def __init__(
        self,
        fns: Sequence[Callable[[], gymnasium.vector.VectorEnv[Any, Any, Any]]],
        *,
        autoreset_mode: str | AutoresetMode | None = None,
        batch_size: int | None = None,
        splits: int = 1,
        copy: bool = True,
    ) -> None:
        mode = None if autoreset_mode is None else as_autoreset_mode(autoreset_mode)
        slabs = make_slabs(fns, mode, 0)
        self._slabs = [slab for slab in slabs if isinstance(slab, VectorSlab)]
        if not self._slabs:
            slabs[0].close()
            raise TargetError("vector env: expected makers of vector envs, got makers of envs")
        try:
            facts = self._slabs[0].facts
            facts.expect_mode(mode)
            for slab in self._slabs[1:]:
                slab.facts.expect_like(facts, slab.first)
            super().__init__(
                sum(slab.num_envs for slab in self._slabs),
                facts,
                batch_size=batch_size,
                splits=splits,
                copy=copy,
            )
        except Exception:
            for slab in self._slabs:
                slab.close()
            raise
        self.table = Table.empty(self.layout, self.num_envs, facts.reward_shape)
        for slab in self._slabs:
            slab.table = self.table

    def step(self, actions: Tree) -> Batch:
        """One step of every env; see `VectorEnv.step`.

        The results of a single vector env go to the caller without passing through the table, which
        its next reset or `send` writes anew.
        """
        if len(self._slabs) > 1 or not self.layout.is_leaf or self.layout.has_objects:
            return super().step(actions)
        self._refuse_pending("step")
        checked = self.check_actions(actions, self.num_envs)
        obs, reward, terminated, truncated, infos = self._slabs[0].step_whole(checked)
        array = np.array if self.copy else np.asarray
        return (
            array(obs, self.layout.dtype),
            np.array(reward, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            concat_infos([(self.num_envs, infos)]) if infos else {},
        )

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        asked = dict(zip(rows.tolist(), seeds, strict=True))
        try:
            for slab in self._slabs:
                whole = range(slab.first, slab.first + slab.num_envs)
                own = [row for row in whole if row in asked]
                if own:
                    infos = slab.reset(
                        [row - slab.first for row in own], [asked[row] for row in own], options
                    )
                    self.table.add_infos(slab.first, infos)
                    self._ready += own
        except Exception:
            self._give_up(rows)
            raise

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        at = np.full(self.num_envs, -1)
        at[rows] = np.arange(len(rows))
        try:
            expect_whole_slabs(rows, [(slab.first, slab.num_envs) for slab in self._slabs])
            for slab in self._slabs:
                own = at[slab.first : slab.first + slab.num_envs]
                if own[0] >= 0:
                    self.table.add_infos(slab.first, _step(slab, actions, own))
                    self._ready += range(slab.first, slab.first + slab.num_envs)
        except Exception:
            self._give_up(rows)
            raise

    def _await(self, count: int, rows: Rows | None) -> None:
        """Nothing to wait for: every env that was sent is ready."""

    def _await_some(self, count: int, timeout_s: float | None) -> None:
        """As `_await`."""

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [got for slab in self._slabs for got in slab.call(name, args, kwargs)]

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        for slab in self._slabs:
            slab.set_attr(name, values[slab.first : slab.first + slab.num_envs])

    def _render_each(self) -> list[Any]:
        return [frame for slab in self._slabs for frame in slab.render()]

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Close every vector env; the first error is raised after all were closed."""
        first: Exception | None = None
        for slab in self._slabs:
            try:
                slab.close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


def _step(slab: Slab, actions: Tree, own: Rows) -> AnyInfos:
    """One step of a slab. own: the positions of its rows among the actions."""
    if type(actions) is Given:
        return slab.step_given(None, [actions[k] for k in own.tolist()])
    return slab.step(tree_map(lambda leaf: leaf[own], actions))
