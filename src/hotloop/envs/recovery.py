"""What becomes of a worker's envs when it has to be started anew: the same in all backends."""

from collections.abc import Sequence

import numpy as np

from hotloop.errors import SettingError

Plan = tuple[Sequence[int], list[int], list[int]]


def restart_seed(entropy: int | Sequence[int] | None, row: int, restarts: int) -> int:
    """A seed of its own for every env and restart, from the seed of the last reset."""
    sequence = np.random.SeedSequence(entropy, spawn_key=(row, restarts))
    return int(sequence.generate_state(1)[0])


def restore_plan(begun: Sequence[bool], over: Sequence[bool], seeds: Sequence[int]) -> Plan:
    """What `Slab.restore` takes: seeds, rows whose episode is lost, rows whose episode was over.

    begun: whether an env was ever reset, and is not being reset just now. All count within a slab.
    """
    rows = [k for k, has_begun in enumerate(begun) if has_begun]
    return seeds, [k for k in rows if not over[k]], [k for k in rows if over[k]]


def expect_workers(num_workers: int, makers: int, splits: int) -> None:
    """Refuse numbers of workers that leave one without envs. makers: of envs, in each split.

    Raises: SettingError.
    """
    if not 1 <= num_workers <= makers:
        raise SettingError(
            f"num_workers: expected 1 to {makers} (makers of envs, in each of {splits} splits), "
            f"got {num_workers}; a worker without envs has nothing to do"
        )


def expect_limits(restarts: int, timeout_s: float | None, threads: int) -> None:
    """Refuse settings of workers that cannot be.

    Raises: SettingError.
    """
    if restarts < 0 or (timeout_s is not None and not timeout_s > 0) or threads < 1:
        raise SettingError(
            "expected restarts >= 0, timeout_s > 0 or None, threads >= 1, got "
            f"{restarts}, {timeout_s}, {threads}"
        )
