"""Which runner steps which env: all in one, until some are reset while others continue."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.sim.runner import Runner

Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(eq=False)
class Batch:
    """Envs at the same step, as replicates of one runner."""

    runner: Runner
    rows: Rows  # the env of each replicate
    kept: Flags  # replicates whose env does not continue in another batch

    @property
    def envs(self) -> Rows:
        """The envs that are stepped here."""
        return self.rows[self.kept]

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.runner.state.step >= self.runner.num_steps


class Batches:
    """The batches of a vector env; the first has a replicate for every env.

    make: makes a runner with a number of replicates, at its first state.
    """

    def __init__(self, num_envs: int, make: Callable[[int], Runner]) -> None:
        self.num_envs, self._make = num_envs, make
        self._batches = [self._batch_of(np.arange(num_envs))]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def runner(self) -> Runner:
        """The runner of the first batch."""
        return self._batches[0].runner

    def begin(self, envs: Rows, seeds: Rows) -> list[Batch]:
        """Start the episodes of these envs; returns the batches that they are in.

        seeds: of every env, (num_envs,). Envs that are reset without the others of their batch
        continue in a batch of their own; their replicates in the old one are not read any more.
        """
        if len(envs) == self.num_envs:  # all in the first batch again
            for batch in self._batches[1:]:
                batch.runner.close()
            self._batches[1:] = []
            self._batches[0].kept[:] = True
        begun, apart = [], [np.zeros(0, np.int64)]
        for batch in self._batches:
            leaving = batch.kept & np.isin(batch.rows, envs)
            if np.array_equal(leaving, batch.kept):
                begun.append(batch)
            else:
                batch.kept &= ~leaving
                apart.append(batch.rows[leaving])
        rows = np.concatenate(apart)
        if len(rows):
            begun.append(self._batch_of(rows))
            self._batches.append(begun[-1])
        for batch in begun:
            batch.runner.reset(seeds=seeds[batch.rows].tolist())
        return begun

    def get_state(self) -> list[Any]:
        """Copy all that steps and resets change, for `set_state`."""
        return [(batch, batch.kept.copy(), batch.runner.get_state()) for batch in self._batches]

    def set_state(self, saved: list[tuple[Batch, Flags, Mapping[str, Any]]]) -> None:
        """Restore what `get_state` returned, as often as wanted."""
        self._batches = []
        for batch, kept, runner in saved:
            batch.kept = kept.copy()
            batch.runner.set_state(runner)
            self._batches.append(batch)

    def close(self) -> None:
        """Close the runners."""
        for batch in self._batches:
            batch.runner.close()

    def _batch_of(self, rows: Rows) -> Batch:
        return Batch(self._make(len(rows)), rows, np.ones(len(rows), np.bool_))
