"""`hotloop simulate MODEL`: how does it spread, and how sure is that?"""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hotloop.cli import scenario as scenarios
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, print_json, quiet
from hotloop.cli.places import check_place, with_plot_value, write_table
from hotloop.cli.replicates import Counted, count_here, count_on_ray
from hotloop.cli.scenario import MODELS, Scenario
from hotloop.errors import SettingError, expect_positive
from hotloop.loop.run import Run
from hotloop.report.console_curves import print_simulate, print_stats
from hotloop.report.curves import simulated

_COLUMNS = (
    TextColumn("[bold]{task.description}"),
    BarColumn(),
    TextColumn("{task.completed:.0f} of {task.total:.0f} {task.fields[what]}"),
    TimeRemainingColumn(),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Simulate how a disease spreads through a population, many times; show the curves and how far
    they differ.
    """

    model: tyro.conf.Positional[str] = "covid"
    """What spreads: covid."""
    population: str = "astoria"
    """Who lives there: astoria, brooklyn, a number of agents, or a folder."""
    both_ways: bool = False
    """Read each row of the network in both directions; without it from src to dst, as written."""
    draw_network: bool = False
    """Draw contacts at random for a folder that has agents and no network."""
    steps: int = 21
    """Days to simulate."""
    replicates: int = 32
    """Runs of the ensemble, from seeds that follow each other."""
    batch: int | None = None
    """Runs stepped at once, for ensembles larger than the memory; default: all."""
    ray: bool = False
    """Run batches on a Ray cluster, or on this machine's cores where there is none."""
    seed: int = 0
    """Of the first run; the next one has the next number. A drawn population stays the same."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    r: str | None = None
    """Reproduction number of each week, such as 4.75,4.5,4; the last one goes on."""
    mortality: float | None = None
    """Share of the infected who die, 0 to 1."""
    threads: int | None = None
    """CPU threads; default: all that this process may use."""
    precision: Literal["double", "mixed"] = "double"
    """Number format of the arithmetic; mixed is faster and rougher."""
    active_set: bool = True
    """Visit the active agents only where they are few; without it every agent on every day."""
    plot: str | None = None
    """Draw the curves: --plot alone here and as a page, --plot FILE.html or FILE.png there."""
    out: Path | None = None
    """Write one row for each run and day here, as .csv or .parquet."""
    stats: bool = False
    """Show the engine's own counters too."""
    json: bool = False
    """Print the curves as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, with_plot_value(arguments, MODELS), "simulate")
    console, errors = consoles(options.json)
    check_place("--out", options.out, (".csv", ".parquet"))
    check_place("--save", options.save)
    scenarios.check_plot(options.plot)
    expect_positive("--batch", options.batch)
    expect_positive("--replicates", options.replicates)
    if options.ray and importlib.util.find_spec("ray") is None:
        raise SettingError("--ray needs Ray: pip install 'hotloop[ray]'")
    batches = -(-options.replicates // (options.batch or options.replicates))
    scenario = Scenario(
        model=options.model,
        population=options.population,
        both_ways=options.both_ways,
        draw_network=options.draw_network,
        steps=options.steps,
        # On a cluster, one run here tells whether the settings can be.
        replicates=1 if options.ray else -(-options.replicates // batches),
        seed=options.seed,
        device=options.device,
        r=scenarios.rates(options.r),
        mortality=options.mortality,
        threads=options.threads,
        precision=options.precision,
        active_set=options.active_set,
    )
    data = scenarios.load_population(scenario, errors)
    with quiet(options.json), scenarios.ready(scenario, data) as runner:
        facts = {
            "model": scenario.model,
            "population": data.name,
            "agents": data.size,
            "contacts": data.num_edges,
            "infected_at_start": scenarios.infected_at_start(runner),
            "device": "Ray" if options.ray else str(runner.device),
        }
        days = scenario.steps * batches
        shown = errors.is_terminal
        with Progress(*_COLUMNS, console=errors, transient=True, disable=not shown) as bar:
            task = bar.add_task(f"{scenario.model} on {data.name}", total=days, what="days")
            if options.ray:
                bar.update(task, total=options.replicates, what="runs")
                counted = count_on_ray(
                    data,
                    scenario,
                    options.replicates,
                    options.batch,
                    lambda done, _: bar.update(task, completed=done),
                )
            else:
                counted = count_here(
                    runner, scenario, options.replicates, lambda: bar.advance(task)
                )
    result = _run(counted, options, facts)

    def show() -> None:
        found = simulated(result)
        if options.json:
            print_json(found)
        else:
            print_simulate(console, found, result, charts=options.plot is not None)
        if options.stats:
            print_stats(console, found)
        if options.plot is not None:
            picture = scenarios.write_plot(options.plot, result, found.daily)
            scenarios.say_written(errors, picture)
        if options.out is not None:
            write_table(_table(result), options.out, "--out")
            scenarios.say_written(errors, options.out)

    enough = result.arrays["daily_infected"].shape[1] > 0
    return finish(errors, result, counted.error, options.save, show, enough=enough)


def _run(counted: Counted, options: Options, facts: dict[str, object]) -> Run:
    left_out = ("json", "save", "plot", "out", "stats")
    settings = dataclasses.asdict(options).items()
    return Run(
        verb="simulate",
        target=f"{options.model}:{facts['population']}",
        settings={name: value for name, value in settings if name not in left_out},
        facts=facts | {"seconds": counted.stats.get("seconds", 0.0), "stats": counted.stats},
        arrays=dict(counted.arrays),
        complete=counted.error is None,
    )


def _table(run: Run) -> dict[str, np.ndarray]:
    """One row for each replicate and day."""
    infected, deaths = run.arrays["daily_infected"], run.arrays["daily_deaths"]
    replicates, days = infected.shape
    replicate = np.repeat(np.arange(replicates), days)
    return {
        "replicate": replicate,
        "seed": run.settings["seed"] + replicate,
        "day": np.tile(np.arange(days), replicates),
        "daily_infected": infected.reshape(-1),
        "daily_deaths": deaths.reshape(-1),
        "total_infected": infected.cumsum(1).reshape(-1),
        "total_deaths": deaths.cumsum(1).reshape(-1),
    }
