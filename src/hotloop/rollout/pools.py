"""The table of worker pools, by the name of a backend, and what their workers ask for."""

import math
from collections.abc import Callable, Mapping

import cloudpickle

from hotloop.errors import SettingError, did_you_mean
from hotloop.rollout.inference import InferenceSettings
from hotloop.rollout.inference_servers import expect_servers
from hotloop.rollout.process import ProcessWorkerPool
from hotloop.rollout.serial import SerialWorkerPool
from hotloop.rollout.served_pool import ServedPool
from hotloop.rollout.worker import WorkerSettings
from hotloop.rollout.worker_pool import PLACEMENTS, Resources, WorkerPool, load_ray_part


def worker_pool(
    backend: str,
    settings: WorkerSettings,
    resources: Resources,
    server: InferenceSettings | None = None,
    restarts: int = 0,
) -> WorkerPool:
    """Make the pool of a backend; with a server, which gets the cards then, beside it.

    Raises: SettingError.
    """
    pickled: bytes = cloudpickle.dumps(settings)
    if backend not in _POOLS:
        raise SettingError(
            f"backend: expected {', '.join(map(repr, _POOLS))}, got {backend!r}"
            f"{did_you_mean(backend, _POOLS)}"
        )
    check_resources(backend, resources)
    if server is None:
        return _POOLS[backend](pickled, settings.num_workers, resources)
    expect_servers(backend)
    pool = _POOLS[backend](pickled, settings.num_workers, resources._replace(num_gpus=0.0))
    return ServedPool(pool, backend, server, settings.seed, resources, restarts)


def check_resources(backend: str, resources: Resources) -> None:
    """Refuse resources that a backend does not take, with SettingError."""
    for name, value, usual in zip(
        Resources._fields, resources, Resources._field_defaults.values(), strict=True
    ):
        if backend != "ray" and value != usual:
            raise SettingError(
                f"{name}: expected none with backend {backend!r}, whose workers ask no scheduler, "
                f"got {value!r}; leave it out, or take backend 'ray'"
            )
    if resources.placement not in PLACEMENTS:
        raise SettingError(
            f"placement: expected {' or '.join(map(repr, PLACEMENTS))}, got "
            f"{resources.placement!r}{did_you_mean(resources.placement, PLACEMENTS)}"
        )
    for name in ("num_cpus", "num_gpus"):
        value = getattr(resources, name)
        if not 0 <= value < math.inf:
            raise SettingError(f"{name}: expected a number of 0 or more, got {value}")


def _process(settings: bytes, num_workers: int, _resources: Resources) -> WorkerPool:
    return ProcessWorkerPool(settings, num_workers)


def _ray(settings: bytes, _num_workers: int, resources: Resources) -> WorkerPool:
    pool: WorkerPool = load_ray_part("hotloop.rollout.ray").RayWorkerPool(settings, resources)
    return pool


def _serial(settings: bytes, _num_workers: int, _resources: Resources) -> WorkerPool:
    return SerialWorkerPool(settings)


_POOLS: Mapping[str, Callable[[bytes, int, Resources], WorkerPool]] = {
    "serial": _serial,
    "process": _process,
    "ray": _ray,
}
