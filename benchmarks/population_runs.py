"""What the benchmarks of populations have in common: runners, turns of ways, and their medians."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval, percentile_interval, smooth_median
from hotloop.models.epidemic import covid
from hotloop.populations import PopulationData
from hotloop.sim import Executor, LoadPopulation, Runner
from hotloop.sim.network import Network

DAYS = 21


def made(
    data: PopulationData, steps: int = DAYS, *, network: Network | None = None, **settings: Any
) -> Runner:
    """A runner of the covid model, ready to step.

    network: of the population's contacts, where it is there already; runners may share one.
    """
    model = covid.model(covid.CovidSettings(num_steps=steps))
    if network is not None:
        model = replace(model, networks={"contact": network})
    settings = {"device": "cpu", "threads": 1, **settings}
    runner = Executor(model=model, pop_loader=LoadPopulation(data), **settings).runner
    runner.init()
    return runner


def tenth_infectious(data: PopulationData) -> PopulationData:
    """The same agents, of whom 5% are exposed and 5% infected."""
    stages = np.random.default_rng(0).choice(3, data.size, p=(0.9, 0.05, 0.05)).astype(np.uint8)
    return replace(data, columns={**data.columns, "stage": stages})


def in_turns(ways: Mapping[str, Callable[[], float]], turns: int) -> dict[str, np.ndarray]:
    """Milliseconds of each way in each turn; every turn begins with another way."""
    names, times = list(ways), {name: np.zeros(turns) for name in ways}
    for name in names:
        ways[name]()
    gc.disable()
    try:
        for turn in range(turns):
            for place in range(len(names)):
                name = names[(turn + place) % len(names)]
                times[name][turn] = ways[name]()
    finally:
        gc.enable()
    return times


def interval(values: np.ndarray) -> Interval:
    rng = np.random.default_rng(0)
    draws = rng.choice(values, (2000, len(values)))
    return percentile_interval(smooth_median(values[None])[0], smooth_median(draws))


def text(found: Interval, digits: int = 3) -> str:
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def day_bytes(network: Any) -> int:
    """Bytes of a dense day: ids, pointers, stage, time, group and message."""
    return int(4 * network.num_edges + (4 + 1 + 2 + 1 + 1) * network.num_agents)
