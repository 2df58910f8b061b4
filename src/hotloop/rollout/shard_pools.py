"""The table of shard pools, by the name of a backend, and what fits into the memory there."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import psutil

from hotloop.errors import SettingError, did_you_mean
from hotloop.rollout.shard import ShardPool, ShardSettings
from hotloop.rollout.shards_process import ProcessShardPool
from hotloop.rollout.worker_pool import load_ray_part

# Of the memory that is free, how much a replay may take.
MEMORY_SHARE = 0.8
MOST_SHARDS = 4096  # that are suggested where fewer do not fit


class Room(NamedTuple):
    """What memory there is for a replay.

    rows: transitions that fit; None where that is not known. found: what memory was found, in
    words. advice: how a size could be reached that does not fit; may be empty.
    """

    rows: int | None
    found: str
    advice: str


def shard_pool(backend: str, settings: ShardSettings) -> ShardPool:
    """Make the pool of a backend. Raises: SettingError."""
    return _backend(backend).make(settings)


def expect_shard_backend(backend: str) -> None:
    """Refuse a backend that has no shards, with SettingError."""
    _backend(backend)


def room_for(backend: str, num_shards: int, size: int, row_bytes: int) -> Room:
    """Look how many transitions fit into a replay, in all.

    num_shards: 0 for a replay in this process. size: transitions that are wanted; row_bytes: of
    each. Raises: SettingError for a backend without shards.
    """
    if num_shards < 1:
        return _room_here(row_bytes)
    return _backend(backend).room(num_shards, size, row_bytes)


def most_rows(memory: Sequence[float], num_shards: int, row_bytes: int) -> int:
    """Compute how many transitions fit into equal shards on nodes with so many bytes each."""
    least, most = 0, int(MEMORY_SHARE * max(memory) / row_bytes)
    while least < most:
        middle = (least + most + 1) // 2
        if _fit(memory, num_shards, middle * row_bytes):
            least = middle
        else:
            most = middle - 1
    return least * num_shards


def enough_shards(memory: Sequence[float], size: int, row_bytes: int) -> int | None:
    """Find the smallest number of equal shards that nodes with so many bytes each have room for."""
    for count in range(1, MOST_SHARDS + 1):
        if size % count == 0 and _fit(memory, count, size // count * row_bytes):
            return count
    return None


def _fit(memory: Sequence[float], num_shards: int, shard_bytes: int) -> bool:
    return sum(int(MEMORY_SHARE * nbytes / shard_bytes) for nbytes in memory) >= num_shards


def _room_here(row_bytes: int) -> Room:
    available = psutil.virtual_memory().available
    return Room(
        int(MEMORY_SHARE * available / row_bytes),
        f"{available / 2**30:.1f} GiB are free here",
        "on a cluster, shards hold more than one machine: backend 'ray' with replay_shards",
    )


def _process_room(_num_shards: int, _size: int, row_bytes: int) -> Room:
    return _room_here(row_bytes)  # all shards are on this machine


def _ray_room(num_shards: int, size: int, row_bytes: int) -> Room:
    memory: list[float] | None = _shards_ray().node_memory()
    if memory is None:
        return Room(None, "the memory of the cluster's nodes is not known", "")
    rows, enough = most_rows(memory, num_shards, row_bytes), enough_shards(memory, size, row_bytes)
    largest = ", ".join(f"{nbytes / 2**30:.1f}" for nbytes in sorted(memory, reverse=True)[:8])
    return Room(
        rows,
        f"shards of it, {num_shards}, have {len(memory)} nodes with {largest} GiB",
        "no number of shards would do" if enough is None else f"replay_shards={enough} would do",
    )


def _process(settings: ShardSettings) -> ShardPool:
    return ProcessShardPool(settings)


def _ray(settings: ShardSettings) -> ShardPool:
    pool: ShardPool = _shards_ray().RayShardPool(settings)
    return pool


def _shards_ray() -> ModuleType:
    return load_ray_part("hotloop.rollout.shards_ray")


class _Backend(NamedTuple):
    make: Callable[[ShardSettings], ShardPool]
    room: Callable[[int, int, int], Room]


_BACKENDS: Mapping[str, _Backend] = {
    "process": _Backend(_process, _process_room),
    "ray": _Backend(_ray, _ray_room),
}


def _backend(name: str) -> _Backend:
    if name not in _BACKENDS:
        raise SettingError(
            f"replay_shards: expected 0 with backend {name!r}, whose replay lies in this process; "
            f"leave it out, or take backend {' or '.join(map(repr, _BACKENDS))}"
            f"{did_you_mean(name, _BACKENDS)}"
        )
    return _BACKENDS[name]
