"""The replicates of an ensemble run and counted: all at once, in batches, or on a Ray cluster."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hotloop.cli.scenario import Scenario, covid_model, engine_settings
from hotloop.errors import CapacityError

if TYPE_CHECKING:
    from hotloop.populations.data import PopulationData
    from hotloop.sim import Runner

SERIES = ("daily_infected", "daily_deaths")


@dataclass
class Counted:
    """What was counted: by series, (R, T) of whole numbers; and what cut it short, if anything.

    An ensemble that was cut short in its first batch has fewer days, later on fewer replicates.
    """

    arrays: dict[str, NDArray[np.int32]]
    error: BaseException | None = None
    stats: dict[str, Any] = field(default_factory=dict)


def count_here(
    runner: "Runner", scenario: Scenario, replicates: int, on_day: Callable[[], None]
) -> Counted:
    """Run batches as large as the runner's ensemble, one after the other.

    on_day: called after each day of each batch.
    """
    import torch

    from hotloop.sim.ensemble import parts

    size = scenario.replicates or 1
    whole: list[dict[str, NDArray[np.int32]]] = []
    error: BaseException | None = None
    try:
        for rows in parts(replicates, size):
            seeds = list(range(scenario.seed + rows.start, scenario.seed + rows.stop))
            if rows.start or len(seeds) < size:  # else it starts as the runner was made
                # A short batch goes with copies of its last replicate, which nobody looks at.
                runner.reset(seeds=[*seeds, *[seeds[-1]] * (size - len(seeds))])
            for _ in range(scenario.steps):
                runner.step()
                on_day()
            whole.append(_read(runner, len(seeds), scenario.steps))
    except (MemoryError, torch.OutOfMemoryError):
        error = CapacityError(
            f"out of memory on day {runner.state.step}; ask for fewer --replicates, a smaller "
            "--population, or fewer at once with --batch"
        )
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    if not whole:
        whole = [_read(runner, min(size, replicates), int(runner.state.step))]
    arrays = {name: np.concatenate([each[name] for each in whole]) for name in SERIES}
    return Counted(arrays, error, runner.get_performance_stats())


def count_on_ray(
    data: "PopulationData",
    scenario: Scenario,
    replicates: int,
    batch: int | None,
    on_progress: Callable[[int, int], None],
) -> Counted:
    """Run batches on the actors of a cluster; what cuts it short leaves nothing.

    on_progress: called with the replicates done, and all of them.
    """
    from hotloop.sim import LoadPopulation
    from hotloop.sim.ensemble import RayPlacement, run_ensemble

    begin = time.perf_counter()
    try:
        runs = run_ensemble(
            covid_model(scenario),
            LoadPopulation(data),
            replicates=replicates,
            seed=scenario.seed,
            batch="auto" if batch is None else batch,
            backend="ray",
            series=SERIES,
            num_steps=scenario.steps,
            on_progress=on_progress,
            ray=RayPlacement(num_gpus=1.0 if scenario.device.startswith("cuda") else 0.0),
            **engine_settings(scenario),
        )
    except (Exception, KeyboardInterrupt) as raised:
        return Counted({name: np.zeros((replicates, 0), np.int32) for name in SERIES}, raised)
    seconds = time.perf_counter() - begin
    agent_steps = replicates * scenario.steps * data.size
    stats = {
        "program": f"Ray, batches of {runs.batch}",
        "precision": scenario.precision,
        "replicates": replicates,
        "steps": scenario.steps,
        "agent_steps": agent_steps,
        "seconds": seconds,
        "agent_steps_per_s": agent_steps / seconds,
    }
    return Counted({name: runs[name].astype(np.int32) for name in SERIES}, None, stats)


def _read(runner: "Runner", replicates: int, days: int) -> dict[str, NDArray[np.int32]]:
    found = {}
    for name in SERIES:
        counts = runner.state[f"environment/{name}"][:replicates, :days].detach().cpu().numpy()
        found[name] = counts.astype(np.int32)  # a copy: the next batch writes to the same place
    return found
