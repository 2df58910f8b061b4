"""`hotloop calibrate MODEL --target FILE.csv`: which parameters meet what was observed?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hotloop.built_in import DEFAULT_MODEL
from hotloop.cli.chosen import chosen_in
from hotloop.cli.engine_options import EngineOptions, defaults_from
from hotloop.cli.finish import finish
from hotloop.cli.options import target_in, with_defaults, with_plot_value, with_settings
from hotloop.cli.output import consoles, parse, print_json
from hotloop.cli.plots import check_outputs, write_outputs
from hotloop.loop.lever import Options as Levers
from hotloop.loop.run import Run
from hotloop.report.calibrate import fitted, print_calibrate
from hotloop.results.calibrate import calibrate, calibration_of, table_of
from hotloop.results.observations import read_observations
from hotloop.results.scenario import Scenario
from hotloop.results.targets import resolve_model

_COLUMNS = (
    TextColumn("[bold]{task.description}"),
    BarColumn(),
    TextColumn("{task.completed:.0f} of {task.total:.0f} iterations, loss {task.fields[loss]}"),
    TimeRemainingColumn(),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(EngineOptions):
    """Fit the parameters of a model to what was observed in each step, by gradient. What is fitted
    is for the model to declare; its settings are options too, as the first guess.
    """

    model: tyro.conf.Positional[str] = DEFAULT_MODEL
    """covid, covid:astoria, file.py:MODEL, or package.module:MODEL."""
    target: Path
    """What was observed: a CSV file with a header, a row for each step, such as
    day,daily_infected[,daily_deaths]."""
    population: str | None = None
    """Its agents: astoria, brooklyn, a number of them, or a folder; default: the model's."""
    both_ways: bool = False
    """Read each row of the network in both directions; without it from src to dst, as written."""
    draw_network: bool = False
    """Draw contacts at random for a folder that has agents and no network."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written for the model, in place of the defaults."""
    plot: str | None = None
    """Draw the fit: --plot alone here and as a page, --plot FILE.html or FILE.png there."""
    out: Path | None = None
    """Write the fitted and observed curves here, a row a step, as .csv or .parquet."""
    json: bool = False
    """Print the fit as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = with_plot_value(arguments)
    name = target_in(arguments, Options, DEFAULT_MODEL)
    target, chosen = resolve_model(name), chosen_in(arguments, name)
    calibration = calibration_of(target.spec)
    parts = {"model_settings": target.spec.settings, "fit_settings": calibration.settings}
    defaults = defaults_from(chosen, [*parts.values(), EngineOptions])
    kind = with_settings(with_defaults(Options, defaults), parts, defaults)
    options: Any = parse(kind, arguments, "calibrate")
    console, errors = consoles(options.json)
    check_outputs(options)
    observed = read_observations(options.target, calibration.observed, calibration.fewest_steps)
    calibration.check(options.fit_settings, options.model_settings, observed)
    scenario = Scenario(
        spec=target.spec,
        settings=options.model_settings,
        population=target.population_or(options.population),
        steps=len(next(iter(observed.values()))),
        seed=options.fit_settings.seed,
        device="cpu",
        threads=options.threads,
        active_set=options.active_set,
        fused=options.fused,
        both_ways=options.both_ways,
        draw_network=options.draw_network,
    )
    result, error = _calibrate(scenario, observed, options.fit_settings, chosen.levers, errors)
    names = {column.output: column.table for column in calibration.observed}

    def show() -> None:
        found = fitted(result)
        if options.json:
            print_json(found)
        else:
            print_calibrate(console, found, result, charts=options.plot is not None)
        if not found.by_step:
            return  # cut short: there are no curves to draw or to write
        write_outputs(errors, options, result, found.by_step, lambda: table_of(result, names))

    return finish(errors, result, error, options.save, show)


def _calibrate(
    scenario: Scenario,
    observed: Mapping[str, np.ndarray[Any, Any]],
    settings: Any,
    levers: Levers,
    errors: Console,
) -> tuple[Run, BaseException | None]:
    """Fit behind a progress bar that shows the loss."""
    shown = errors.is_terminal
    with Progress(*_COLUMNS, console=errors, transient=True, disable=not shown) as bar:
        task = bar.add_task(f"fit {scenario.spec.name}", total=settings.iterations, loss="…")
        return calibrate(
            scenario,
            observed,
            settings,
            lambda done, loss: bar.update(task, completed=done, loss=f"{loss:.4g}"),
            levers,
        )
