"""Ensembles: many replicates of one model, in batches that fit, here or on a Ray cluster.

Replicate r draws by `seed + r` alone: batches, machines and restarts of workers change no bit of
the result. They are settings of speed and memory only.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import psutil
from torch import Tensor

from hotloop.errors import SettingError, expect_positive, nearest
from hotloop.sim.ensemble_batches import (
    BatchedRuns,
    BatchSpec,
    EnsembleRuns,
    Progress,
    even_batch,
    fitting_batch,
)
from hotloop.sim.executor import Executor, LoadPopulation, ModelSource, resolve_model
from hotloop.sim.memory import free_on
from hotloop.sim.model import Model, Series
from hotloop.sim.ray_placement import RayPlacement
from hotloop.sim.threads import thread_count


def run_ensemble(
    model: ModelSource,
    population: Any = None,
    *,
    replicates: int,
    seed: int = 0,
    batch: int | Literal["auto"] = "auto",
    backend: Literal["local", "ray"] = "local",
    series: tuple[str, ...] | None = None,
    num_steps: int | None = None,
    parameters: Mapping[str, Tensor] | None = None,
    on_progress: Progress | None = None,
    ray: RayPlacement | None = None,
    **executor: Any,
) -> EnsembleRuns:
    """Run whole episodes of `replicates` replicates of a model; replicate r has seed `seed + r`.

    Equal bit for bit for all batches and backends on one kind of device, and to single runs.

    Args:
        population: whatever `LoadPopulation` takes, or one.
        batch: replicates stepped at once; "auto" takes as many as fit the memory, and makes enough
            batches to show progress.
        backend: "ray" runs batches on the actors of a cluster, see `RayPlacement`; one is started
            here where there is none, and stays until the interpreter ends.
        series: of the environment, by name; all if None.
        parameters: by path, as `Runner.set_parameters` takes them.
        on_progress: called after each batch.
        executor: further settings of `Executor`, such as `device`.

    Raises: SettingError for settings, CapacityError for a batch that does not fit, WorkerError for
    workers that are not placed or fail too often; what the model raises.
    """
    _expect_settings(replicates, batch, backend, ray, executor)
    resolved = resolve_model(model)
    is_loader = population is None or isinstance(population, LoadPopulation)
    loader = population if is_loader else LoadPopulation(population)
    spec = BatchSpec(
        resolved,
        0,
        num_steps or resolved.num_steps_per_episode,
        _series_of(resolved, series),
        {path: value.detach().cpu() for path, value in (parameters or {}).items()},
        executor,
    )
    runs = EnsembleRuns(
        {name: np.zeros((replicates, spec.num_steps), np.float32) for name in spec.series},
        seed + np.arange(replicates),
        0,
    )
    size = None if batch == "auto" else min(batch, replicates)
    if backend == "ray":
        from hotloop.sim.ensemble_ray import run_on_ray  # which imports Ray

        return run_on_ray(spec, loader, runs, size, ray or RayPlacement(), on_progress)
    return _run_here(spec, loader, runs, size, on_progress)


def _run_here(
    spec: BatchSpec,
    loader: LoadPopulation | None,
    runs: EnsembleRuns,
    size: int | None,
    on_progress: Progress | None,
) -> EnsembleRuns:
    total = len(runs.seeds)
    if size is None:
        threads = thread_count(spec.options.get("threads"))
        fitting = fitting_batch(spec, loader, _free_bytes(spec))
        size = even_batch(total, fitting, at_once=1, least=2 * threads)
    with spec.of_size(size).runner(loader) as runner:
        batches = BatchedRuns(
            runner, runs.seeds.tolist(), series=spec.series, num_steps=spec.num_steps
        )
        batches.run(on_batch=on_progress)
        runs.write(slice(0, total), batches.completed())
    return EnsembleRuns(runs.series, runs.seeds, size)


def _free_bytes(spec: BatchSpec) -> int:
    if spec.device.type == "cuda":
        return free_on(spec.device)
    return int(psutil.virtual_memory().available)


# --- settings ---------------------------------------------------------------------------------


def _expect_settings(
    replicates: int, batch: object, backend: str, ray: RayPlacement | None, executor: dict[str, Any]
) -> None:
    expect_positive("replicates", replicates)
    if batch != "auto" and (not isinstance(batch, int) or batch < 1):
        raise SettingError(f"batch: expected 1 or more, or 'auto', got {batch!r}")
    if backend not in ("local", "ray"):
        raise SettingError(f"backend: expected 'local' or 'ray', got {backend!r}")
    if ray is not None and backend != "ray":
        raise SettingError("ray: a placement is for backend='ray'; leave it out, or set that")
    own = {"model", "data_loader", "pop_loader", "record", "gradient"}
    known = [name for name in inspect.signature(Executor).parameters if name not in own]
    for name in executor:
        if name not in known:
            raise SettingError(f"ensemble: no setting {name!r}{nearest(name, known)}")


def _series_of(model: Model, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    known = [name for name, value in model.environment.items() if isinstance(value, Series)]
    for name in wanted or ():
        if name not in known:
            raise SettingError(f"series: the model has no {name!r}{nearest(name, known)}")
    if not known:
        raise SettingError(f"ensemble: model {model.name!r} has no series to record")
    return tuple(known if wanted is None else wanted)
