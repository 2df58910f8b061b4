"""`hotloop simulate MODEL`: what becomes of it, and how far do its runs differ?"""

import contextlib
import dataclasses
import importlib.util
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hotloop.built_in import DEFAULT_MODEL
from hotloop.cli.chosen import chosen_in
from hotloop.cli.engine_options import EngineOptions, defaults_from
from hotloop.cli.finish import finish
from hotloop.cli.options import target_in, with_defaults, with_plot_value, with_settings
from hotloop.cli.output import consoles, parse, print_json, quiet
from hotloop.cli.plots import check_outputs, write_outputs
from hotloop.errors import SettingError, expect_positive
from hotloop.loop.lever import Options as Levers
from hotloop.loop.run import Run
from hotloop.report.simulate import print_simulate, print_stats, simulated
from hotloop.results.scenario import Scenario
from hotloop.results.simulate import Simulation, table_of
from hotloop.results.targets import ModelTarget, resolve_model

_COLUMNS = (
    TextColumn("[bold]{task.description}"),
    BarColumn(),
    TextColumn("{task.completed:.0f} of {task.total:.0f} {task.fields[what]}"),
    TimeRemainingColumn(),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(EngineOptions):
    """What a file of settings may say, too."""

    replicates: int = 32
    """Runs of the ensemble, from seeds that follow each other."""
    seed: int = 0
    """Of the first run; the next one has the next number. A drawn population stays the same."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Literal["double", "mixed"] = "double"
    """Number format of the arithmetic; mixed is faster and rougher."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Asked):
    """Simulate a model many times; show its curves and how far the runs differ. A model's own
    settings are options too: `hotloop simulate MODEL --help` lists them.
    """

    model: tyro.conf.Positional[str] = DEFAULT_MODEL
    """covid, covid:astoria, boids, file.py:MODEL, package.module:MODEL, or model.yaml."""
    population: str | None = None
    """Its agents: astoria, brooklyn, a number of them, or a folder; default: the model's."""
    both_ways: bool = False
    """Read each row of the network in both directions; without it from src to dst, as written."""
    draw_network: bool = False
    """Draw contacts at random for a folder that has agents and no network."""
    steps: int | None = None
    """Steps to simulate; default: the model's."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written, in place of the defaults."""
    batch: int | None = None
    """Runs stepped at once, for ensembles larger than the memory; default: all."""
    ray: bool = False
    """Run batches on a Ray cluster, or on this machine's cores where there is none."""
    plot: str | None = None
    """Draw the curves: --plot alone here and as a page, --plot FILE.html or FILE.png there."""
    out: Path | None = None
    """Write one row for each run and step here, as .csv or .parquet."""
    stats: bool = False
    """Show the engine's own counters too."""
    json: bool = False
    """Print the curves as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = with_plot_value(arguments)
    name = target_in(arguments, Options, DEFAULT_MODEL)
    target, chosen = resolve_model(name), chosen_in(arguments, name)
    defaults = defaults_from(chosen, [target.spec.settings, Asked])
    kind = with_settings(
        with_defaults(Options, defaults), {"model_settings": target.spec.settings}, defaults
    )
    options = parse(kind, arguments, "simulate")
    console, errors = consoles(options.json)
    check_outputs(options)
    expect_positive("--batch", options.batch)
    expect_positive("--replicates", options.replicates)
    if options.ray and importlib.util.find_spec("ray") is None:
        raise SettingError("--ray needs Ray: pip install 'hotloop[ray]'")
    if options.ray and chosen.levers:
        raise SettingError(
            f"--ray: expected settings without levers, which act in this process alone, got "
            f"{', '.join(chosen.levers)}; leave them out of {options.settings_from}"
        )
    result, error = _simulate(scenario_of(target, options), options, chosen.levers, errors)

    def show() -> None:
        found = simulated(result)
        if options.json:
            print_json(found)
        else:
            print_simulate(console, found, result, charts=options.plot is not None)
        if options.stats:
            print_stats(console, found)
        write_outputs(errors, options, result, found.by_step, lambda: table_of(result))

    return finish(errors, result, error, options.save, show)


def _simulate(
    scenario: Scenario, options: Any, levers: Levers, errors: Console
) -> tuple[Run, BaseException | None]:
    """Run the ensemble behind a progress bar."""
    shown = errors.is_terminal
    loading = errors.status(f"population {scenario.source} …")
    with quiet(options.json):
        with loading if shown else contextlib.nullcontext():
            simulation = Simulation(
                scenario, options.replicates, options.batch, ray=options.ray, levers=levers
            )
        with (
            simulation,
            Progress(*_COLUMNS, console=errors, transient=True, disable=not shown) as bar,
        ):
            task = bar.add_task(simulation.name, total=simulation.amount, what=simulation.unit)
            result, error = simulation.run(lambda done: bar.update(task, completed=done))
    result.settings.update(_saved(options))
    return result, error


def scenario_of(target: ModelTarget, options: Any) -> Scenario:
    """What the options ask for.

    Raises: SettingError for a population that is named twice.
    """
    batches = -(-options.replicates // (options.batch or options.replicates))
    return Scenario(
        spec=target.spec,
        settings=options.model_settings,
        population=target.population_or(options.population),
        steps=options.steps,
        # On a cluster, one run here tells whether the settings fit.
        replicates=1 if options.ray else -(-options.replicates // batches),
        seed=options.seed,
        device=options.device,
        threads=options.threads,
        precision=options.precision,
        active_set=options.active_set,
        fused=options.fused,
        both_ways=options.both_ways,
        draw_network=options.draw_network,
    )


def _saved(options: Any) -> dict[str, Any]:
    left_out = (
        "json",
        "save",
        "plot",
        "out",
        "stats",
        "model_settings",
        "steps",
        "population",
        "settings_from",
    )
    settings = dataclasses.asdict(options)
    own: dict[str, Any] = settings["model_settings"]
    return {name: value for name, value in settings.items() if name not in left_out} | own
