"""Counters that an env writes into its observations, and the check that no step is missing.

An observation carries (mark, env id, episode, step in the episode, steps since the seed,
action). In an array of bytes they are six little-endian int64; in one of wider numbers they are
the first six entries, by value, so that they survive a cast (float32 holds whole numbers up to
2^24). The mark distinguishes an array with counters from one that happens to be large enough.
"""

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.errors import ShapeError, TargetError

MARK = 7_340_033
FIELDS = 6
COUNTER_BYTES = 8 * FIELDS
# A reset's observation comes from no action.
NO_ACTION = -1
# Whole numbers that float32 holds.
LARGEST = 2**24

FORMATS = {"uint8": "<6q", "int32": "=6i", "int64": "=6q", "float32": "=6f", "float64": "=6d"}

Path = tuple[str | int, ...]


class Counters(NamedTuple):
    """Columns of counters, each (B,) int64."""

    env_id: NDArray[np.int64]
    episode: NDArray[np.int64]
    """From 1, since the last reset with a seed."""
    step: NDArray[np.int64]
    """From 0, the reset, over the episode."""
    total: NDArray[np.int64]
    """Steps since the last reset with a seed; a reset adds none."""
    action: NDArray[np.int64]
    """The step's action, see `action_number`; `NO_ACTION` after a reset."""


def counter_path(space: Space[Any], path: Path = ()) -> Path | None:
    """The leaf of an observation that holds the counters; None if no leaf can hold them."""
    if isinstance(space, spaces.Dict):
        parts: list[tuple[str | int, Space[Any]]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        return path if _fits(space) else None
    for key, part in parts:
        found = counter_path(part, (*path, key))
        if found is not None:
            return found
    return None


def packer(dtype: np.dtype[Any]) -> Callable[..., None]:
    """A function that writes counters into a contiguous array: (array, byte, *counters)."""
    # Not a compiled Struct, which could not be pickled with its env; the module keeps it compiled.
    return partial(struct.pack_into, FORMATS[dtype.name])


def action_number(space: Space[Any], action: Any) -> int:
    """A whole number below 2^24 that identifies an action; a Discrete's is its value."""
    if isinstance(space, spaces.Discrete):
        return int(action)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = spaces.flatten(space, action)
        return zlib.crc32(np.ascontiguousarray(parts).tobytes()) % LARGEST
    dtype = space.dtype
    if dtype is None:
        return zlib.crc32(repr(action).encode()) % LARGEST
    # Of the space's own type: a float64 action is the float32 one that an engine made of it.
    return zlib.crc32(np.ascontiguousarray(action, dtype).tobytes()) % LARGEST


def read_counters(obs: Any, infos: dict[str, Any] | None = None) -> Counters:
    """The counters of a batch of observations, else of its infos (`infos["counters"]`).

    `obs` is as Gymnasium batches it: leaves (B, ...). For one observation give `obs[None]`.
    Raises: ShapeError if neither carries any.
    """
    for leaf in _leaves(obs):
        rows = _decoded(leaf)
        if rows is not None:
            return Counters(*rows[:, 1:].T)
    if infos is not None and "counters" in infos:
        return Counters(*np.asarray(infos["counters"], np.int64)[:, 1:].T)
    raise ShapeError(
        "read_counters: expected a batch of observations that carry a synthetic env's counters, "
        "got none that does; give the infos too, or a space with six entries of 32 bits, or "
        f"{COUNTER_BYTES} bytes"
    )


class Ledger:
    """Checks a stream of transitions: none lost, none doubled, none from another env."""

    def __init__(self, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        # In same-step mode the last step of an episode is seen only as the next one's reset.
        self._unseen = int(autoreset_mode == AutoresetMode.SAME_STEP)
        self._last: dict[int, tuple[int, int, int]] = {}
        self.transitions = 0

    def add(self, counters: Counters) -> None:
        """Enter one batch, rows of any envs in any order, each env once.

        Raises: TargetError, naming the env, what was expected and what was got.
        """
        for env_id, episode, step, total in zip(
            *(column.tolist() for column in counters[:4]), strict=True
        ):
            last = self._last.get(env_id)
            if last is not None:
                before, step_before, total_before = last
                same = (before, step_before + 1, total_before + 1)
                fresh = (before + 1, 0, total_before + self._unseen)
                if (episode, step, total) not in (same, fresh):
                    raise TargetError(
                        f"env {env_id}: expected (episode, step, steps in all) {same} or {fresh}, "
                        f"got {(episode, step, total)}; a transition was lost, doubled or mixed up"
                    )
                self.transitions += total - total_before
            self._last[env_id] = (episode, step, total)

    def restarted(self, env_id: int) -> None:
        """Forget env `env_id`, which was restarted or seeded: it counts anew."""
        self._last.pop(env_id, None)


def _fits(space: Space[Any]) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype.name not in FORMATS:
        return False
    if space.dtype == np.uint8:
        size_fits = int(np.prod(space.shape)) >= COUNTER_BYTES
        return size_fits and not space.low.any() and bool((space.high == 255).all())
    low, high = space.low.reshape(-1)[:FIELDS], space.high.reshape(-1)[:FIELDS]
    return len(low) == FIELDS and bool((low <= NO_ACTION).all() and (high >= LARGEST).all())


def _leaves(obs: Any) -> list[NDArray[Any]]:
    if isinstance(obs, dict):
        return [leaf for part in obs.values() for leaf in _leaves(part)]
    if isinstance(obs, tuple):
        return [leaf for part in obs for leaf in _leaves(part)]
    return [obs] if isinstance(obs, np.ndarray) else []


def _decoded(leaf: NDArray[Any]) -> NDArray[np.int64] | None:
    """(B, 6) of the counters in a leaf (B, ...); None if it carries none."""
    if leaf.ndim < 2 or leaf.dtype.name not in FORMATS or not len(leaf):
        return None
    flat = leaf.reshape(len(leaf), -1)
    if leaf.dtype == np.uint8:
        if flat.shape[1] < COUNTER_BYTES:
            return None
        rows = np.ascontiguousarray(flat[:, :COUNTER_BYTES]).view("<i8").astype(np.int64)
    elif flat.shape[1] < FIELDS or not np.isfinite(flat[:, :FIELDS]).all():
        return None
    else:
        rows = flat[:, :FIELDS].astype(np.int64)
    return rows if bool((rows[:, 0] == MARK).all()) else None
