"""Envs divided among workers: the same for worker processes and for Ray actors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.envs.arguments import as_autoreset_mode, as_batch_size
from hotloop.envs.facts import Facts
from hotloop.envs.placement import share
from hotloop.errors import SettingError, TargetError

Makers = Sequence[Callable[[], Any]]
WorkerFacts = list[tuple[int, Facts]]  # of each slab of a worker: how many envs, what they are


def in_splits(
    fns: Makers, splits: int, autoreset_mode: str | AutoresetMode | None
) -> tuple[list[Makers], AutoresetMode | None]:
    """The makers of each split, and the autoreset mode.

    Raises: TargetError without a maker; SettingError for splits that do not divide them, or for an
    unknown mode.
    """
    if not fns:
        raise TargetError("vector env: expected at least one env, got none")
    as_batch_size(None, len(fns), splits)
    mode = None if autoreset_mode is None else as_autoreset_mode(autoreset_mode)
    size = len(fns) // splits
    return [fns[k * size : (k + 1) * size] for k in range(splits)], mode


def expect_workers(num_workers: int, groups: Sequence[Makers]) -> None:
    """Refuse numbers of workers that leave one without envs. groups: of `in_splits`.

    Raises: SettingError.
    """
    makers = len(groups[0])
    if not 1 <= num_workers <= makers:
        raise SettingError(
            f"num_workers: expected 1 to {makers} (makers of envs, in each of {len(groups)} "
            f"splits), got {num_workers}; a worker without envs has nothing to do"
        )


def expect_limits(restarts: int, timeout_s: float | None, threads: int) -> None:
    """Refuse settings of workers that are out of range.

    Raises: SettingError.
    """
    if restarts < 0 or (timeout_s is not None and not timeout_s > 0) or threads < 1:
        raise SettingError(
            "expected restarts >= 0, timeout_s > 0 or None, threads >= 1, got "
            f"{restarts}, {timeout_s}, {threads}"
        )


def part_of(
    groups: Sequence[Makers], num_workers: int, worker: int
) -> tuple[tuple[tuple[Callable[[], Any], ...], ...], tuple[int, ...]]:
    """A worker's makers in each split, and the number of the first of them among all."""
    fns = []
    firsts = []
    before = 0
    for group in groups:
        part = share(len(group), num_workers, worker)
        fns.append(tuple(group[part]))
        firsts.append(before + part.start)
        before += len(group)
    return tuple(fns), tuple(firsts)


def number_rows(
    groups: Sequence[Makers], facts_of: Sequence[WorkerFacts]
) -> tuple[Facts, list[list[range]]]:
    """Number the envs split by split, and within one worker by worker.

    facts_of: of each worker. Returns what the envs are, and the rows of each worker's slabs.
    Raises: TargetError for envs that are not alike.
    """
    first_facts = facts_of[0][0][1]
    slabs: list[list[range]] = [[] for _ in facts_of]
    row = 0
    for group in groups:
        for worker, facts_of_worker in enumerate(facts_of):
            part = share(len(group), len(facts_of), worker)
            count = part.stop - part.start if first_facts.is_vector else 1
            own = slabs[worker]
            for size, facts in facts_of_worker[len(own) :][:count]:
                facts.expect_like(first_facts, row)
                own.append(range(row, row + size))
                row += size
    return first_facts, slabs


def owners(rows_of: Sequence[Sequence[int]], num_envs: int) -> np.ndarray:
    """The number of the worker that has each env, (num_envs,). rows_of: of each worker."""
    owner = np.zeros(num_envs, np.int64)
    for worker, rows in enumerate(rows_of):
        owner[list(rows)] = worker
    return owner
