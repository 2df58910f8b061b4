"""Batches of an ensemble: how large they are, and the one runner that steps them in turn.

Apart from ensemble.py because workers of a Ray cluster need the same, and import it from here.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import SettingError, nearest
from hotloop.sim.executor import Executor, LoadPopulation
from hotloop.sim.memory import estimate
from hotloop.sim.model import Model
from hotloop.sim.record import Record
from hotloop.sim.runner import Runner
from hotloop.sim.settings import Settings, find_device

Array = NDArray[Any]
Progress = Callable[[int, int], None]
"""Called with the replicates done, and with all of them."""

# A batch takes this share of the free memory at most: other programs need memory, too.
MEMORY_SHARE = 0.5
# Batches for each worker: enough to show progress and to let all workers end together.
BATCHES_EACH = 8


@dataclass(frozen=True, eq=False)
class EnsembleRuns:
    """The series that the replicates of an ensemble have recorded."""

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

    def write(self, rows: slice, series: Mapping[str, Array]) -> int:
        """Write the series of one batch into its rows; returns how many replicates it has."""
        for name, values in series.items():
            self.series[name][rows] = values
        return int(rows.stop - rows.start)


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """What all batches of an ensemble have in common; sent to workers without the population."""

    model: Model
    size: int
    """Replicates of a batch."""
    num_steps: int
    series: tuple[str, ...]
    parameters: Mapping[str, Tensor]
    options: Mapping[str, Any]
    """Further settings of the executor."""

    def of_size(self, size: int) -> "BatchSpec":
        """Return the same spec for batches of another size."""
        return replace(self, size=size)

    @property
    def device(self) -> torch.device:
        """Where the batches run.

        Raises: DeviceError for a device that this machine does not have.
        """
        return find_device(self.options.get("device", "auto"))

    def runner(self, loader: LoadPopulation | None) -> Runner:
        """Make the runner of the batches, at its first state."""
        executor = Executor(
            self.model,
            loader,
            replicates=self.size,
            num_steps=self.num_steps,
            record=Record(keep=()),
            gradient=False,
            **self.options,
        )
        runner = executor.init()
        if self.parameters:
            runner.set_parameters(self.parameters)
        return runner


class BatchedRuns:
    """Replicates stepped by one runner, batch after batch; keeps what was done when interrupted.

        runs = BatchedRuns(runner, seeds, series=("wealth",), num_steps=50)
        try:
            runs.run(on_step=bar.advance)
        finally:
            series = runs.completed()

    runner: of an ensemble; its replicates are the size of a batch.
    seeds: of all replicates, in their order. series: of the environment, by name.
    """

    def __init__(
        self, runner: Runner, seeds: Sequence[int], *, series: Sequence[str], num_steps: int
    ) -> None:
        self.runner, self.seeds = runner, list(seeds)
        self._series, self._num_steps = tuple(series), num_steps
        self._size = runner.settings.replicates or 1
        self._batches: list[dict[str, Array]] = []

    def run(
        self, *, on_step: Callable[[], None] | None = None, on_batch: Progress | None = None
    ) -> None:
        """Run all batches.

        on_step: called after each step of each batch. on_batch: called after each batch.

        Raises: what the model and both callbacks raise; `completed` has what was done until then.
        """
        for rows in batch_rows(len(self.seeds), self._size):
            self._batches.append(self.run_batch(self.seeds[rows], on_step))
            if on_batch is not None:
                on_batch(rows.stop, len(self.seeds))

    def run_batch(
        self, seeds: Sequence[int], on_step: Callable[[], None] | None = None
    ) -> dict[str, Array]:
        """Run one episode of these replicates, as many as a batch has at most.

        Returns: the series by name, (len(seeds), T).
        """
        # A short batch is filled up with copies of its last replicate, which are not read.
        padded = [*seeds, *[seeds[-1]] * (self._size - len(seeds))]
        state = self.runner.state
        if state.step or state.seeds.reshape(-1).tolist() != padded:
            self.runner.reset(seeds=padded if state.replicates else padded[0])
        if on_step is None:
            self.runner.step(self._num_steps)
        else:
            for _ in range(self._num_steps):
                self.runner.step()
                on_step()
        return self._read(len(seeds), self._num_steps)

    def completed(self) -> dict[str, Array]:
        """Return the series of all batches that are done, by name, (replicates, T).

        While the first batch is not done: what it has, with fewer steps.
        """
        done = self._batches
        if not done:
            replicates = min(self._size, len(self.seeds))
            done = [self._read(replicates, int(self.runner.state.step))]
        return {name: np.concatenate([batch[name] for batch in done]) for name in self._series}

    def _read(self, replicates: int, steps: int) -> dict[str, Array]:
        found = {}
        for name in self._series:
            values = self.runner.state[f"environment/{name}"]
            rows = values.reshape(self._size, -1)[:replicates, :steps]
            found[name] = rows.detach().cpu().numpy().copy()  # the next batch writes there
        return found


def batch_rows(replicates: int, size: int) -> Iterator[slice]:
    """Cut the replicates into batches of `size` at most, all about as large."""
    count = math.ceil(replicates / size)
    for k in range(count):
        yield slice(replicates * k // count, replicates * (k + 1) // count)


def even_batch(replicates: int, fitting: int, *, at_once: int, least: int = 1) -> int:
    """Choose a size that fits and gives each of `at_once` workers some batches of equal size."""
    wanted = max(least, math.ceil(replicates / (BATCHES_EACH * at_once)))
    size = max(1, min(fitting, wanted, replicates))
    return math.ceil(replicates / math.ceil(replicates / size))


def fitting_batch(spec: BatchSpec, loader: LoadPopulation | None, free_bytes: float) -> int:
    """Count the replicates that fit into the free memory; at least 1.

    One replicate that does not fit is refused by its runner, which says what is missing.
    """
    one, two = (needed_bytes(spec, loader, replicates) for replicates in (1, 2))
    more = max(1, two - one)
    return 1 + max(0, int((free_bytes * MEMORY_SHARE - one) // more))


def needed_bytes(spec: BatchSpec, loader: LoadPopulation | None, replicates: int) -> int:
    """Estimate the memory of a batch of so many replicates, on its card or else on the host."""
    data = None if loader is None else loader.data
    sizes = dict(spec.model.sizes)
    loaded = spec.model.loaded_population
    if data is not None and loaded is not None:
        sizes[loaded] = data.size
    fused = spec.options.get("fused", True)
    settings = Settings(device=spec.device, replicates=replicates, fused=fused)
    need = estimate(spec.model, data, settings, sizes, Record(keep=()), spec.num_steps)
    on_host = {} if settings.device.type == "cuda" else need.host
    return int(sum(need.device.values()) + sum(on_host.values()))
