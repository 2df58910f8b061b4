"""A fragment: T steps of B envs as one block of memory, time first.

One block, so that it can be shared between processes and sent as one buffer; allocated once and
written over. Observations have T + 1 rows, so that time is shifted by a view: step t goes from
row t to row t + 1. Where an episode ended in step t, row t + 1 may already be the next one's first
observation; the last one is then in the endings, one record an episode. One file, for the spec, the
views and the rows written follow from one layout of the block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pickle import PickleBuffer
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from hotloop.data.frames import FramePool, check_stackable, pool_rows
from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.errors import ShapeError

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

_NO_EXTRAS: Mapping[str, Array] = {}
ALL_ENVS = slice(None)
_INT, _FLAG = Layout(np.dtype(np.int64), ()), Layout(np.dtype(np.bool_), ())
_INDEX = Layout(np.dtype(np.int32), ())
_REWARD = Layout(np.dtype(np.float64), ())
_ENDINGS, _FRAMES, _RESET = 0, 1, 2  # indices of `counts`


@dataclass(frozen=True)
class FragmentSpec:
    """The contents of a fragment: everything that its memory depends on."""

    steps: int
    """T, steps of every env."""
    envs: int
    """B, envs side by side."""
    obs: Layout
    """One observation."""
    action: Layout
    """One action, as the policy gave it."""
    reward: Layout = _REWARD
    """One reward; of shape (K,) where it is a vector."""
    extras: tuple[tuple[str, Layout], ...] = ()
    """Further outputs of the policy for each env: log-probabilities, values, states."""
    final_in_rows: bool = False
    """Whether row t + 1 of the observations is where an episode that ended in step t arrived: so
    with envs that are reset by their next step. Else final observations are stored apart."""
    frame_stack: int = 0
    """Frames that an observation stacks along its first axis and that are stored once; 0: none."""
    frame_skip: int = 1
    """Frames that the simulator plays in one env step."""

    def __post_init__(self) -> None:
        if self.frame_stack:
            check_stackable(self.obs, self.frame_stack)

    # Cached, as a fragment that arrives is made anew around its memory.
    @cached_property
    def ending(self) -> np.dtype[Any]:
        """The record of one episode's end: where, its return and length, the final observation."""
        fields: list[Any] = [
            ("t", np.int32),
            ("b", np.int32),
            ("length", np.int64),
            ("return", np.float64, self.reward.shape),
            ("lost", np.bool_),
        ]
        if self.frame_stack:
            fields.append(("frames", np.int32, (self.frame_stack,)))
        elif not self.final_in_rows:
            fields += [
                (f"obs{i}", leaf.dtype, leaf.shape)
                for i, leaf in enumerate(self.obs.leaves)
                if not leaf.dtype.hasobject
            ]
        return np.dtype(fields, align=True)

    @cached_property
    def fixed(self) -> dict[str, tuple[Layout, tuple[int, ...]]]:
        """The parts whose size does not depend on what happens, and their leading dimensions."""
        step = (self.steps, self.envs)
        stacked = Layout(_INDEX.dtype, (self.frame_stack,))
        return {
            "counts": (_INT, (8,)),
            "env_ids": (_INT, (self.envs,)),
            "versions": (_INT, (self.steps,)),
            "reward": (self.reward, step),
            "terminated": (_FLAG, step),
            "truncated": (_FLAG, step),
            "valid": (_FLAG, step),
            "action": (self.action, step),
            **{f"extras.{name}": (layout, step) for name, layout in self.extras},
            "rows": (stacked if self.frame_stack else self.obs, (self.steps + 1, self.envs)),
        }

    @cached_property
    def fixed_nbytes(self) -> int:
        """Bytes of the fixed parts."""
        return sum(layout.nbytes(*prefix) for layout, prefix in self.fixed.values())

    @property
    def frame_nbytes(self) -> int:
        """Bytes of one frame."""
        return int(np.prod(self.obs.shape[1:], dtype=np.int64)) * self.obs.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole block, with room for an ending in every step of every env."""
        frames = pool_rows(self.steps, self.envs, self.frame_stack) if self.frame_stack else 0
        return self._frames_at + frames * (self.frame_nbytes if frames else 0)

    @property
    def _frames_at(self) -> int:
        endings = self.steps * self.envs * self.ending.itemsize
        return self.fixed_nbytes + -(-endings // 64) * 64


class Fragment:
    """T steps of B envs.

    action: tree of (T, B, ...). reward: (T, B), or (T, B, K). terminated, truncated: (T, B).
    valid: (T, B), False for what is no transition: the step in which an env is only reset, and
    the one in which it was lost with its worker. extras: by name, (T, B, ...). env_ids: (B,).
    versions: (T,), of the policy that acted in each step.
    """

    def __init__(self, spec: FragmentSpec, buffer: Any = None) -> None:
        self.spec = spec
        if buffer is None:
            buffer = np.zeros(spec.nbytes, np.uint8)
        self._block: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        if len(self._block) < spec.fixed_nbytes:
            raise ShapeError(
                f"fragment: buffer: expected {spec.nbytes} bytes, got {len(self._block)}"
            )
        parts: dict[str, Tree] = {}
        at = 0
        for name, (layout, prefix) in spec.fixed.items():
            parts[name] = layout.in_buffer(self._block, at, *prefix)
            at += layout.nbytes(*prefix)
        self._counts: Ints = parts["counts"]
        self.env_ids: Ints = parts["env_ids"]
        self.versions: Ints = parts["versions"]
        self.reward: Array = parts["reward"]
        self.terminated: Flags = parts["terminated"]
        self.truncated: Flags = parts["truncated"]
        self.valid: Flags = parts["valid"]
        self.action: Tree = parts["action"]
        self.extras: dict[str, Array] = {name: parts[f"extras.{name}"] for name, _ in spec.extras}
        self._rows: Tree = parts["rows"]
        # A buffer that was sent ends after the endings in use.
        room = (len(self._block) - at) // spec.ending.itemsize
        self._endings = np.ndarray(
            min(room, spec.steps * spec.envs), spec.ending, self._block.data, at
        )
        self._final_objects = self._object_columns()
        self._pool = self._frame_pool()
        self._plain = self._pool is None and isinstance(self._rows, np.ndarray)
        self._plain = self._plain and not spec.obs.has_objects
        self._plain_action = spec.action.is_leaf and not spec.action.has_objects
        self._obs = tree_map(lambda rows: rows[:-1], self._rows)
        self._rebuilt: Array | None = None

    @classmethod
    def empty(cls, spec: FragmentSpec) -> "Fragment":
        """A fragment in memory of its own."""
        return cls(spec)

    @classmethod
    def in_buffer(cls, buffer: Any, spec: FragmentSpec) -> "Fragment":
        """A fragment in a given buffer of `spec.nbytes`, with its contents.

        Values without a fixed shape (Text, Graph, ...) are not in it; see `objects`.
        Raises: ShapeError for a buffer that is too small.
        """
        return cls(spec, buffer)

    # --- reading -----------------------------------------------------------------------------

    @property
    def obs(self) -> Tree:
        """Tree of (T, B, ...): what the policy saw. Stacked frames are rebuilt when first asked."""
        if self._pool is None:
            return self._obs
        if self._rebuilt is None:
            self._rebuilt = self._pool.rebuilt(self._pool.index[:-1])
        return self._rebuilt

    @property
    def all_obs(self) -> Tree:
        """Tree of (T + 1, B, ...): `obs`, then `last_obs`."""
        return self._rows if self._pool is None else self._pool.rebuilt(self._pool.index)

    @property
    def last_obs(self) -> Tree:
        """Tree of (B, ...): the observations after the last step, to bootstrap from."""
        return self._row(self.spec.steps)

    def next_obs(self, t: int) -> Tree:
        """Tree of (B, ...): the observations after step t, the last one where an episode ended."""
        row, here = self._row(t + 1), np.flatnonzero(self.final_t == t)
        if self.spec.final_in_rows or not len(here):
            return row
        columns, arrived = self.final_b[here], self._final_obs(here)

        def patched(values: Array, final: Array) -> Array:
            values = values.copy()
            values[columns] = final
            return values

        return tree_map(patched, row, arrived)

    @property
    def all_next_obs(self) -> Tree:
        """Tree of (T, B, ...): `next_obs` of every step, in memory of its own."""

        def patched(rows: Array, final: Array) -> Array:
            following = rows[1:].copy()
            following[self.final_t, self.final_b] = final
            return following

        return tree_map(patched, self.all_obs, self.final_obs)

    @property
    def endings(self) -> Array:
        """(F,) records of the episodes that ended inside: t, b, return, length, lost."""
        return self._endings[: int(self._counts[_ENDINGS])]

    @property
    def final_t(self) -> NDArray[np.int32]:
        """(F,): the steps in which episodes ended."""
        return self.endings["t"]

    @property
    def final_b(self) -> NDArray[np.int32]:
        """(F,): the columns whose episodes ended."""
        return self.endings["b"]

    @property
    def final_obs(self) -> Tree:
        """Tree of (F, ...): the last observations of the episodes of `endings`."""
        return self._final_obs(np.arange(len(self.endings)))

    @property
    def episode_returns(self) -> NDArray[np.float64]:
        """Undiscounted returns of the whole episodes that ended inside, also if begun before."""
        return self.endings["return"][~self.endings["lost"]]  # type: ignore[no-any-return]

    @property
    def episode_lengths(self) -> Ints:
        """Their lengths, in env steps."""
        return self.endings["length"][~self.endings["lost"]]  # type: ignore[no-any-return]

    @property
    def episodes(self) -> int:
        """Whole episodes that ended inside, without those lost with a worker."""
        return len(self.endings) - int(np.count_nonzero(self.endings["lost"]))

    @property
    def follows_reset(self) -> bool:
        """Whether all envs were reset before its first step; else it goes on from another one.

        So it is with the first of a worker, also of one that replaced another.
        """
        return bool(self._counts[_RESET])

    @property
    def transitions(self) -> int:
        """Steps that a learner may use."""
        return int(np.count_nonzero(self.valid))

    @property
    def env_steps(self) -> int:
        """Steps that envs made, without resets and without steps lost with a worker."""
        return self.transitions

    @property
    def frames(self) -> int:
        """Frames that the simulators played for them."""
        return self.env_steps * self.spec.frame_skip

    @property
    def policy_version(self) -> int:
        """Version of the policy that acted first; `versions` has it for every step."""
        return int(self.versions[0])

    @property
    def nbytes(self) -> int:
        """Bytes in use, which are sent. `spec.nbytes` is what has to be allocated."""
        spec, counts = self.spec, self._counts
        if self._pool is not None:
            return spec._frames_at + int(counts[_FRAMES]) * spec.frame_nbytes
        return spec.fixed_nbytes + int(counts[_ENDINGS]) * spec.ending.itemsize

    # --- writing -----------------------------------------------------------------------------

    def begin(self, obs: Tree, *, version: int = 0, follows_reset: bool = False) -> None:
        """Start anew, with every env at `obs`, tree of (B, ...)."""
        self._counts[:] = 0
        self._counts[_RESET] = follows_reset
        self._rebuilt = None
        self.valid[:] = True
        self.versions[:] = version
        if self._pool is not None:
            self._pool.begin(obs)
        else:
            _assign(self._rows, self.spec.obs, 0, ALL_ENVS, obs)

    def write(
        self,
        t: int,
        *,
        action: Tree,
        reward: Array,
        terminated: Flags,
        truncated: Flags,
        next_obs: Tree,
        extras: Mapping[str, Array] = _NO_EXTRAS,
        columns: Any = ALL_ENVS,
        started: Flags | None = None,
    ) -> None:
        """Step t of all envs, or of those in `columns`, each part of shape (b, ...).

        next_obs: what the env returned, row t + 1. started: (b,), whose next_obs begins an
        episode; needed only where frames are stacked, and taken from the flags if not given.
        Raises: TargetError for a stack of frames that does not continue the one before it.
        """
        everyone = columns is ALL_ENVS  # a row by its number is found a fifth sooner
        row = t if everyone else (t, columns)
        if self._plain_action:
            self.action[row] = action
        else:
            _assign(self.action, self.spec.action, t, columns, action)
        self.reward[row] = reward
        self.terminated[row] = terminated
        self.truncated[row] = truncated
        for name, values in extras.items():
            self.extras[name][row] = values
        if self._plain:
            self._rows[t + 1 if everyone else (t + 1, columns)] = next_obs
        elif self._pool is None:
            _assign(self._rows, self.spec.obs, t + 1, columns, next_obs)
        else:
            started = terminated | truncated if started is None else started
            self._pool.write(t, columns, next_obs, started)

    def end(self, t: int, b: int, final_obs: Any = None, *, lost: bool = False) -> None:
        """Note that column b's episode ended in step t, at `final_obs`, one observation.

        lost: it did not end by itself; its worker died.
        """
        n = int(self._counts[_ENDINGS])
        record = self._endings[n]
        record["t"], record["b"], record["lost"] = t, b, lost
        if self._pool is not None:
            at_row = self.spec.final_in_rows
            record["frames"] = (
                self._pool.index[t + 1, b] if at_row else self._pool.final(t, b, final_obs)
            )
        elif not self.spec.final_in_rows:
            for i, (column,) in enumerate(self.spec.obs.columns([final_obs])):
                if i in self._final_objects:
                    self._final_objects[i][n] = column
                else:
                    record[f"obs{i}"] = column
        self._counts[_ENDINGS] = n + 1

    def tally(self, running_return: NDArray[np.float64], running_length: Ints) -> None:
        """Fill in returns and lengths of the episodes that ended inside.

        running_return (B,) or (B, K), running_length (B,): of the episodes under way before the
        first step; afterwards of those under way after the last.
        """
        steps = self.spec.steps
        # Env after env: (B x T, ...), so that an episode is one stretch.
        earned = np.swapaxes(self.reward, 0, 1).astype(np.float64, order="C")
        lived = np.ones(earned.shape[:2], np.int64)
        if not self.valid.all():
            lived[:] = self.valid.T
            earned[lived == 0] = 0.0  # whatever they hold
        earned[:, 0] += running_return
        lived[:, 0] += running_length
        ended = (self.terminated | self.truncated).T.ravel()
        # Cut behind each ending, and where the steps of an env end.
        last = ended.copy()
        last[steps - 1 :: steps] = True
        cuts = np.flatnonzero(last)
        starts = np.zeros_like(cuts)
        starts[1:] = cuts[:-1] + 1
        returns = np.add.reduceat(earned.reshape(-1, *earned.shape[2:]), starts)
        lengths = np.add.reduceat(lived.ravel(), starts)
        over = ended[cuts]
        endings = self.endings
        if len(endings):
            order = np.lexsort((endings["t"], endings["b"]))
            endings["return"][order], endings["length"][order] = returns[over], lengths[over]
        going = cuts % steps == steps - 1
        alive = ~over[going]
        # Not by a product: a return that is not finite ends with its own episode.
        running_return[:] = np.where(alive, returns[going].T, 0.0).T
        running_length[:] = lengths[going] * alive

    # --- copying and sending -------------------------------------------------------------------

    @property
    def objects(self) -> list[Array]:
        """Arrays of values without a fixed shape, which are outside of the block."""
        trees = (self._rows, self.action, *self.extras.values())
        found = [leaf for tree in trees for leaf in leaves(tree) if leaf.dtype.hasobject]
        return found + list(self._final_objects.values())

    def take_objects(self, objects: list[Array]) -> "Fragment":
        """Put in the `objects` of the fragment that this one is a copy of; returns this one."""
        for own, given in zip(self.objects, objects, strict=True):
            own[:] = given
        return self

    def copy(self) -> "Fragment":
        """The same in memory of its own."""
        copied = Fragment(self.spec)
        copied._block[: self.nbytes] = self._block[: self.nbytes]
        return copied.take_objects(self.objects)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """One buffer, out of band where the pickle's reader allows it: then nothing is copied."""
        used = self._block[: self.nbytes]
        content = PickleBuffer(used.data) if int(protocol) >= 5 else used.tobytes()
        return _unpickled, (self.spec, content, self.objects)

    def get_state(self) -> tuple[Array, list[Array]]:
        """The content, to be restored by `set_state`."""
        return self._block[: self.nbytes].copy(), [array.copy() for array in self.objects]

    def set_state(self, state: tuple[Array, list[Array]]) -> None:
        """Restore the content from `get_state`."""
        if self._block.flags.writeable:  # else it has not changed either
            self._block[: len(state[0])] = state[0]
            self._rebuilt = None
        self.take_objects(state[1])

    # --- private -----------------------------------------------------------------------------

    def _row(self, row: int) -> Tree:
        if self._pool is not None:
            return self._pool.rebuilt(self._pool.index[row])
        return tree_map(lambda rows: rows[row], self._rows)

    def _final_obs(self, which: Ints) -> Tree:
        endings = self.endings[which]
        if self._pool is not None:
            return self._pool.rebuilt(endings["frames"])
        if self.spec.final_in_rows:
            return tree_map(lambda rows: rows[endings["t"] + 1, endings["b"]], self._rows)
        objects = self._final_objects
        columns = iter(
            objects[i][which] if i in objects else endings[f"obs{i}"]
            for i in range(len(self.spec.obs.leaves))
        )
        return tree_map(lambda _: next(columns), self._rows)

    def _object_columns(self) -> dict[int, Array]:
        if self.spec.final_in_rows:
            return {}
        room = self.spec.steps * self.spec.envs
        return {
            i: np.full(room, None, object)
            for i, leaf in enumerate(self.spec.obs.leaves)
            if leaf.dtype.hasobject
        }

    def _frame_pool(self) -> FramePool | None:
        spec = self.spec
        if not spec.frame_stack:
            return None
        shape, at = spec.obs.shape[1:], spec._frames_at
        rows = (len(self._block) - at) // max(1, spec.frame_nbytes)
        frames: Array = np.ndarray((rows, *shape), spec.obs.dtype, self._block.data, at)
        return FramePool(frames, self._rows, self._counts[_FRAMES : _FRAMES + 1])


def _unpickled(spec: FragmentSpec, content: Any, objects: list[Array]) -> Fragment:
    return Fragment.in_buffer(content, spec).take_objects(objects)


def _assign(target: Tree, layout: Layout, row: int, columns: Any, value: Tree) -> None:
    """Write `value` into one row of every leaf of a tree."""
    if layout.children is None:
        if layout.dtype.hasobject:
            for b, item in zip(np.arange(target.shape[1])[columns], value, strict=True):
                target[row, b] = item
        else:
            target[row, columns] = value
        return
    keys: Any = layout.keys if layout.keys is not None else range(len(layout.children))
    for key, child in zip(keys, layout.children, strict=True):
        _assign(target[key], child, row, columns, value[key])
