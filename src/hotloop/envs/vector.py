"""The contract that all vector envs here share: Gymnasium's, and batches of envs that are ready.

`step` is `send` to all and `recv` of all. Between them a backend steps its envs in its own way;
each env has one row in its table, and a row that is ready is handed out once. One file, for
all of the contract rests on the same few fields: which rows are under way, and which are ready.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree, tree_map
from hotloop.envs.actions import ActionCheck
from hotloop.envs.arguments import as_batch_size, as_rows, as_seeds, reset_rows, split_slice
from hotloop.envs.facts import Facts
from hotloop.envs.group import EnvInfos
from hotloop.envs.infos import merge_infos
from hotloop.envs.table import Rows, Table
from hotloop.errors import StateError

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Received = tuple[Tree, Array, Flags, Flags]  # observations, rewards, terminated, truncated
Batch = tuple[Tree, Array, Flags, Flags, dict[str, Any]]
EnvInfosBatch = tuple[Tree, Array, Flags, Flags, EnvInfos]
_Taken = TypeVar("_Taken")


class VectorEnv(gymnasium.vector.VectorEnv[Tree, Tree, Array]):
    """Gymnasium's vector contract, with `async_reset`, `send` and `recv`; abstract.

    batch_size: envs that a `recv` gives: the first that are ready. splits: into so many groups of
    envs, with `recv` giving them in turn, for double (2) or triple (3) buffering.
    copy: whether arrays returned are the caller's; otherwise they change with a later step.
    in_process: whether the envs live in this process, where their state can be saved.
    """

    in_process = True

    def __init__(
        self,
        num_envs: int,
        facts: Facts,
        *,
        batch_size: int | None,
        splits: int,
        copy: bool,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = facts.observation_space
        self.single_action_space = facts.action_space
        self.observation_space = batch_space(facts.observation_space, num_envs)
        self.action_space = batch_space(facts.action_space, num_envs)
        self.metadata, self.render_mode = facts.metadata, facts.render_mode
        self.spec, self.autoreset_mode = facts.spec, facts.autoreset_mode
        self.batch_size = as_batch_size(batch_size, num_envs, splits)
        self.splits = splits
        self.copy = copy
        self.check_actions = ActionCheck(facts.action_space)
        self.layout = Layout.of(facts.observation_space)
        self.table: Table
        self.choice: object = None  # what `auto` chose and why, where it did
        self._everyone: Rows = np.arange(num_envs)
        self._busy = np.zeros(num_envs, np.bool_)  # under way: sent, and not received yet
        self._ready: list[int] = []  # rows that are done, in the order of their ends
        self._turn = 0  # the split that comes next
        self._abandoned = False  # whether a step or reset was cut short: no caller awaits its envs
        self._torn = False  # whether it was by Ctrl-C or the like, at any place of the code
        self._received: Rows = self._everyone[: self.batch_size]

    # --- what a backend does -------------------------------------------------------------------

    @abstractmethod
    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Begin to reset the envs of these rows."""

    @abstractmethod
    def _post_step(self, rows: Rows, actions: Tree) -> None:
        """Begin to step the envs of these rows, one action each."""

    @abstractmethod
    def _await(self, count: int, rows: Rows | None) -> None:
        """Wait until `_ready` has `count` rows, or all of `rows`."""

    @abstractmethod
    def _await_some(self, count: int, timeout_s: float | None) -> None:
        """Wait until `_ready` has `count` rows, or an env failed, or for `timeout_s` seconds."""

    @abstractmethod
    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """An attribute of every env, or what its method returns."""

    @abstractmethod
    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of every env."""

    @abstractmethod
    def _render_each(self) -> list[Any]:
        """What every env renders."""

    # --- Gymnasium's contract ------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode in every env; an int seeds env i with `seed + i`.

        `options={"reset_mask": mask}` resets the envs of a boolean array (num_envs,) only; the
        observations of the others are returned as they are. None keeps the envs' generators.
        Raises: StateError while envs are stepping.
        """
        obs, infos = self.reset_by_env(seed=seed, options=options)
        return obs, merge_infos(self.num_envs, infos)

    def step(self, actions: Tree) -> Batch:
        """One step of every env; returns observations, rewards, endings and infos, num_envs rows.

        Raises: ShapeError for actions that do not fit; StateError while envs are stepping; what
        an env raises, with a note that says which.
        """
        self._refuse_pending("step")
        checked = self.check_actions(actions, self.num_envs)
        try:
            self._busy[:] = True
            self._post_step(self._everyone, checked)
            self._await(self.num_envs, None)
            self._hand_out(self._everyone)
        except BaseException as error:
            self._abandon(error)
            raise
        table = self.table
        return (
            self._all_obs(),
            table.reward.copy(),
            table.terminated.copy(),
            table.truncated.copy(),
            table.take_infos(self._everyone),
        )

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """An attribute of every env, or what its method of that name returns."""
        self._refuse_pending(f"call({name!r})")
        return tuple(self._call_each(name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every env."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute: a list or tuple has one value an env, anything else is for all.

        Raises: ValueError for a list of another length.
        """
        self._refuse_pending(f"set_attr({name!r})")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._set_each(name, values)

    def render(self) -> tuple[Any, ...]:
        """What every env renders."""
        self._refuse_pending("render")
        return tuple(self._render_each())

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Every env's generator; a copy of it where the env lives elsewhere."""
        return self.get_attr("np_random")

    # --- infos env by env --------------------------------------------------------------------

    def reset_by_env(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, EnvInfos]:
        """As `reset`, with the infos as pairs of a row and an info."""
        rows, options = self._masked(options)
        self._refuse_pending("reset")
        try:
            self._begin_reset(rows, seed, options)
            self._await(len(rows), None)
            self._hand_out(rows)
        except BaseException as error:
            self._abandon(error)
            raise
        infos = self.table.take_env_infos(self._everyone)
        return self._all_obs(), infos

    def recv_by_env(self, env_ids: Sequence[int] | Rows | None = None) -> EnvInfosBatch:
        """As `recv`, with the infos as pairs of a row of the batch and an info, and no `env_id`.

        Of an env that was reset in the same step the info with `final_obs` comes first.
        """
        _, infos, results = self._receive(env_ids, self.table.take_env_infos)
        return *results, infos

    # --- batches of envs that are ready -------------------------------------------------------

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin to start an episode in every env; `recv` gives each as it is ready.

        With `options={"reset_mask": mask}` only in some; others may be stepping meanwhile.
        Raises: StateError for an env that is stepping.
        """
        rows, options = self._masked(options)
        if len(rows) == self.num_envs or self.closed or self._abandoned:
            self._refuse_pending("async_reset")
        self._refuse_busy("async_reset", rows)
        try:
            self._begin_reset(rows, seed, options)
        except BaseException as error:
            self._abandon(error)
            raise

    def send(self, actions: Tree, env_ids: Sequence[int] | Rows | None = None) -> None:
        """Begin a step of the envs `env_ids`; None: of those that `recv` gave last.

        Raises: ShapeError for actions that do not fit; StateError for an env that is stepping.
        """
        self._refuse_closed()
        rows = self._received if env_ids is None else as_rows(env_ids, self.num_envs)
        checked = self.check_actions(actions, len(rows))
        self._refuse_busy("send", rows)
        try:
            self._busy[rows] = True
            self._post_step(rows, checked)
        except BaseException as error:
            self._torn |= not isinstance(error, Exception)
            raise

    def recv(self, env_ids: Sequence[int] | Rows | None = None) -> Batch:
        """The next `batch_size` envs that are ready, in the order of `infos["env_id"]`.

        The last batch is short where fewer are under way; a reset comes with reward 0.
        env_ids: wait for these envs instead, and give them in this order.
        Raises: StateError if nothing, or not all of these, is under way; what an env raised.
        """
        rows, infos, results = self._receive(env_ids, self.table.take_infos)
        infos["env_id"] = rows.copy()
        return *results, infos

    def _receive(
        self, env_ids: Sequence[int] | Rows | None, take: Callable[[Rows], _Taken]
    ) -> tuple[Rows, _Taken, Received]:
        """The rows of a batch, their infos as `take` returns them, and their other results."""
        self._refuse_closed()
        rows = (
            self._next_batch() if env_ids is None else self._these(as_rows(env_ids, self.num_envs))
        )
        self._hand_out(rows)
        table = self.table
        infos = take(rows)
        self._received = rows
        at: Any = rows
        is_split = self.splits > 1 and env_ids is None
        if is_split:  # consecutive rows: a slice is not gathered
            at = slice(int(rows[0]), int(rows[-1]) + 1)
        if is_split and not self.copy:
            obs = tree_map(lambda leaf: leaf[at], table.obs)
        else:
            obs = tree_map(lambda leaf: leaf[at].copy() if at is not rows else leaf[at], table.obs)
        results = (
            self._public(obs),
            table.reward[at].copy(),
            table.terminated[at].copy(),
            table.truncated[at].copy(),
        )
        return rows, infos, results

    def poll(self, count: int, timeout_s: float | None = None) -> Rows:
        """The envs that are ready, after waiting for `count` of them or `timeout_s` seconds.

        They are still to be received; one that failed counts as ready, and `recv` raises its error.
        """
        self._await_some(min(count, int(np.count_nonzero(self._busy))), timeout_s)
        return np.array(self._ready, np.int64)

    @property
    def under_way(self) -> Rows:
        """The envs that were sent or reset, and not received yet."""
        return np.flatnonzero(self._busy)

    # --- which envs are in a batch --------------------------------------------------------------

    def split_rows(self, split: int) -> Rows:
        """The envs of one split: consecutive rows."""
        return self._everyone[split_slice(self.num_envs, self.splits, split)]

    def _next_batch(self) -> Rows:
        pending = int(np.count_nonzero(self._busy))
        if not pending:
            raise StateError("recv: no env is under way: expected a send() or async_reset() before")
        if self.splits == 1:
            count = min(self.batch_size, pending)
            self._await(count, None)
            return np.array(self._ready[:count], np.int64)
        rows = self.split_rows(self._turn)
        if not self._busy[rows].all():
            raise StateError(
                f"recv: it is the turn of split {self._turn}, and not all of its envs "
                f"{rows[0]} to {rows[-1]} are under way; send their actions first"
            )
        self._await(0, rows)
        self._turn = (self._turn + 1) % self.splits
        return rows

    def _these(self, rows: Rows) -> Rows:
        if not self._busy[rows].all():
            idle = rows[~self._busy[rows]].tolist()
            raise StateError(
                f"recv: envs {idle[:8]} are not under way: expected a send() or reset before"
            )
        self._await(0, rows)
        return rows.copy()

    def _hand_out(self, rows: Rows) -> None:
        left: list[int] = []
        if len(rows) < len(self._ready):
            given = set(rows.tolist())
            left = [row for row in self._ready if row not in given]
        # Nothing is called in between, so Ctrl-C does not come in between.
        self._ready = left
        self._busy[rows] = False

    def _give_up(self, rows: Rows) -> None:
        """After an error: these envs are under way no more, and what they gave is dropped."""
        given_up = set(rows.tolist())
        self._ready = [row for row in self._ready if row not in given_up]
        self._busy[rows] = False
        self.table.take_env_infos(rows)

    def drain(self) -> None:
        """Let the envs of a step that was cut short finish, and drop what they gave."""
        while self._busy.any():
            try:
                self._await(int(np.count_nonzero(self._busy)), None)
            except Exception:
                if self.closed:
                    raise
                continue  # the error of one more env: the first was raised where it was cut short
            self._give_up(np.flatnonzero(self._busy))
        self._abandoned = self._torn = False

    def _abandon(self, error: BaseException) -> None:
        self._abandoned = True
        self._torn |= not isinstance(error, Exception)

    def _all_obs(self) -> Tree:
        obs = self.table.obs
        if self.copy:
            obs = obs.copy() if isinstance(obs, np.ndarray) else tree_map(np.copy, obs)
        return self._public(obs) if self.layout.has_objects else obs

    def _public(self, obs: Tree) -> Tree:
        if self.copy and self.layout.has_objects:
            obs = deepcopy(obs)  # an env may go on with the objects that it gave
        return self.layout.public(obs)

    def _begin_reset(
        self,
        rows: Rows,
        seed: int | Sequence[int | None] | None,
        options: dict[str, Any] | None,
    ) -> None:
        seeds = as_seeds(seed, self.num_envs)
        if len(rows) == self.num_envs:
            self._turn = 0
        self._busy[rows] = True
        self._post_reset(rows, [seeds[row] for row in rows.tolist()], options)

    def _masked(self, options: dict[str, Any] | None) -> tuple[Rows, dict[str, Any] | None]:
        rows = reset_rows(options, self.num_envs)
        if rows is None or options is None:
            return self._everyone, options
        del options["reset_mask"]  # Gymnasium takes it out of the caller's dict as well
        return rows, options

    def _refuse_pending(self, what: str) -> None:
        self._refuse_closed()
        if self._abandoned:
            self.drain()
        if self._busy.any():
            pending = np.flatnonzero(self._busy).tolist()
            raise StateError(
                f"{what}: envs {pending[:8]} are under way: expected none; recv() them first"
            )

    def _refuse_busy(self, what: str, rows: Rows) -> None:
        if self._busy[rows].any():
            still = rows[self._busy[rows]].tolist()
            raise StateError(
                f"{what}: envs {still[:8]} are still stepping, or done and not received; expected "
                "envs that recv() has given: infos['env_id']"
            )

    def _refuse_closed(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )
        if self._torn:
            self.drain()

    def __del__(self) -> None:
        # One that could not be made has nothing to close.
        if not self.closed and hasattr(self, "table"):
            self.close()
