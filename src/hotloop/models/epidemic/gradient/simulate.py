"""Simulate the runs of a problem with the engine's own kernels."""

from typing import Any, NamedTuple

import numpy as np
import torch

from hotloop.models.epidemic.gradient.problem import SpreadProblem
from hotloop.models.epidemic.program import SpreadColumns, SpreadProgram
from hotloop.models.epidemic.spread import SpreadInputs

Array = np.ndarray[Any, Any]


class Runs(NamedTuple):
    """Simulated runs: infected, deaths (R, T); infected_time (R, N) int16, after the last step."""

    infected: Array
    deaths: Array
    infected_time: Array


class Simulator:
    """The engine's program at a problem's start, one row of columns for each seed; one thread."""

    def __init__(self, problem: SpreadProblem, seeds: tuple[int, ...]) -> None:
        start = problem.start
        self._problem, self._control = problem, start.control(0)

        def tiled(column: Array, dtype: type) -> torch.Tensor:
            return torch.from_numpy(np.tile(column.astype(dtype), (len(seeds), 1)))

        days = torch.zeros(len(seeds), start.first_step + problem.steps)
        self.columns = SpreadColumns(
            torch.from_numpy(start.group.astype(np.uint8)),
            tiled(start.compartment, np.uint8),
            tiled(start.infected_time, np.int16),
            tiled(start.next_time, np.int16),
            days,
            days.clone(),
        )
        self._program = SpreadProgram(
            start.spread, start.network, self.columns, list(seeds), self._inputs,
            willing=start.willing, mode="push", threads=1,
        )  # fmt: skip

    def columns_changed(self) -> None:
        """Note that the columns were changed from outside."""
        self._program.columns_changed()

    def advance(self, first_step: int, steps: int) -> None:
        """Do steps, with the controls of each step where they change."""
        start = self._problem.start
        if not start.controls_change:
            self._program.advance(first_step, steps)
            return
        for step in range(first_step, first_step + steps):
            self._control = start.control(step - start.first_step)
            self._program.advance(step, 1)

    def _inputs(self) -> SpreadInputs:
        problem, (contact, isolating) = self._problem, self._control
        return SpreadInputs(problem.rate, np.array(problem.mortality), contact, np.array(isolating))


def simulate(problem: SpreadProblem) -> Runs:
    """Run every seed of the problem, with the engine's active-set kernels in one thread."""
    first, simulator = problem.start.first_step, Simulator(problem, problem.seeds)
    simulator.advance(first, problem.steps)
    columns = simulator.columns
    return Runs(
        columns.infected[:, first:].numpy(),
        columns.deaths[:, first:].numpy(),
        columns.infected_time.numpy(),
    )


def infected_times(problem: SpreadProblem) -> Array:
    """Return infection times (R, N) int16, given by the caller or simulated."""
    if problem.infected_time is not None:
        return problem.infected_time
    return simulate(problem).infected_time
