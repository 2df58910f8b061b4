"""Batches of an ensemble on Ray actors, on any node of a cluster.

The population is sent once: it is in the object store, and each node's actors read it there without
a copy. An actor requests real cores and memory, so that the scheduler spreads the actors over the
nodes; it keeps its runner from batch to batch. A batch depends on its seeds alone: one that was
lost with a worker or a node runs again on another.
"""

import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from hotloop.envs.ray.cluster import actor_options, capacity, start_ray
from hotloop.envs.ray.failures import death
from hotloop.errors import ConfigError, SettingError, WorkerError
from hotloop.populations.data import PopulationData
from hotloop.sim.ensemble_batches import (
    Array,
    BatchedRuns,
    BatchSpec,
    EnsembleRuns,
    Progress,
    batch_rows,
    even_batch,
    fitting_batch,
    needed_bytes,
)
from hotloop.sim.executor import LoadPopulation
from hotloop.sim.ray_placement import RayPlacement

_LOG = logging.getLogger("hotloop")
_RAY: Any = ray  # without annotations for what it says about the cluster
# Requested by an actor beside the batch: memory of the interpreter and torch.
PROCESS_BYTES = 300_000_000


@dataclass(frozen=True, eq=False)
class _Shipped:
    """A population for sending: arrays, which the object store shares."""

    name: str
    columns: Mapping[str, Array]
    edges: Array | None
    periods: tuple[Array, ...]

    @classmethod
    def of(cls, data: PopulationData) -> "_Shipped":
        return cls(data.name, dict(data.columns), data.edges, data.periods)

    def unpacked(self) -> PopulationData:
        return PopulationData(self.name, self.columns, self.edges, self.periods)


class _Actor:
    """A worker: one runner, made with the first batch."""

    def __init__(self, pickled: bytes, shipped: _Shipped | None) -> None:
        self._pickled, self._shipped = pickled, shipped
        self._batches: BatchedRuns | None = None

    def placed(self) -> None:
        """Answer once the actor is placed on a node."""

    def run(self, seeds: list[int]) -> dict[str, Array]:
        """Run these replicates; returns their series."""
        if self._batches is None:
            spec: BatchSpec = cloudpickle.loads(self._pickled)
            torch.set_num_threads(spec.options["threads"])
            shipped = self._shipped
            loader = None if shipped is None else LoadPopulation(shipped.unpacked())
            self._batches = BatchedRuns(
                spec.runner(loader), seeds, series=spec.series, num_steps=spec.num_steps
            )
        return self._batches.run_batch(seeds)


def run_on_ray(
    spec: BatchSpec,
    loader: LoadPopulation | None,
    runs: EnsembleRuns,
    size: int | None,
    placement: RayPlacement,
    on_progress: Progress | None,
) -> EnsembleRuns:
    """Fill the series of `runs`; see `run_ensemble`."""
    if not ray.is_initialized():
        start_ray(placement.address)
    spec = replace(spec, options=_options(spec.options, placement))
    asked = actor_options(
        placement.num_cpus, {**placement.ray_options, "num_gpus": placement.num_gpus}
    )
    total = len(runs.seeds)
    if size is None:
        slots = placement.num_workers or max(1, _room(asked))
        fitting = total
        if not placement.num_gpus:  # only its node knows how much memory a card has
            fitting = fitting_batch(spec, loader, _memory_each(asked))
        size = even_batch(total, fitting, at_once=slots)
    spec = spec.of_size(size)
    if not placement.num_gpus:
        asked.setdefault("memory", needed_bytes(spec, loader, size) + PROCESS_BYTES)
    workers = min(placement.num_workers or _room(asked), -(-total // size))
    if workers < 1:
        raise SettingError(
            f"ray: no node has room for a worker, which asks for {asked.get('num_cpus')} CPU, "
            f"{asked.get('num_gpus')} GPU, {asked.get('memory', 0) / 1e9:.2g} GB of memory and "
            f"{dict(asked.get('resources') or {})}; the cluster has "
            f"{_RAY.cluster_resources()}. Ask for less, or make batches smaller (batch={size})"
        )
    _Workers(spec, loader, asked, placement, runs, on_progress).work(workers)
    return EnsembleRuns(runs.series, runs.seeds, size)


class _Workers:
    """The actors of one ensemble, seen from the driver; they live as long as `work`."""

    def __init__(
        self,
        spec: BatchSpec,
        loader: LoadPopulation | None,
        options: Mapping[str, Any],
        placement: RayPlacement,
        runs: EnsembleRuns,
        on_progress: Progress | None,
    ) -> None:
        self._spec = ray.put(_pickled(spec))
        self._population = None if loader is None else ray.put(_Shipped.of(loader.data))
        self._make: Any = ray.remote(**options)(_Actor)
        self._placement, self._runs, self._on_progress = placement, runs, on_progress
        self._left = deque(batch_rows(len(runs.seeds), spec.size))
        self._done = self._restarts = 0
        self._actors: set[Any] = set()
        # What is running: the actor, and the rows of its batch; None until the actor is placed.
        self._under_way: dict[Any, tuple[Any, slice | None]] = {}

    def work(self, workers: int) -> None:
        """Run all batches; the actors are killed afterwards in any case."""
        try:
            for _ in range(workers):
                self._start()
            first, _ = ray.wait(list(self._under_way), timeout=self._placement.start_timeout_s)
            if not first:
                raise WorkerError(
                    f"ray: none of {workers} workers has a place after "
                    f"{self._placement.start_timeout_s:g} s; the cluster has "
                    f"{_RAY.available_resources()} left. End what holds it, or ask for less"
                )
            total = len(self._runs.seeds)
            while self._done < total:
                (ref,), _ = ray.wait(list(self._under_way))
                self._finish(ref)
        finally:
            for actor in self._actors:
                ray.kill(actor)
            self._under_way.clear()

    def _start(self) -> None:
        actor = self._make.remote(self._spec, self._population)
        self._actors.add(actor)
        self._under_way[actor.placed.remote()] = (actor, None)

    def _finish(self, ref: Any) -> None:
        """Take the result of a call, and give its worker the next batch."""
        actor, rows = self._under_way.pop(ref)
        try:
            series = ray.get(ref)
        except RayTaskError as error:
            raise _cause(error, rows) from None  # the model's own: it would occur again
        except RayError as error:
            self._replace(actor, rows, error)
            return
        if rows is not None:
            self._done += self._runs.write(rows, series)
            if self._on_progress is not None:
                self._on_progress(self._done, len(self._runs.seeds))
        if self._left:
            rows = self._left.popleft()
            seeds = self._runs.seeds[rows].tolist()
            self._under_way[actor.run.remote(seeds)] = (actor, rows)

    def _replace(self, actor: Any, rows: slice | None, error: RayError) -> None:
        self._actors.discard(actor)
        ray.kill(actor)  # it may be alive, with only its answer lost
        limit, why = self._placement.restarts, death(error)
        what = "a worker" if rows is None else f"the worker of replicates {_named(rows)}"
        if self._restarts >= limit:
            raise WorkerError(
                f"ensemble: {what} {why}, after {self._restarts} restarts: expected at most "
                f"restarts={limit}; make batches smaller if memory is short, or allow more"
            ) from error
        self._restarts += 1
        _LOG.warning("ensemble: %s %s; restart %d of %d", what, why, self._restarts, limit)
        if rows is not None:
            self._left.appendleft(rows)
        self._start()


def _options(given: Mapping[str, Any], placement: RayPlacement) -> dict[str, Any]:
    """Complete the executor's settings with the resources of an actor; the same on all nodes."""
    kind = "cuda" if placement.num_gpus else "cpu"
    wanted = given.get("device", "auto")
    if wanted != "auto" and torch.device(wanted).type != kind:
        raise SettingError(
            f"device: {wanted!r}, and workers ask for {placement.num_gpus:g} GPU; set "
            "RayPlacement.num_gpus accordingly, or leave device out"
        )
    threads = given.get("threads") or max(1, int(placement.num_cpus))
    return {**given, "device": kind, "threads": threads}


def _room(asked: Mapping[str, Any]) -> int:
    return int(min(capacity(asked), 10_000))


def _memory_each(asked: Mapping[str, Any]) -> float:
    """Estimate the bytes for a worker where nodes are full of workers; the least of all nodes."""
    each = [np.inf]
    for node in _RAY.nodes():
        has = node["Resources"] if node["Alive"] else {}
        workers = int(has.get("CPU", 0.0) / asked["num_cpus"])
        if workers and "memory" in has:
            each.append(has["memory"] / workers - PROCESS_BYTES)
    return float(min(each)) if len(each) > 1 else float(PROCESS_BYTES)


def _pickled(spec: BatchSpec) -> bytes:
    try:
        return cloudpickle.dumps(spec, protocol=5)  # type: ignore[no-any-return]
    except Exception as error:
        raise ConfigError(
            f"model {spec.model.name!r}: expected one that can be sent to another machine, got one "
            f"that cannot be pickled: {error}; let its substeps hold numbers and arrays, not "
            "files, locks or devices"
        ) from error


def _cause(error: RayTaskError, rows: slice | None) -> BaseException:
    cause = error.cause if isinstance(error.cause, BaseException) else error
    if rows is not None:
        cause.add_note(f"in the worker of replicates {_named(rows)}")
    plain = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without Ray's colours
    cause.add_note(f"\nIn the worker:\n{plain}")
    return cause


def _named(rows: slice) -> str:
    return f"{rows.start} to {rows.stop - 1}"
