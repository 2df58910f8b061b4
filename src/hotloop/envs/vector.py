"""The contract that all vector envs here share: Gymnasium's, and batches of those that are ready.

`step` is `send` to all and `recv` of all. Between them an engine steps its envs in whatever way
it has; each env has one row in the engine's arrays, and a row that is ready is handed out once.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree, leaves, stack_into, tree_map
from hotloop.envs.actions import ActionCheck
from hotloop.envs.facts import Facts
from hotloop.envs.group import EnvInfos, Results
from hotloop.envs.infos import AnyInfos, Columns, Infos, concat_infos, merge_infos, split_infos
from hotloop.errors import SettingError, ShapeError, StateError

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Received = tuple[Tree, Array, Flags, Flags]  # observations, rewards, terminated, truncated
Batch = tuple[Tree, Array, Flags, Flags, dict[str, Any]]
Told = tuple[Tree, Array, Flags, Flags, EnvInfos]
Rows = NDArray[np.int64]
_Taken = TypeVar("_Taken")


class Table:
    """One row an env: what its last step or reset gave, until it is handed out."""

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
        """Write results of neighbours into the rows from `first` on."""
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
        """Write observations of neighbours into their rows."""
        columns = self.layout.columns(observations)
        for (leaf, out), column in zip(self._leaves, columns, strict=True):
            stack_into(leaf, column, out[rows])

    def tell(self, first: int, infos: AnyInfos) -> None:
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
        return merge_infos(len(rows), self.take_told(rows))

    def take_told(self, rows: Rows) -> EnvInfos:
        """What these rows told, as it came; they count within `rows`."""
        self._split_columns()
        if not self._infos:
            return []
        return [
            (k, info) for k, row in enumerate(rows.tolist()) for info in self._infos.pop(row, ())
        ]

    def _take_columns(self, rows: Rows) -> list[tuple[int, Infos]] | None:
        """The infos of vector envs side by side; None where rows have a part of one, or mixed."""
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
        """Whether rows are asked for of which columns stand that are not taken."""
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


class VectorEnv(gymnasium.vector.VectorEnv[Tree, Tree, Array]):
    """Gymnasium's vector contract, with `async_reset`, `send` and `recv`.

    batch_size: envs that a `recv` gives: the first that are ready. splits: into so many groups of
    envs, with `recv` giving them in turn, for double (2) or triple (3) buffering.
    copy: whether arrays returned are the caller's; otherwise they change with a later step.
    """

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
        self.choice: object = None  # why this engine, where `make_vec` was to choose
        self._everyone: Rows = np.arange(num_envs)
        self._busy = np.zeros(num_envs, np.bool_)  # sent, and not received yet
        self._ready: list[int] = []  # rows that are done, first come first
        self._turn = 0  # the split that comes next
        self._abandoned = False  # whether a step or reset was cut short: nobody awaits its envs
        self._torn = False  # whether it was by Ctrl-C or the like, so in the midst of anything
        self._received: Rows = self._everyone[: self.batch_size]

    # --- what an engine does -------------------------------------------------------------------

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
        observations of the others are returned as they stand. None keeps the envs' generators.
        Raises: StateError while envs are stepping.
        """
        obs, told = self.reset_told(seed=seed, options=options)
        return obs, merge_infos(self.num_envs, told)

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
            self._whole(),
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

    # --- infos as they came --------------------------------------------------------------------

    def reset_told(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, EnvInfos]:
        """As `reset`, with infos as they came: a row with each."""
        rows, options = self._masked(options)
        self._refuse_pending("reset")
        try:
            self._begin_reset(rows, seed, options)
            self._await(len(rows), None)
            self._hand_out(rows)
        except BaseException as error:
            self._abandon(error)
            raise
        told = self.table.take_told(self._everyone)
        return self._whole(), told

    def recv_told(self, env_ids: Sequence[int] | Rows | None = None) -> Told:
        """As `recv`, with infos as they came: a row of the batch with each, and no `env_id`.

        An env that was reset at once comes with `final_obs` and `final_info` first.
        """
        _, told, results = self._receive(env_ids, self.table.take_told)
        return *results, told

    # --- batches of those that are ready -------------------------------------------------------

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin to start an episode in every env; `recv` gives them as they are ready.

        With `options={"reset_mask": mask}` only in some, and others may be stepping meanwhile.
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
        """Begin a step of the envs `env_ids`; of those that `recv` gave last if None.

        Raises: ShapeError for actions that do not fit; StateError for an env that is stepping.
        """
        self._refuse_closed()
        rows = self._received if env_ids is None else self._as_rows(env_ids)
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
        """The rows of a batch, their infos as `take` takes them, and what else came of them."""
        self._refuse_closed()
        rows = self._next_batch() if env_ids is None else self._these(self._as_rows(env_ids))
        self._hand_out(rows)
        table = self.table
        infos = take(rows)
        self._received = rows
        at: Any = rows
        is_split = self.splits > 1 and env_ids is None
        if is_split:  # neighbours: a slice is not gathered
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
        """The envs that were sent, or reset, and not received."""
        return np.flatnonzero(self._busy)

    # --- the plan of a batch -------------------------------------------------------------------

    def split_rows(self, split: int) -> Rows:
        """The envs of one split, neighbours all."""
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
        self.table.take_told(rows)

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

    def _whole(self) -> Tree:
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
        if options is None or "reset_mask" not in options:
            return self._everyone, options
        mask = options.pop("reset_mask")  # Gymnasium takes it out of the caller's dict as well
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(
                f"`options['reset_mask']` must have shape `({self.num_envs},)`, got {mask.shape}"
            )
        if mask.dtype != np.bool_:
            raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError(
                "`options['reset_mask']` must contain a boolean array with at least one True "
                f"value, got reset_mask={mask}"
            )
        return np.flatnonzero(mask), options

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

    def _as_rows(self, env_ids: Sequence[int] | Rows) -> Rows:
        rows = np.asarray(env_ids)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise StateError(f"env_ids: expected a list of env numbers, got {env_ids!r}")
        if len(rows) and (rows.min() < 0 or rows.max() >= self.num_envs):
            raise StateError(
                f"env_ids: expected numbers from 0 to {self.num_envs - 1}, got {env_ids!r}"
            )
        if len(np.unique(rows)) != len(rows):
            raise StateError(f"env_ids: expected each env once, got {env_ids!r}")
        return rows.astype(np.int64, copy=False)

    def __del__(self) -> None:
        # One that could not be made has nothing to close.
        if not self.closed and hasattr(self, "table"):
            self.close()


def as_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode, or the one that a string stands for: next_step, same_step, disabled."""
    if isinstance(mode, AutoresetMode):
        return mode
    for known in AutoresetMode:
        if mode in (known.value, known.name, known.name.lower()):
            return known
    raise SettingError(
        f"autoreset_mode: expected 'next_step', 'same_step' or 'disabled', got {mode!r}"
    )


def as_batch_size(batch_size: int | None, num_envs: int, splits: int) -> int:
    """The envs of a `recv`, with what cannot be refused."""
    if not 1 <= splits <= num_envs:
        raise SettingError(f"splits: expected 1 to num_envs={num_envs}, got {splits}")
    if splits > 1:
        if num_envs % splits:
            raise SettingError(
                f"splits: expected a divisor of num_envs={num_envs}, so that the groups are "
                f"equal, got {splits}"
            )
        if batch_size not in (None, num_envs // splits):
            raise SettingError(
                f"batch_size: with splits={splits} a batch is one of the groups, "
                f"{num_envs // splits} envs, got {batch_size}; leave it out"
            )
        return num_envs // splits
    if batch_size is None:
        return num_envs
    if not 1 <= batch_size <= num_envs:
        raise SettingError(f"batch_size: expected 1 to num_envs={num_envs}, got {batch_size}")
    return batch_size


def envs_to_reset(options: Mapping[str, Any] | None, num_envs: int, who: str) -> np.ndarray:
    """The envs that `options["reset_mask"]` of a reset chooses, ascending; all without a mask.

    Raises: SettingError for a mask that is no bool array (num_envs,) with a True.
    """
    if options is None or "reset_mask" not in options:
        return np.arange(num_envs)
    mask = options["reset_mask"]
    fits = isinstance(mask, np.ndarray) and mask.shape == (num_envs,)
    if not fits or mask.dtype != np.bool_ or not mask.any():
        raise SettingError(
            f"{who}: options['reset_mask']: expected a bool array of shape ({num_envs},) with at "
            f"least one True, got {mask!r}"
        )
    return np.flatnonzero(mask)


def as_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """One seed an env: `seed + i` of an int, the list's own, or None for all.

    Raises: ValueError for a list of another length.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(
            "If seeds are passed as a list the length must match "
            f"num_envs={num_envs} but got length={len(seed)}."
        )
    return seed


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


def split_slice(num_envs: int, splits: int, split: int) -> slice:
    """The rows of one of `splits` equal groups."""
    size = num_envs // splits
    return slice(split * size, (split + 1) * size)
