"""The replicates of an ensemble: all at once, in batches, or on a Ray cluster."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import CapacityError
from hotloop.results.scenario import Scenario

if TYPE_CHECKING:
    from hotloop.populations.data import PopulationData
    from hotloop.sim import Runner


Array = NDArray[Any]


@dataclass
class Counted:
    """The outputs of the replicates, (R, T) by name; and what cut the ensemble short, if anything.

    Cut short in its first batch, it has fewer steps; later on, fewer replicates. Whole numbers are
    int32, others float32.
    """

    arrays: dict[str, Array]
    error: BaseException | None = None
    stats: dict[str, Any] = field(default_factory=dict)


def count_here(
    runner: "Runner", scenario: Scenario, replicates: int, on_step: Callable[[], None]
) -> Counted:
    """Run batches as large as the runner's ensemble, one after the other.

    on_step: called after each step of each batch.
    """
    import torch

    from hotloop.sim.ensemble_batches import BatchedRuns

    runs = BatchedRuns(
        runner,
        range(scenario.seed, scenario.seed + replicates),
        series=[output.name for output in scenario.outputs],
        num_steps=scenario.num_steps,
    )
    error: BaseException | None = None
    try:
        runs.run(on_step=on_step)
    except (MemoryError, torch.OutOfMemoryError):
        error = CapacityError(
            f"out of memory in step {runner.state.step}; ask for fewer --replicates, a smaller "
            "--population, or fewer at once with --batch"
        )
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    arrays = {name: _compact(values) for name, values in runs.completed().items()}
    return Counted(arrays, error, runner.get_performance_stats())


def count_on_ray(
    data: "PopulationData | None",
    scenario: Scenario,
    replicates: int,
    batch: int | None,
    agents: int,
    on_progress: Callable[[int, int], None],
) -> Counted:
    """Run batches on the actors of a cluster; what cuts it short leaves nothing.

    on_progress: called with the replicates done, and all of them.
    """
    from hotloop.sim import LoadPopulation, RayPlacement, run_ensemble

    begin = time.perf_counter()
    try:
        runs = run_ensemble(
            scenario.model,
            None if data is None else LoadPopulation(data),
            replicates=replicates,
            seed=scenario.seed,
            batch="auto" if batch is None else batch,
            backend="ray",
            series=tuple(output.name for output in scenario.outputs),
            on_progress=on_progress,
            ray=RayPlacement(num_gpus=1.0 if scenario.device.startswith("cuda") else 0.0),
            **scenario.engine,
        )
    except (Exception, KeyboardInterrupt) as raised:
        nothing = {output.name: np.zeros((replicates, 0), np.int32) for output in scenario.outputs}
        return Counted(nothing, raised)
    seconds = time.perf_counter() - begin
    agent_steps = replicates * scenario.num_steps * agents
    stats = {
        "program": f"Ray, batches of {runs.batch}",
        "precision": scenario.precision,
        "replicates": replicates,
        "steps": scenario.num_steps,
        "agent_steps": agent_steps,
        "seconds": seconds,
        "agent_steps_per_s": agent_steps / seconds,
    }
    return Counted({name: _compact(values) for name, values in runs.series.items()}, None, stats)


def _compact(values: Array) -> Array:
    whole = (np.abs(values) < 2**31).all() and (values == np.rint(values)).all()
    return values.astype(np.int32 if whole else np.float32)
