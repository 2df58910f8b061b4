"""Many replicates of one model, in batches that fit: here, or on the machines of a Ray cluster.

Replicate r draws by `seed + r` alone, so that batches, machines and what fails in between change
no bit of what comes out; they are settings of speed and memory only.
"""

import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import SettingError, expect_positive, nearest
from hotloop.sim.executor import Executor, LoadPopulation, ModelSource, resolve_model
from hotloop.sim.memory import estimate, free_on
from hotloop.sim.model import Model, Series
from hotloop.sim.record import Record
from hotloop.sim.settings import Settings, find_device

Array = NDArray[Any]
Progress = Callable[[int, int], None]

# A batch takes this share of the free memory at most: others live there too.
MEMORY_SHARE = 0.5
# So many batches for each that runs at the same time: progress is seen, and all end together.
BATCHES_EACH = 8


@dataclass(frozen=True)
class RayPlacement:
    """Where workers run on a Ray cluster, and what each asks for."""

    num_workers: int | None = None
    """Actors; None takes as many as the cluster has room for, at most one a batch."""
    num_cpus: float = 1.0
    """Cores that each asks for, and threads that it uses."""
    num_gpus: float = 0.0
    """Cards that each asks for; with any, batches run on CUDA."""
    ray_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the actors, such as `resources`; "SPREAD" is the strategy if not given."""
    restarts: int = 3
    """How often workers may be started anew, all together, after one died; its batch runs again."""
    address: str | None = None
    """Of a cluster, as `ray.init` takes it; used where Ray was not initialised before."""
    start_timeout_s: float = 120.0
    """How long to wait for the first place."""

    def __post_init__(self) -> None:
        for name in ("num_workers", "num_cpus", "start_timeout_s"):
            expect_positive(name, getattr(self, name))
        if self.restarts < 0 or self.num_gpus < 0:
            raise SettingError(
                f"restarts, num_gpus: expected 0 or more, got {self.restarts}, {self.num_gpus}"
            )


@dataclass(frozen=True, eq=False)
class EnsembleRuns:
    """What the replicates of an ensemble counted."""

    series: Mapping[str, Array]
    """By name, (R, T), in the order of the replicates."""
    seeds: NDArray[np.int64]
    """(R,), the seed of each."""
    batch: int
    """Replicates that were stepped at once."""

    def __getitem__(self, name: str) -> Array:
        """One series, (R, T).

        Raises: SettingError for a name that it does not have.
        """
        if name not in self.series:
            raise SettingError(f"ensemble: no series {name!r}{nearest(name, self.series)}")
        return self.series[name]


@dataclass(frozen=True, eq=False)
class Plan:
    """What every batch has in common; a worker elsewhere gets it without the population."""

    model: Model
    size: int
    num_steps: int
    series: tuple[str, ...]
    parameters: Mapping[str, Tensor]
    options: Mapping[str, Any]  # further ones, of the executor


class Batches:
    """Runs batches of one plan one after the other, in one runner that is used again."""

    def __init__(self, plan: Plan, loader: LoadPopulation | None) -> None:
        self.plan = plan
        executor = Executor(
            plan.model,
            loader,
            replicates=plan.size,
            num_steps=plan.num_steps,
            record=Record(keep=()),
            gradient=False,
            **plan.options,
        )
        self.runner = executor.init()
        if plan.parameters:
            self.runner.set_parameters(plan.parameters)

    def run(self, seeds: list[int]) -> dict[str, Array]:
        """The series of these replicates by name, (len(seeds), T); at most `plan.size` of them."""
        # A short batch goes with copies of its last replicate, which nobody looks at.
        spare = [seeds[-1]] * (self.plan.size - len(seeds))
        self.runner.reset(seeds=[*seeds, *spare])
        self.runner.step(self.plan.num_steps)
        state = self.runner.state
        return {
            name: state[f"environment/{name}"][: len(seeds)].detach().cpu().numpy().copy()
            for name in self.plan.series
        }

    def close(self) -> None:
        """End the runner's threads."""
        self.runner.close()


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
    """Whole episodes of `replicates` runs of a model; replicate r has seed `seed + r`.

    population: whatever `LoadPopulation` takes, or one. batch: replicates stepped at once; "auto"
    takes what fits the memory, and batches enough to see progress. backend: "ray" runs batches on
    the actors of a cluster, see `RayPlacement`; one is started here where there is none, and stays
    until the interpreter ends. series: of the environment, by name; all if None. parameters: by
    path, as `Runner.set_parameters` takes them. on_progress: called with the replicates done and
    all of them, after each batch. executor: further settings of `Executor`, such as `device`.

    Equal bit for bit for all batches and backends on one kind of device, and to single runs.

    Raises: SettingError for settings, CapacityError for a batch that does not fit, WorkerError for
    workers that find no place or die too often; what the model raises.
    """
    _expect_settings(replicates, batch, backend, ray, executor)
    resolved = resolve_model(model)
    is_loader = population is None or isinstance(population, LoadPopulation)
    loader = population if is_loader else LoadPopulation(population)
    plan = Plan(
        resolved,
        0,
        num_steps or resolved.num_steps_per_episode,
        _series_of(resolved, series),
        {path: value.detach().cpu() for path, value in (parameters or {}).items()},
        executor,
    )
    runs = EnsembleRuns(
        {name: np.zeros((replicates, plan.num_steps), np.float32) for name in plan.series},
        seed + np.arange(replicates),
        0,
    )
    size = None if batch == "auto" else min(batch, replicates)
    if backend == "ray":
        from hotloop.sim.ensemble_ray import run_on_ray

        return run_on_ray(plan, loader, runs, size, ray or RayPlacement(), on_progress)
    return _run_here(plan, loader, runs, size, on_progress)


def _run_here(
    plan: Plan,
    loader: LoadPopulation | None,
    runs: EnsembleRuns,
    size: int | None,
    on_progress: Progress | None,
) -> EnsembleRuns:
    if size is None:
        threads = plan.options.get("threads") or len(os.sched_getaffinity(0))
        fitting = fitting_batch(plan, loader, _free(plan))
        size = even_batch(len(runs.seeds), fitting, at_once=1, least=2 * threads)
    plan = sized(plan, size)
    batches = Batches(plan, loader)
    try:
        done = 0
        for rows in parts(len(runs.seeds), size):
            done += take(runs, rows, batches.run(runs.seeds[rows].tolist()))
            if on_progress is not None:
                on_progress(done, len(runs.seeds))
    finally:
        batches.close()
    return EnsembleRuns(runs.series, runs.seeds, size)


# --- what both backends share -----------------------------------------------------------------


def parts(replicates: int, size: int) -> Iterator[slice]:
    """The replicates of each batch: `size` at most, and all about as many."""
    count = math.ceil(replicates / size)
    for k in range(count):
        yield slice(replicates * k // count, replicates * (k + 1) // count)


def take(runs: EnsembleRuns, rows: slice, counted: Mapping[str, Array]) -> int:
    """Write a batch's series into their rows; returns how many replicates it had."""
    for name, values in counted.items():
        runs.series[name][rows] = values
    return int(rows.stop - rows.start)


def sized(plan: Plan, size: int) -> Plan:
    """The plan with batches of this size."""
    return Plan(plan.model, size, plan.num_steps, plan.series, plan.parameters, plan.options)


def even_batch(replicates: int, fitting: int, *, at_once: int, least: int = 1) -> int:
    """A size that fits and gives each of `at_once` workers some batches, all about as large."""
    wanted = max(least, math.ceil(replicates / (BATCHES_EACH * at_once)))
    size = max(1, min(fitting, wanted, replicates))
    return math.ceil(replicates / math.ceil(replicates / size))


def fitting_batch(plan: Plan, loader: LoadPopulation | None, free: float) -> int:
    """How many replicates fit into so many bytes; 1 at least, whose runner says what is missing."""
    one, two = (needed_bytes(plan, loader, replicates) for replicates in (1, 2))
    more = max(1, two - one)
    return 1 + max(0, int((free * MEMORY_SHARE - one) // more))


def needed_bytes(plan: Plan, loader: LoadPopulation | None, replicates: int) -> int:
    """About what a batch of so many takes, on a card if it runs there, else on the host."""
    data = None if loader is None else loader.data
    sizes = dict(plan.model.sizes)
    loaded = plan.model.loaded_population
    if data is not None and loaded is not None:
        sizes[loaded] = data.size
    fused = plan.options.get("fused", True)
    settings = Settings(device=_device(plan), replicates=replicates, fused=fused)
    need = estimate(plan.model, data, settings, sizes, Record(keep=()), plan.num_steps)
    on_host = {} if settings.device.type == "cuda" else need.host
    return int(sum(need.device.values()) + sum(on_host.values()))


def _free(plan: Plan) -> int:
    device = _device(plan)
    if device.type == "cuda":
        return free_on(device)
    return int(psutil.virtual_memory().available)


def _device(plan: Plan) -> torch.device:
    return find_device(plan.options.get("device", "auto"))


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
