"""EnvPool's C++ envs as a Gymnasium vector env, to be used alone or inside of a worker.

    make_vec([partial(envpool_vector_env, "Pong-v5", 64)] * 4, backend="process")

What differs from EnvPool's own Gymnasium class: batched spaces and types are as declared, infos
have masks, `reset` takes seeds, and misuse is refused where EnvPool waits for ever.
"""

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.envs.actions import ActionCheck
from hotloop.envs.arguments import as_batch_size, as_seeds, reset_rows
from hotloop.errors import SettingError, ShapeError, StateError, TargetError, nearest

Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
Step = tuple[Tree, NDArray[np.float64], Flags, Flags, dict[str, Any]]


def envpool_vector_env(
    task_id: str, num_envs: int, batch_size: int | None = None, seed: int = 0, **kwargs: Any
) -> "EnvPoolVectorEnv":
    """`num_envs` envs of an EnvPool task; `kwargs` (num_threads, frame_skip) are EnvPool's own.

    A plain function: `functools.partial` of it can be sent to a worker. See `EnvPoolVectorEnv`.
    Raises: TargetError if EnvPool is not installed or has no such task; SettingError.
    """
    return EnvPoolVectorEnv(task_id, num_envs, batch_size, seed, **kwargs)


class EnvPoolVectorEnv(VectorEnv[Tree, Tree, NDArray[Any]]):
    """Gymnasium's vector contract over an EnvPool.

    Autoreset is next-step, EnvPool's only one. Rewards are float64. Arrays returned are the
    caller's. Infos are EnvPool's (`elapsed_step`, `lives`, ...), each with a mask.
    Seeds: EnvPool takes them when it is built, env i that of the pool plus i. So `reset(seed=s)`
    builds the pool anew, env i seeded with s + i; without a seed the envs keep their
    generators. A partial reset cannot be seeded.
    With `batch_size` below `num_envs` there are no `reset` and `step`, only `async_reset`, `send`
    and `recv`, which gives the `batch_size` envs that are done first.
    """

    def __init__(
        self,
        task_id: str,
        num_envs: int,
        batch_size: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise SettingError(f"envpool: num_envs: expected an integer from 1, got {num_envs!r}")
        self.task_id = task_id
        self.num_envs = int(num_envs)
        self.batch_size = as_batch_size(batch_size, self.num_envs, splits=1)
        self.render_mode = kwargs.get("render_mode")
        self._settings = {**kwargs, "num_envs": self.num_envs, "batch_size": self.batch_size}
        self._pool = self._built(seed=seed)
        self._fresh_seed: int | None = seed  # of a pool that was not used yet
        self.autoreset_mode = AutoresetMode.NEXT_STEP
        self.metadata = {
            "render_modes": list(self._pool.metadata.get("render_modes", [])),
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._layout = Layout.of(self.single_observation_space)
        self._check_actions = ActionCheck(self.single_action_space)
        self._everyone: Rows = np.arange(self.num_envs)
        self._obs: Tree = None  # the last of all envs
        self._started = False
        self._busy: Flags = np.zeros(self.num_envs, np.bool_)  # sent, and not received yet
        self._received: Rows = self._everyone[: self.batch_size]

    # --- Gymnasium's contract ------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode in all envs, or in those of `options["reset_mask"]`.

        The rows of the other envs are then copied from the array returned last.
        Raises: SettingError for other options, and for a seed together with a mask.
        """
        self._expect_whole("reset")
        mask = self._mask(options)
        if mask is not None and mask.all():
            mask = None
        if mask is None:
            self._seed(seed)
            obs, infos = self._pool.reset()
            self._obs = self._typed(obs)
            self._started = True
            return self._obs, self._masked(infos, None)
        if seed is not None:
            raise SettingError(
                f"envpool {self.task_id}: expected no seed together with a reset_mask, got "
                f"{seed!r}; EnvPool seeds all its envs at once: reset them all"
            )
        self._expect_started("a reset of some envs")
        obs, infos = self._pool.reset(np.flatnonzero(mask))
        self._obs = tree_map(np.copy, self._obs)
        for whole, part in zip(leaves(self._obs), leaves(self._typed(obs)), strict=True):
            whole[mask] = part
        return self._obs, self._masked(infos, mask)

    def step(self, actions: Tree) -> Step:
        """One step of every env.

        Raises: ShapeError for actions that do not fit; StateError before the first reset.
        """
        self._expect_whole("step")
        self._expect_started("a step")
        outcome = self._outcome(self._pool.step(self._checked(actions, self.num_envs)))
        self._obs = outcome[0]
        return outcome

    def render(self) -> tuple[Any, ...] | None:
        """A picture of every env, (height, width, 3) bytes each; None without a `render_mode`."""
        self._expect_open("render")
        if self.render_mode is None:
            return None
        self._expect_started("a picture")
        return tuple(self._pool.render(env_ids=self._everyone))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Stop EnvPool's threads."""
        self._pool.close()
        self._pool = None  # they end with the pool

    # --- batches of those that are ready -------------------------------------------------------

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin to start an episode in every env; `recv` gives them as they are ready.

        Raises: SettingError for options; StateError while envs are stepping.
        """
        self._expect_open("async_reset")
        if options:
            raise SettingError(
                f"envpool {self.task_id}: async_reset: expected no options, got {options!r}"
            )
        self._seed(seed)
        self._pool.async_reset()
        self._started = True
        self._busy[:] = True

    def send(self, actions: Tree, env_ids: Sequence[int] | Rows | None = None) -> None:
        """Begin a step of the envs `env_ids`; of those that `recv` gave last if None.

        Raises: ShapeError for actions that do not fit; StateError for an env that is stepping, or
        named twice, or not there, or before the first reset.
        """
        self._expect_open("send")
        self._expect_started("a step")
        rows = self._received if env_ids is None else np.asarray(env_ids)
        known = rows.ndim == 1 and rows.dtype.kind in "iu" and len(np.unique(rows)) == len(rows)
        if not known or not np.isin(rows, self._everyone).all() or self._busy[rows].any():
            raise StateError(
                f"envpool {self.task_id}: send: expected envs that recv() has given, each once, "
                f"got {rows.tolist()}; take them from infos['env_id']"
            )
        if self.batch_size == self.num_envs != len(rows):
            raise StateError(
                f"envpool {self.task_id}: send: a batch is all {self.num_envs} envs, got "
                f"{len(rows)}; build the pool with a smaller batch_size to send some"
            )
        checked = self._checked(actions, len(rows))
        self._busy[rows] = True
        self._pool.send(checked, rows)

    def recv(self) -> Step:
        """The next `batch_size` envs that are done; `infos["env_id"]`, int64, says which.

        Raises: StateError if fewer are under way: EnvPool gives whole batches only.
        """
        self._expect_open("recv")
        under_way = int(np.count_nonzero(self._busy))
        if under_way < self.batch_size:
            raise StateError(
                f"envpool {self.task_id}: recv: expected at least batch_size={self.batch_size} "
                f"envs under way, got {under_way}; async_reset() or send() actions first"
            )
        received = self._pool.recv()
        rows = received[4]["env_id"].astype(np.int64)
        self._busy[rows] = False
        self._received = rows
        obs, reward, terminated, truncated, infos = self._outcome(received)
        infos["env_id"] = rows.copy()
        if self.batch_size == self.num_envs:
            order = np.argsort(rows)
            self._obs = tree_map(lambda leaf: leaf[order], obs)
        return obs, reward, terminated, truncated, infos

    # --- from EnvPool's values to Gymnasium's --------------------------------------------------

    def _outcome(self, received: tuple[Any, ...]) -> Step:
        obs, reward, terminated, truncated, infos = received
        return (
            self._typed(obs),
            reward.astype(np.float64),
            terminated.astype(np.bool_, copy=False),
            truncated.astype(np.bool_, copy=False),
            self._masked(infos, None),
        )

    def _typed(self, obs: Tree) -> Tree:
        """Observations in the types that their space declares."""
        arrays = zip(self._layout.leaves, self._layout.arrays(obs), strict=True)
        typed = iter([array.astype(leaf.dtype, copy=False) for leaf, array in arrays])
        return tree_map(lambda _: next(typed), self._layout.empty(0))

    def _masked(self, infos: dict[str, Any], mask: Flags | None) -> dict[str, Any]:
        """Infos of all envs with a mask beside each key, from those of the envs in `mask`."""
        masked: dict[str, Any] = {}
        for key, value in infos.items():
            if key in ("env_id", "players"):  # the row says the same
                continue
            if isinstance(value, dict):
                masked[key] = self._masked(value, mask)
                count = self.num_envs if mask is not None else len(next(leaves(value)))
            elif mask is None:
                masked[key], count = value, len(value)
            else:
                masked[key] = np.zeros((self.num_envs, *value.shape[1:]), value.dtype)
                masked[key][mask] = value
                count = self.num_envs
            masked[f"_{key}"] = np.ones(count, np.bool_) if mask is None else mask.copy()
        return masked

    def _checked(self, actions: Tree, count: int) -> Tree:
        checked = self._check_actions(actions, count)
        space = self.single_action_space
        if isinstance(space, spaces.Discrete):  # it would be an index in C++
            low, high = int(space.start), int(space.start + space.n) - 1
            if count and not (low <= checked.min() and checked.max() <= high):
                raise ShapeError(
                    f"envpool {self.task_id}: actions: expected integers from {low} to {high}, "
                    f"got {checked.min()} to {checked.max()}"
                )
        return checked

    def _mask(self, options: dict[str, Any] | None) -> Flags | None:
        if not options:
            return None
        if set(options) != {"reset_mask"}:
            raise SettingError(
                f"envpool {self.task_id}: reset: options: expected only 'reset_mask', got "
                f"{options!r}"
            )
        mask = np.zeros(self.num_envs, np.bool_)
        mask[reset_rows(options, self.num_envs)] = True
        return mask

    # --- the pool ------------------------------------------------------------------------------

    def _seed(self, seed: int | Sequence[int | None] | None) -> None:
        """Build the pool anew for other seeds."""
        self._expect_none_busy()
        if seed is not None and not (self._fresh_seed is not None and seed == self._fresh_seed):
            if isinstance(seed, int | np.integer):
                pool = self._built(seed=int(seed))
            else:
                seeds = as_seeds(seed, self.num_envs)
                if any(one is None for one in seeds):
                    raise SettingError(
                        f"envpool {self.task_id}: reset: expected a seed for every env, got "
                        f"{list(seeds)}; EnvPool seeds all its envs at once"
                    )
                pool = self._built(env_seed=list(seeds))
            self._pool.close()
            self._pool = pool
        self._fresh_seed = None

    def _built(self, **seed: Any) -> Any:
        envpool = _envpool()
        if self.task_id not in envpool.list_all_envs():
            advice = nearest(self.task_id, envpool.list_all_envs())
            raise TargetError(
                f"envpool: expected a task that EnvPool has, got {self.task_id!r}"
                f"{advice or '; see envpool.list_all_envs()'}"
            )
        try:
            pool = envpool.make(self.task_id, env_type="gymnasium", **self._settings, **seed)
        except (AssertionError, TypeError) as error:
            raise SettingError(
                f"envpool {self.task_id}: expected settings that EnvPool knows, got "
                f"{ {**self._settings, **seed} }: {error}"
            ) from error
        if pool.config.get("max_num_players", 1) > 1:
            raise TargetError(
                f"envpool {self.task_id}: expected one player an env, got a task with up to "
                f"{pool.config['max_num_players']}; rows of a vector env are envs"
            )
        with warnings.catch_warnings():  # EnvPool declares bounds in double precision
            warnings.filterwarnings("ignore", message=".*precision lowered by casting")
            _ = pool.observation_space, pool.action_space  # made on first use, then kept
        return pool

    def _expect_whole(self, what: str) -> None:
        self._expect_open(what)
        if self.batch_size < self.num_envs:
            raise StateError(
                f"envpool {self.task_id}: {what}: with batch_size={self.batch_size} of "
                f"{self.num_envs} envs expected async_reset(), then recv() and send() in turn"
            )
        self._expect_none_busy()

    def _expect_none_busy(self) -> None:
        if self._busy.any():
            raise StateError(
                f"envpool {self.task_id}: expected no env under way, got "
                f"{np.flatnonzero(self._busy)[:8].tolist()}; recv() them first"
            )

    def _expect_started(self, what: str) -> None:
        if not self._started:
            raise StateError(f"envpool {self.task_id}: expected a reset before {what}, got none")

    def _expect_open(self, what: str) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(
                f"envpool {self.task_id}: {what}: expected an open env, got one after close()"
            )


def _envpool() -> Any:
    try:
        return importlib.import_module("envpool")
    except ImportError as error:
        raise TargetError(
            f"envpool: the package EnvPool is missing ({error}): pip install envpool"
        ) from error
