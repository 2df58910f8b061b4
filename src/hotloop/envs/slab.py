"""Slabs: consecutive envs that a worker steps together.

A slab is a group of envs, or one vector env of any library: a native one (EnvPool, an env's
`vector_entry_point`), or another pool.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.envs.actions import action_splitter
from hotloop.envs.facts import Facts, facts_of
from hotloop.envs.group import EnvGroup, Results
from hotloop.envs.infos import AnyInfo, AnyInfos, Columns, split_infos
from hotloop.envs.table import Rows, Table
from hotloop.errors import StateError, TargetError


class Slab(ABC):
    """Envs in rows `first` to `first + num_envs - 1` of a table, stepped together."""

    first: int
    num_envs: int
    facts: Facts
    table: Table

    @abstractmethod
    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> AnyInfos:
        """Start an episode in these rows, counted within the slab; writes the table."""

    @abstractmethod
    def step(self, actions: Tree) -> AnyInfos:
        """One step of all, with a batch of actions; writes the table."""

    @abstractmethod
    def step_one(self, row: int, actions: Tree) -> AnyInfos:
        """One step of one row, with the batch of actions that all have; writes the table."""

    @abstractmethod
    def step_given(self, row: int | None, actions: Sequence[Any]) -> AnyInfos:
        """One step of all, or of one row, with actions as they are; writes the table."""

    @abstractmethod
    def restore(self, seeds: Sequence[int], lost: Sequence[int], over: Sequence[int]) -> None:
        """Begin anew in a new worker. lost: rows whose episode was cut; over: that had ended."""

    @abstractmethod
    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """An attribute of every env, or what its method returns."""

    @abstractmethod
    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute, one value an env."""

    @abstractmethod
    def render(self) -> list[Any]:
        """What every env renders."""

    @abstractmethod
    def close(self) -> None:
        """Close the envs. Idempotent."""


class GroupSlab(Slab):
    """A group of single envs."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        autoreset_mode: AutoresetMode,
        first: int,
    ) -> None:
        self.group = EnvGroup(env_fns, autoreset_mode, first)
        self.first, self.num_envs = first, len(env_fns)
        try:
            self.facts = facts_of(self.group.made, autoreset_mode, first)
        except TargetError:
            self.close()
            raise
        self._split = action_splitter(self.facts.action_space)

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> AnyInfos:
        """See `Slab`."""
        infos: list[AnyInfo] = []
        for row, seed in zip(rows, seeds, strict=True):
            infos += self._write(row, self.group.reset([row], [seed], options))
        return infos

    def step(self, actions: Tree) -> AnyInfos:
        """See `Slab`."""
        return self._write(0, self.group.step(self._split(actions)))

    def step_one(self, row: int, actions: Tree) -> AnyInfos:
        """See `Slab`."""
        (action,) = self._split(tree_map(lambda leaf: leaf[row : row + 1], actions))
        return self._write(row, self.group.step_one(row, action))

    def step_given(self, row: int | None, actions: Sequence[Any]) -> AnyInfos:
        """See `Slab`."""
        if row is None:
            return self._write(0, self.group.step(actions))
        return self._write(row, self.group.step_one(row, actions[0]))

    def restore(self, seeds: Sequence[int], lost: Sequence[int], over: Sequence[int]) -> None:
        """See `Slab`."""
        known = {row: self.table.layout.row(self.table.obs, self.first + row) for row in lost}
        started = [*lost, *over]
        self.group.reset(started, [seeds[row] for row in started], None)
        for row in lost:
            self.group.lose(row, known[row])
        for row in over:
            self.group.await_reset(row)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """See `Slab`."""
        return self.group.call(name, *args, **kwargs)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """See `Slab`."""
        self.group.set_attr(name, values)

    def render(self) -> list[Any]:
        """See `Slab`."""
        return self.group.render()

    def close(self) -> None:
        """See `Slab`."""
        self.group.close()

    def _write(self, row: int, results: Results) -> AnyInfos:
        self.table.write(self.first + row, results)
        return [(row + k, info) for k, info in results.infos] if row else results.infos


class VectorSlab(Slab):
    """One vector env of any library; it is stepped as a whole."""

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], first: int) -> None:
        self.envs = envs
        self.first, self.num_envs = first, envs.num_envs
        mode = envs.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            envs.close()
            raise TargetError(
                f"vector env: {type(envs).__qualname__}: expected metadata['autoreset_mode'] to be "
                f"a gymnasium.vector.AutoresetMode, got {mode!r}; say there how it resets its envs"
            )
        self.facts = Facts(envs, mode)
        self._layout = Layout.of(envs.single_observation_space)
        self._instead_of_steps: list[Callable[[], AnyInfos]] = []
        self._lost = np.zeros(envs.num_envs, np.bool_)  # rows whose episode is to be reported cut

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> AnyInfos:
        """See `Slab`; consecutive seeds are passed on as the first of them."""
        if len(rows) < self.num_envs:
            mask = np.zeros(self.num_envs, np.bool_)
            mask[list(rows)] = True
            options = {**(options or {}), "reset_mask": mask}
        every: list[int | None] = [None] * self.num_envs
        for row, seed in zip(rows, seeds, strict=True):
            every[row] = seed
        obs, infos = self.envs.reset(seed=_as_vector_seed(every, len(rows)), options=options)
        if len(rows) == self.num_envs:
            self._instead_of_steps = []
        self._lost[list(rows)] = False
        nothing = np.zeros(self.num_envs, np.bool_)
        pairs = self._write(obs, np.zeros(self.num_envs), nothing, nothing, infos)
        if not pairs or len(rows) == self.num_envs:
            return pairs
        # The infos may hold envs that were not reset.
        split = split_infos(infos, self.num_envs)
        return [(row, split[row]) for row in rows if split[row]]

    def step(self, actions: Tree) -> AnyInfos:
        """See `Slab`."""
        return self._step(tree_map(np.array, actions))

    def step_whole(self, actions: Tree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of all, as the vector env gives it; the table stays as it is."""
        return self.envs.step(tree_map(np.array, actions))

    def step_one(self, row: int, actions: Tree) -> AnyInfos:  # noqa: ARG002  # one of several slabs
        """Never called: the driver sends whole slabs."""
        raise AssertionError(f"row {row} of a vector env cannot be stepped alone")

    def step_given(self, row: int | None, actions: Sequence[Any]) -> AnyInfos:  # noqa: ARG002
        """See `Slab`; the driver gives whole slabs."""
        layout = Layout.of(self.envs.single_action_space)
        return self._step(layout.public(layout.stack(actions)))

    def restore(self, seeds: Sequence[int], lost: Sequence[int], over: Sequence[int]) -> None:
        """See `Slab`. All its envs begin anew together, those whose episode was over as well."""
        if not lost and not over:
            return
        obs, infos = self.envs.reset(seed=seeds[0])
        self._lost[:] = True
        begin = partial(self._write_quiet, obs, infos)
        if self.facts.autoreset_mode == AutoresetMode.SAME_STEP:
            self._instead_of_steps = [lambda: [*self._report_lost(), *begin()]]
        elif self.facts.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._instead_of_steps = [self._report_lost, begin]
        else:
            self._instead_of_steps = [self._report_lost]

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """See `Slab`."""
        if hasattr(self.envs, "call"):
            return list(self.envs.call(name, *args, **kwargs))
        attribute = getattr(self.envs, name)
        got = attribute(*args, **kwargs) if callable(attribute) else attribute
        return [got] * self.num_envs

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """See `Slab`."""
        if hasattr(self.envs, "set_attr"):
            self.envs.set_attr(name, list(values))
        else:
            setattr(self.envs, name, values[0])

    def render(self) -> list[Any]:
        """See `Slab`."""
        frames = self.envs.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def close(self) -> None:
        """See `Slab`."""
        self.envs.close()

    def _step(self, batch: Tree) -> AnyInfos:
        if self._instead_of_steps:
            return self._instead_of_steps.pop(0)()
        return self._write(*self.envs.step(batch))

    def _report_lost(self) -> AnyInfos:
        """A step that steps nothing: episodes are cut where they were last seen."""
        table, rows = self.table, range(self.first, self.first + self.num_envs)
        at = slice(rows.start, rows.stop)
        table.reward[at], table.terminated[at], table.truncated[at] = 0.0, False, self._lost
        lost = np.flatnonzero(self._lost).tolist()
        infos: list[AnyInfo] = [(k, {"worker_restarted": True}) for k in lost]
        if self.facts.autoreset_mode == AutoresetMode.SAME_STEP:
            infos += [
                (k, {"final_obs": table.layout.row(table.obs, rows[k]), "final_info": {}})
                for k in lost
            ]
        return infos

    def _write_quiet(self, obs: Tree, infos: dict[str, Any]) -> AnyInfos:
        """Write the first observations of new episodes; in same-step mode the flags stay."""
        flags = self.table.truncated[self.first : self.first + self.num_envs]
        same_step = self.facts.autoreset_mode == AutoresetMode.SAME_STEP
        cut = flags.copy() if same_step else np.zeros_like(flags)
        return self._write(obs, np.zeros(self.num_envs), np.zeros_like(flags), cut, infos)

    def _write(
        self, obs: Tree, reward: Any, terminated: Any, truncated: Any, infos: dict[str, Any]
    ) -> AnyInfos:
        rows = slice(self.first, self.first + self.num_envs)
        table = self.table
        for out, leaf in zip(leaves(table.obs), self._layout.arrays(obs), strict=True):
            out[rows] = leaf
        table.reward[rows], table.terminated[rows] = reward, terminated
        table.truncated[rows] = truncated
        return [(0, Columns.of(infos, self.num_envs))] if infos else []


def make_slabs(
    fns: Sequence[Callable[[], Any]], autoreset_mode: AutoresetMode | None, first: int
) -> list[Slab]:
    """The slabs of some makers: one of all envs, or one for each vector env.

    autoreset_mode: of single envs; next-step if None. Vector envs have their own.
    Raises: TargetError for a maker of something else, or of both kinds.
    """
    try:
        made = fns[0]()
    except BaseException as error:
        error.add_note(f"while making env {first}")
        raise
    if not isinstance(made, gymnasium.vector.VectorEnv):
        again = iter([made])
        rest: list[Callable[[], Any]] = [lambda: next(again), *fns[1:]]
        return [GroupSlab(rest, autoreset_mode or AutoresetMode.NEXT_STEP, first)]
    slabs: list[Slab] = [VectorSlab(made, first)]
    for fn in fns[1:]:
        first += slabs[-1].num_envs
        made = fn()
        if not isinstance(made, gymnasium.vector.VectorEnv):
            raise TargetError(
                "vector env: expected makers of vector envs only, as the first one is, got one "
                f"that makes {type(made).__qualname__}"
            )
        slabs.append(VectorSlab(made, first))
    return slabs


def expect_whole_slabs(rows: Rows, bounds: Iterable[tuple[int, int]]) -> None:
    """Refuse a part of a vector env. bounds: of each slab the first row and the number of rows.

    Raises: StateError.
    """
    for first, size in bounds:
        inside = rows[(rows >= first) & (rows < first + size)]
        if 0 < len(inside) < size:
            raise StateError(
                f"send: envs {first} to {first + size - 1} are one vector env, which steps as a "
                f"whole: expected all of them, got {np.sort(inside).tolist()[:8]}"
            )


def _as_vector_seed(seeds: Sequence[int | None], given: int) -> Any:
    """The seed argument of a vector env: None, the first of consecutive seeds, or the list."""
    first = seeds[0]
    if all(seed is None for seed in seeds):
        return None
    if given == len(seeds) and all(
        first is not None and seed == first + k for k, seed in enumerate(seeds)
    ):
        return first
    return list(seeds)
