"""How the envs of a worker that was started anew go on: the same in all backends."""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.envs.table import Rows, Table


class RestorePlan(NamedTuple):
    """What `Slab.restore` is to do with its rows, counted within the slab."""

    seeds: list[int]
    lost: list[int]  # whose episode ended with the worker
    over: list[int]  # whose episode was over before


class Episodes:
    """Which envs have begun episodes, and from which seeds those of new workers follow."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode) -> None:
        self._started = np.zeros(num_envs, np.bool_)
        self._entropy = np.random.SeedSequence().entropy
        self._same_step = autoreset_mode == AutoresetMode.SAME_STEP

    def begin(self, rows: Rows, seeds: Sequence[int | None]) -> None:
        """Note a reset of these envs."""
        if seeds and seeds[0] is not None:
            self._entropy = abs(int(seeds[0]))
        self._started[rows] = True

    def restore_plans(
        self,
        slabs: Sequence[Sequence[int]],
        over: np.ndarray,
        resetting: Container[int],
        restarts: int,
    ) -> list[RestorePlan]:
        """A plan for each slab of a worker that was started anew `restarts` times.

        slabs: their rows. over: whether the episode of each env was over, (num_envs,).
        resetting: the envs that are being reset, so that nothing of theirs is lost.
        """
        plans = []
        for slab in slabs:
            begun = [k for k, r in enumerate(slab) if self._started[r] and r not in resetting]
            ended = {k for k in begun if over[slab[k]] and not self._same_step}
            plans.append(
                RestorePlan(
                    [restart_seed(self._entropy, row, restarts) for row in slab],
                    [k for k in begun if k not in ended],
                    [k for k in begun if k in ended],
                )
            )
        return plans


def over_in(table: Table) -> np.ndarray:
    """Whether the episode of each env was over after its last step, (num_envs,)."""
    over: np.ndarray = table.terminated | table.truncated
    return over


def restart_seed(entropy: int | Sequence[int] | None, row: int, restarts: int) -> int:
    """A seed of its own for every env and restart, from the seed of the last reset."""
    sequence = np.random.SeedSequence(entropy, spawn_key=(row, restarts))
    return int(sequence.generate_state(1)[0])
