"""Simulations of a model: an ensemble of runs, as a run file that can be drawn again."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np

from hotloop.loop.lever import Options
from hotloop.loop.run import Run
from hotloop.results.replicates import Counted, count_here, count_on_ray
from hotloop.results.scenario import Scenario


class Simulation:
    """An ensemble of runs of a scenario, ready to start; a context that ends its threads.

    batch: runs stepped at once; None: all. ray: run the batches on a Ray cluster. levers: options
    that are set before the first step.

    Raises: SettingError for a scenario that cannot be run, and for a lever that there is not.
    """

    def __init__(
        self,
        scenario: Scenario,
        replicates: int,
        batch: int | None = None,
        *,
        ray: bool = False,
        levers: Options | None = None,
    ) -> None:
        self.scenario, self.replicates = scenario, replicates
        self._batch, self._ray = batch, ray
        self._data = scenario.load_population()
        self._runner = scenario.runner(self._data, levers or {})
        self.facts = scenario.facts(self._runner, self._data)
        if ray:
            self.facts["device"] = "Ray"
        if scenario.spec.heading is not None:
            self.facts["heading"] = scenario.spec.heading.format(**self.facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._runner.close()

    @property
    def name(self) -> str:
        """How a progress bar calls it."""
        return f"{self.facts['model']} on {self.facts['population']}"

    @property
    def amount(self) -> int:
        """How much there is to do, in `unit`."""
        if self._ray:
            return self.replicates
        batches = -(-self.replicates // (self.scenario.replicates or 1))
        return self.scenario.num_steps * batches

    @property
    def unit(self) -> str:
        """What `run` counts while it goes on."""
        return "runs" if self._ray else f"{self.scenario.spec.step}s"

    def run(self, on_progress: Callable[[int], None]) -> tuple[Run, BaseException | None]:
        """Run all; returns what was counted, and what cut it short, if anything.

        on_progress: called with how much is done, in `unit`.
        """
        counted = self._count(on_progress)
        run = Run(
            verb="simulate",
            target=self.scenario.target(self.facts),
            settings={
                "population": self.scenario.source,
                "steps": self.scenario.num_steps,
                "replicates": self.replicates,
                "seed": self.scenario.seed,
            },
            facts=self.facts
            | {"seconds": counted.stats.get("seconds", 0.0), "stats": counted.stats},
            arrays=dict(counted.arrays),
            complete=counted.error is None,
        )
        return run, counted.error

    def _count(self, on_progress: Callable[[int], None]) -> Counted:
        if self._ray:
            return count_on_ray(
                self._data,
                self.scenario,
                self.replicates,
                self._batch,
                self.facts["agents"],
                lambda done, _: on_progress(done),
            )
        done = 0

        def on_step() -> None:
            nonlocal done
            done += 1
            on_progress(done)

        return count_here(self._runner, self.scenario, self.replicates, on_step)


def table_of(run: Run) -> dict[str, np.ndarray[Any, Any]]:
    """One row for each replicate and step of a simulation, by column."""
    outputs = run.facts["outputs"]
    replicates, steps = run.arrays[outputs[0]["name"]].shape
    replicate = np.repeat(np.arange(replicates), steps)
    table = {
        "replicate": replicate,
        "seed": run.settings["seed"] + replicate,
        run.facts["step"]: np.tile(np.arange(steps), replicates),
    }
    for output in outputs:
        table[output["name"]] = run.arrays[output["name"]].reshape(-1)
    for output in outputs:
        if output["total_name"] is not None:
            totals = run.arrays[output["name"]].cumsum(1).reshape(-1)
            table[output["total_name"]] = totals
    return table
