"""What callers pass to a vector env, checked: modes, batches, seeds, masks, numbers of envs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.envs.table import Rows
from hotloop.errors import SettingError, StateError


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
    """The number of envs of a `recv`. Raises: SettingError for one that does not fit."""
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


def reset_rows(options: Mapping[str, Any] | None, num_envs: int) -> Rows | None:
    """The envs that `options["reset_mask"]` of a reset chooses, ascending; None without a mask.

    Raises: TypeError, ValueError in Gymnasium's words for a mask that is no array of bools
    (num_envs,) with a True.
    """
    if options is None or "reset_mask" not in options:
        return None
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(
            f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}"
        )
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            "`options['reset_mask']` must contain a boolean array with at least one True "
            f"value, got reset_mask={mask}"
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


def split_slice(num_envs: int, splits: int, split: int) -> slice:
    """The rows of one of `splits` equal groups."""
    size = num_envs // splits
    return slice(split * size, (split + 1) * size)


def as_rows(env_ids: Sequence[int] | Rows, num_envs: int) -> Rows:
    """The numbers of some envs as an array.

    Raises: StateError for what is no list of different numbers from 0 to `num_envs - 1`.
    """
    rows = np.asarray(env_ids)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise StateError(f"env_ids: expected a list of env numbers, got {env_ids!r}")
    if len(rows) and (rows.min() < 0 or rows.max() >= num_envs):
        raise StateError(f"env_ids: expected numbers from 0 to {num_envs - 1}, got {env_ids!r}")
    if len(np.unique(rows)) != len(rows):
        raise StateError(f"env_ids: expected each env once, got {env_ids!r}")
    return rows.astype(np.int64, copy=False)
