"""Curves of an epidemic by day, as plain numbers, from the runs of `simulate` and `calibrate`.

The terminal, the page and the picture draw these; nothing here knows what simulated them. The
middle of a simulation is the median of its replicates, that of a fit their mean, as it is the
mean that was fitted; bands hold 95% of the replicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.benchmark.noise import Interval
from hotloop.loop.run import Run
from hotloop.report.numbers import number, percent, seconds
from hotloop.report.statements import Amount, Name, Sentence

Array = np.ndarray[Any, Any]

# An interval whose ends are further apart than this factor says that nothing is known.
_NOTHING_KNOWN = 1e3


@dataclass(frozen=True)
class Curve:
    """One count by day; each list has one number a day.

    low, high: where 95% of the replicates lie. observed: what a fit was to meet. shade: the number
    of its colour.
    """

    name: str
    middle: list[float]
    low: list[float]
    high: list[float]
    observed: list[float] | None = None
    shade: int = 0

    @property
    def has_band(self) -> bool:
        """Whether low and high are apart anywhere."""
        return self.low != self.high


@dataclass(frozen=True)
class Setting:
    """What a run was about: a model, a population, and how it was run."""

    model: str
    population: str
    agents: int
    contacts: int
    infected_at_start: int
    days: int
    replicates: int
    seed: int
    device: str


@dataclass(frozen=True)
class Simulated:
    """What a simulation found. peak, peak_day: of the daily infections, over the replicates.

    agent_steps_per_s and stats: how fast the engine was, and its own counters.
    """

    setting: Setting
    infected: Interval
    deaths: Interval
    peak: Interval
    peak_day: Interval
    daily: list[Curve]
    totals: list[Curve]
    seconds: float
    stats: dict[str, Any]
    warnings: list[str]

    @property
    def curves(self) -> list[Curve]:
        """All curves, those by day first."""
        return [*self.daily, *self.totals]


@dataclass(frozen=True)
class FittedNumber:
    """One parameter: its fit, with an interval where there is one; and where the fit began.

    why_no_interval: a reason in place of an interval.
    """

    name: str
    value: Interval
    first_guess: float
    fitted: bool
    why_no_interval: str = ""


@dataclass(frozen=True)
class Fitted:
    """What a calibration found; curves: none if it was cut short."""

    setting: Setting
    parameters: list[FittedNumber]
    daily: list[Curve]
    loss: list[float]
    inside: tuple[int, int] | None  # observed counts inside the band, of how many
    seconds: float
    notes: list[str]
    warnings: list[str]


def simulated(run: Run) -> Simulated:
    """The curves of a `simulate` run; arrays daily_infected and daily_deaths are (R, T)."""
    infected = np.asarray(run.arrays["daily_infected"], np.float64)
    deaths = np.asarray(run.arrays["daily_deaths"], np.float64)
    setting = _setting(run, infected, len(infected))
    warnings = []
    if not run.complete:
        warnings.append(
            f"the simulation was interrupted: {setting.days} of {run.settings['steps']} days, "
            f"{setting.replicates} of {run.settings['replicates']} runs"
        )
    if setting.replicates < 20:
        what = "one run" if setting.replicates == 1 else f"{setting.replicates} runs"
        warnings.append(
            f"{what}: too few for an interval that holds 95% of runs; give --replicates 100"
        )
    days = np.arange(setting.days)
    return Simulated(
        setting=setting,
        infected=_across(infected.sum(1)),
        deaths=_across(deaths.sum(1)),
        peak=_across(infected.max(1)),
        peak_day=_across(days[infected.argmax(1)]),
        daily=[_curve("infections", infected, 0), _curve("deaths", deaths, 3)],
        totals=[
            _curve("infections in all", infected.cumsum(1), 0),
            _curve("deaths in all", deaths.cumsum(1), 3),
        ],
        seconds=float(run.facts["seconds"]),
        stats=dict(run.facts["stats"]),
        warnings=warnings,
    )


def fitted(run: Run) -> Fitted:
    """What a `calibrate` run holds.

    Arrays: loss (I,); rate, rate_first (W,), rate_interval (W, 2); observed_infected (T,) and, if
    known, observed_deaths; unless cut short, infected and deaths (3, T): mean, low, high.
    """
    arrays, facts = run.arrays, run.facts
    parameters = [
        _parameter(f"R, week {week + 1}", value, ends, first, True)
        for week, (value, ends, first) in enumerate(
            zip(arrays["rate"], arrays["rate_interval"], arrays["rate_first"], strict=True)
        )
    ]
    with_deaths = "observed_deaths" in arrays
    parameters.append(
        _parameter(
            "mortality",
            facts["mortality"],
            facts["mortality_interval"],
            facts["mortality_first"],
            with_deaths,
        )
    )
    curves = []
    for name, key, shade in (("infections", "infected", 0), ("deaths", "deaths", 3)):
        if key in arrays:
            observed = arrays.get(f"observed_{key}")
            middle, low, high = (row.tolist() for row in arrays[key])
            shown = None if observed is None else observed.tolist()
            curves.append(Curve(name, middle, low, high, shown, shade))
    warnings = [] if run.complete else ["the fit was interrupted: no intervals, no curves"]
    return Fitted(
        setting=_setting(run, arrays["observed_infected"][None, :], int(facts["replicates"])),
        parameters=parameters,
        daily=curves,
        loss=arrays["loss"].tolist(),
        inside=_inside(curves),
        seconds=float(facts["seconds"]),
        notes=list(facts["notes"]),
        warnings=warnings,
    )


# --- what the terminal and the page both say ----------------------------------------------------


def about(setting: Setting) -> str:
    """The population and how it was run, in a line."""
    runs = "1 run" if setting.replicates == 1 else f"{setting.replicates:,} runs"
    return (
        f"{setting.agents:,} agents, {setting.contacts:,} contacts, "
        f"{setting.infected_at_start:,} infected at the start; {setting.days} days, {runs} from "
        f"seed {setting.seed} on {setting.device}"
    )


def simulate_answer(found: Simulated) -> list[tuple[str, Sentence]]:
    """The answer in three lines: a word, and its sentence."""
    days, infected = found.setting.days, found.infected
    share = percent(infected.value / found.setting.agents)
    peak = found.peak_day
    when = count(peak.value) if peak.low == peak.high else counts(peak)
    highest: list[str | Name | Amount] = [Name(counts(found.peak)), " infections a day"]
    highest += [f", on day {when}"] if found.peak.high else []
    highest += [", the last one: it may still rise"] if peak.value >= days - 1 > 0 else []
    died: list[str | Name | Amount] = [Name(counts(found.deaths))]
    if infected.value:
        part = percent(found.deaths.value / infected.value)
        died.append(f", {part} of the infected so far")
    return [
        ("infected", [Name(counts(infected)), f" in {days} days, {share} of the agents"]),
        ("peak", highest),
        ("died", died),
    ]


def speed(found: Simulated) -> str:
    """How fast the engine was."""
    stats = found.stats
    words = f"{seconds(found.seconds)}, {number(float(stats['agent_steps_per_s']))} agent steps/s"
    if "active_share" in stats:
        words += f", {percent(float(stats['active_share']))} of them visited"
    return f"{words}; {stats['program']}, {stats['precision']}"


def calibrate_answer(found: Fitted) -> list[tuple[str, Sentence]]:
    """The answer in three lines: rates, mortality, and how well they fit."""
    *rates, mortality = found.parameters
    by_week: list[str | Name | Amount] = []
    for rate in rates:
        by_week += [", " if by_week else "", Name(fitted_value(rate))]
    how = (
        " fitted to the deaths" if mortality.fitted else " kept: no deaths were given to fit it to"
    )
    fit: list[str | Name | Amount] = ["nothing was fitted"]
    if found.loss:
        fit = [
            f"loss {found.loss[0]:.4g} to ",
            Name(f"{found.loss[-1]:.4g}"),
            f" in {len(found.loss)} iterations, {seconds(found.seconds)}",
        ]
    if found.inside is not None:
        fit.append(
            f"; {found.inside[0]} of {found.inside[1]} observed counts lie in the band of 95%"
        )
    return [
        ("R by week", by_week),
        ("mortality", [Name(fitted_value(mortality)), how]),
        ("fit", fit),
    ]


def count(value: float) -> str:
    """A number of people: 12,345; a half, as medians have it, stays where it can be seen."""
    return f"{value:,.1f}".removesuffix(".0") if value < 1000 else f"{value:,.0f}"


def counts(of: Interval) -> str:
    """A number of people with its interval, without it where it has no width."""
    if of.low == of.high:
        return count(of.value)
    return f"{count(of.value)} [{count(of.low)}, {count(of.high)}]"


def on_day(curve: Curve, day: int) -> Interval:
    """A curve's value on a day."""
    return Interval(curve.middle[day], curve.low[day], curve.high[day])


def shown_days(days: int) -> list[int]:
    """The days that a table shows: all of a month, else one a week and the last."""
    if days <= 31:
        return list(range(days))
    return [*range(0, days - 1, 7), days - 1]


def fitted_value(of: FittedNumber) -> str:
    """A parameter with its interval, to three digits."""
    if of.why_no_interval or of.value.low == of.value.high:
        return f"{of.value.value:.3g}"
    return f"{of.value.value:.3g} [{of.value.low:.3g}, {of.value.high:.3g}]"


def _setting(run: Run, by_day: Array, replicates: int) -> Setting:
    facts = run.facts
    return Setting(
        model=str(facts["model"]),
        population=str(facts["population"]),
        agents=int(facts["agents"]),
        contacts=int(facts["contacts"]),
        infected_at_start=int(facts["infected_at_start"]),
        days=by_day.shape[1],
        replicates=replicates,
        seed=int(run.settings["seed"]),
        device=str(facts["device"]),
    )


def _across(values: Array) -> Interval:
    low, middle, high = np.percentile(values, [2.5, 50.0, 97.5])
    return Interval(float(middle), float(low), float(high))


def _curve(name: str, runs: Array, shade: int) -> Curve:
    low, middle, high = np.percentile(runs, [2.5, 50.0, 97.5], axis=0)
    return Curve(name, middle.tolist(), low.tolist(), high.tolist(), shade=shade)


def _parameter(
    name: str, value: float, ends: Sequence[float] | None, first: float, was_fitted: bool
) -> FittedNumber:
    value, first = float(value), float(first)
    if ends is None or not np.isfinite(ends).all():
        why = "the fit was cut short" if was_fitted else "it was not fitted"
        return FittedNumber(name, Interval(value, value, value), first, was_fitted, why)
    low, high = (float(end) for end in ends)
    why = ""
    if high > _NOTHING_KNOWN * max(low, 1e-300):
        why = "the observed days say nothing about it"
        low = high = value
    return FittedNumber(name, Interval(value, low, high), first, was_fitted, why)


def _inside(curves: Sequence[Curve]) -> tuple[int, int] | None:
    seen = [
        low <= there <= high
        for curve in curves
        if curve.observed is not None
        for low, there, high in zip(curve.low, curve.observed, curve.high, strict=True)
    ]
    return (sum(seen), len(seen)) if seen else None
