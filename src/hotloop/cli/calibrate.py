"""`hotloop calibrate MODEL --target cases.csv`: which parameters meet what was observed?"""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hotloop.cli import scenario as scenarios
from hotloop.cli.cases import Cases, read_cases
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, print_json
from hotloop.cli.places import check_place, with_plot_value, write_table
from hotloop.cli.scenario import MODELS, Scenario
from hotloop.errors import SettingError
from hotloop.loop.run import Run
from hotloop.models.epidemic.calibration import (
    Band,
    Calibration,
    CalibrationSettings,
    Iteration,
    Observed,
    calibrate,
)
from hotloop.models.epidemic.gradient import estimator
from hotloop.report.console_curves import print_calibrate
from hotloop.report.curves import fitted

if TYPE_CHECKING:
    from hotloop.sim import Runner

_R_PATH, _M_PATH = "learnable_args.R2", "learnable_args.M"
_DAYS_PER_RATE = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(CalibrationSettings):
    """Fit R of each week, and the mortality, to the counts of each day, by gradient."""

    model: tyro.conf.Positional[str] = "covid"
    """What spreads: covid."""
    target: Path
    """The observed counts: a CSV file with the columns day,daily_infected[,daily_deaths]."""
    population: str = "astoria"
    """Who lives there: astoria, brooklyn, a number of agents, or a folder."""
    both_ways: bool = False
    """Read each row of the network in both directions; without it from src to dst, as written."""
    draw_network: bool = False
    """Draw contacts at random for a folder that has agents and no network."""
    r: str | None = None
    """First guess of R, one a week, such as 4,4,3; the last one goes on."""
    mortality: float | None = None
    """First guess of the mortality, 0 to 1; without deaths it stays."""
    estimator: str = "auto"
    """How the gradient through random events is estimated."""
    plot: str | None = None
    """Draw the fit: --plot alone here and as a page, --plot FILE.html or FILE.png there."""
    out: Path | None = None
    """Write the fitted and observed curves here, a row a day, as .csv or .parquet."""
    json: bool = False
    """Print the fit as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, with_plot_value(arguments, MODELS), "calibrate")
    console, errors = consoles(options.json)
    names = [field.name for field in dataclasses.fields(CalibrationSettings)]
    settings = CalibrationSettings(**{name: getattr(options, name) for name in names})
    if settings.estimator != "auto":
        estimator(settings.estimator)
    cases = read_cases(options.target)
    scenario = Scenario(
        model=options.model,
        population=options.population,
        both_ways=options.both_ways,
        draw_network=options.draw_network,
        steps=len(cases.infected),
        replicates=None,
        seed=options.seed,
        device="cpu",
        r=scenarios.rates(options.r),
        mortality=options.mortality,
    )
    weeks = math.ceil(len(cases.infected) / _DAYS_PER_RATE)
    if scenario.r is not None and len(scenario.r) > weeks:
        raise SettingError(
            f"--r: {len(scenario.r)} weeks, but the {len(cases.infected)} observed days are in "
            f"{weeks}; give at most so many"
        )
    check_place("--out", options.out, (".csv", ".parquet"))
    check_place("--save", options.save)
    scenarios.check_plot(options.plot)
    data = scenarios.load_population(scenario, errors)
    if sum(cases.infected) > data.size:
        raise SettingError(
            f"--target: {options.target}: {sum(cases.infected):,.0f} infections among the "
            f"{data.size:,} agents of {data.name}; take a larger --population, or scale the counts"
        )
    facts = {
        "model": scenario.model,
        "population": data.name,
        "agents": data.size,
        "contacts": data.num_edges,
        "replicates": settings.interval_replicates,
        "device": "cpu",
    }
    with scenarios.ready(scenario, data) as runner:
        facts["infected_at_start"] = scenarios.infected_at_start(runner)
        result, error = _fit(runner, cases, settings, errors, scenario, facts)

    def show() -> None:
        found = fitted(result)
        if options.json:
            print_json(found)
        else:
            print_calibrate(console, found, result, charts=options.plot is not None)
        if not found.daily:
            return  # cut short: there are no curves to draw or to write
        if options.plot is not None:
            picture = scenarios.write_plot(options.plot, result, found.daily)
            scenarios.say_written(errors, picture)
        if options.out is not None:
            write_table(_table(result), options.out, "--out")
            scenarios.say_written(errors, options.out)

    return finish(errors, result, error, options.save, show, enough=len(result.arrays["loss"]) > 0)


def _fit(
    runner: "Runner",
    cases: Cases,
    settings: CalibrationSettings,
    errors: Console,
    scenario: Scenario,
    facts: dict[str, Any],
) -> tuple[Run, BaseException | None]:
    """Fit with a bar that shows the loss; returns what was fitted and what cut it short."""
    parameters = {name: value.detach().numpy() for name, value in runner.named_parameters()}
    rate = next(v for name, v in parameters.items() if name.endswith(_R_PATH)).reshape(-1)
    mortality = float(next(v for n, v in parameters.items() if n.endswith(_M_PATH)).reshape(()))
    weeks = math.ceil(len(cases.infected) / _DAYS_PER_RATE)
    rate = np.array([rate[min(week, len(rate) - 1)] for week in range(weeks)], np.float64)
    deaths = None if cases.deaths is None else np.array(cases.deaths)
    history: list[Iteration] = []
    fit: Calibration | None = None
    error: BaseException | None = None
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} iterations, loss {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"fit {scenario.model}", total=settings.iterations, loss="…")

        def on_iteration(number: int, iteration: Iteration) -> None:
            history.append(iteration)
            bar.update(task, completed=number + 1, loss=f"{iteration.loss:.4g}")

        begin = bar.get_time()
        try:
            observed = Observed(np.array(cases.infected), deaths)
            fit = calibrate(runner, observed, settings, on_iteration)
        except (Exception, KeyboardInterrupt) as raised:
            error = raised
        facts["seconds"] = bar.get_time() - begin
    best = fit or (history[-1] if history else None)
    facts |= {
        "mortality": best.mortality if best else mortality,
        "mortality_first": mortality,
        "mortality_interval": None
        if fit is None or fit.mortality_interval is None
        else fit.mortality_interval.tolist(),
        "notes": list(fit.notes) if fit else [],
    }
    arrays = {
        "loss": np.array([each.loss for each in history]),
        "rate": best.rate if best else rate,
        "rate_first": rate,
        "rate_interval": fit.rate_interval if fit else np.full((weeks, 2), np.nan),
        "observed_infected": np.array(cases.infected),
    }
    if deaths is not None:
        arrays["observed_deaths"] = deaths
    if fit is not None:
        arrays |= {"infected": _rows(fit.infected), "deaths": _rows(fit.deaths)}
    return (
        Run(
            verb="calibrate",
            target=f"{scenario.model}:{facts['population']}",
            settings=dataclasses.asdict(settings) | {"population": scenario.population},
            facts=facts,
            arrays=arrays,
            complete=error is None,
        ),
        error,
    )


def _rows(band: Band) -> np.ndarray[Any, Any]:
    return np.stack([band.mean, band.low, band.high])


def _table(run: Run) -> dict[str, np.ndarray]:
    """One row for each day."""
    arrays = run.arrays
    table = {"day": np.arange(len(arrays["observed_infected"]))}
    for key in ("infected", "deaths"):
        if f"observed_{key}" in arrays:
            table[f"observed_{key}"] = arrays[f"observed_{key}"]
        for name, row in zip(("mean", "low", "high"), arrays[key], strict=True):
            table[f"{key}_{name}"] = row
    return table
