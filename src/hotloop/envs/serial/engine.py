"""Several envs in this process, stepped one after the other.

The backend to debug with: an exception is raised where it occurred.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Tree
from hotloop.envs.actions import action_splitter
from hotloop.envs.arguments import as_autoreset_mode
from hotloop.envs.facts import facts_of
from hotloop.envs.group import AnyEnv, EnvGroup, Results
from hotloop.envs.infos import merge_infos
from hotloop.envs.table import Rows, Table, as_rewards
from hotloop.envs.vector import Batch, VectorEnv
from hotloop.errors import TargetError


class SerialVectorEnv(VectorEnv):
    """Gymnasium's vector contract over envs of this process.

    Equal to `gymnasium.vector.SyncVectorEnv` bit for bit, in all autoreset modes and for all
    spaces, except that an env of discrete actions is given a Python int. `send` steps at once.
    Raises: TargetError without envs, or for envs that are not alike; what making an env raises.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], AnyEnv]],
        *,
        autoreset_mode: str | AutoresetMode | None = None,
        batch_size: int | None = None,
        splits: int = 1,
        copy: bool = True,
    ) -> None:
        if not env_fns:
            raise TargetError("vector env: expected at least one env, got none")
        mode = as_autoreset_mode(autoreset_mode or AutoresetMode.NEXT_STEP)
        self._group = EnvGroup(env_fns, mode)
        try:
            facts = facts_of(self._group.made, mode)
            super().__init__(len(env_fns), facts, batch_size=batch_size, splits=splits, copy=copy)
        except Exception:
            self._group.close()
            raise
        self.table = Table.empty(self.layout, self.num_envs, facts.reward_shape)
        self._split_actions = action_splitter(facts.action_space)
        # Of the last step, where it went to the caller without passing through the table.
        self._unwritten: Sequence[Any] | None = None

    @property
    def envs(self) -> list[AnyEnv]:
        """The envs; once this was read, all their wrappers see every step again."""
        return self._group.envs

    def step(self, actions: Tree) -> Batch:
        """One step of every env; see `VectorEnv.step`."""
        if self.closed or self._ready:
            self._refuse_pending("step")
        checked = self.check_actions(actions, self.num_envs)
        results = self._group.step(self._split_actions(checked))
        if self.copy and not self.layout.has_objects:
            self._unwritten = results.obs
            obs = self.layout.stack(results.obs)
        else:
            self._unwritten = None
            self.table.write_obs(slice(None), results.obs)
            obs = self._all_obs()
        return (
            obs,
            as_rewards(results.reward, self.table.reward.shape[1:]),
            results.terminated,
            results.truncated,
            merge_infos(self.num_envs, results.infos) if results.infos else {},
        )

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._write_back()
        try:
            for row, seed in zip(rows.tolist(), seeds, strict=True):
                self._publish(row, self._group.reset([row], [seed], options))
        except Exception:
            self._give_up(rows)
            raise

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        self._write_back()
        try:
            if len(rows) == self.num_envs and np.array_equal(rows, self._everyone):
                self._publish(0, self._group.step(self._split_actions(actions)))
                return
            for row, action in zip(rows.tolist(), self._split_actions(actions), strict=True):
                self._publish(row, self._group.step_one(row, action))
        except Exception:
            self._give_up(rows)
            raise

    def _await(self, count: int, rows: Rows | None) -> None:
        """Nothing to wait for: every env that was sent is ready."""

    def _await_some(self, count: int, timeout_s: float | None) -> None:
        """As `_await`."""

    def _publish(self, first: int, results: Results) -> None:
        self.table.write(first, results)
        self.table.add_infos(first, results.infos)
        self._ready += range(first, first + len(results.terminated))

    def _write_back(self) -> None:
        if self._unwritten is not None:
            self.table.write_obs(slice(None), self._unwritten)
            self._unwritten = None

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._group.call(name, *args, **kwargs)

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        self._group.set_attr(name, values)

    def _render_each(self) -> list[Any]:
        return self._group.render()

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Close every env."""
        self._group.close()
