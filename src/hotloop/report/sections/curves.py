"""The sections of a simulation and of a calibration: answer, curves with bands, tables."""

from collections.abc import Sequence

from markupsafe import Markup

from hotloop.loop.run import Run
from hotloop.report import curves
from hotloop.report.charts.curves import curve_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.curves import Curve, Fitted, count, counts, on_day
from hotloop.report.numbers import number, percent, seconds
from hotloop.report.sections.section import (
    Charts,
    Section,
    TableView,
    Tile,
    apart,
    capital,
    sentence,
)
from hotloop.report.statements import Sentence

_MEDIAN = "The line is the median of the runs on each day; the band holds 95% of them."
_MEAN = "The line is the mean of the runs at the fit; the band holds 95% of them."


def simulate_section(key: str, run: Run) -> Section:
    """What the page says about one simulation. key: unique on the page."""
    found = curves.simulated(run)
    setting = found.setting
    share = found.infected.scaled(1 / setting.agents)
    return Section(
        key=key,
        run=run,
        heading=f"How {setting.model} spreads in {setting.population}",
        answer=_answer(curves.simulate_answer(found)),
        tiles=[
            Tile("infected", apart(counts(found.infected)), f"in {setting.days} days"),
            Tile("of the agents", apart(percent(share.value)), f"{setting.agents:,} agents"),
            Tile("died", apart(counts(found.deaths)), f"in {setting.days} days"),
            Tile(
                "agent steps per second",
                apart(number(float(found.stats["agent_steps_per_s"]))),
                f"in {seconds(found.seconds)}",
            ),
        ],
        figures=[_chart(key, curve, _MEDIAN) for curve in found.curves],
        tables=[_days(found.curves)],
        warnings=found.warnings,
    )


def calibrate_section(key: str, run: Run) -> Section:
    """What the page says about one calibration. key: unique on the page."""
    found = curves.fitted(run)
    setting = found.setting
    return Section(
        key=key,
        run=run,
        heading=f"What fits the observed days of {setting.population}",
        answer=_answer(curves.calibrate_answer(found)),
        tiles=[
            Tile(each.name, apart(curves.fitted_value(each)), each.why_no_interval)
            for each in found.parameters
        ],
        figures=[*(_chart(key, curve, _MEAN) for curve in found.daily), *_loss(key, found)],
        tables=[_parameters(found), *([_days(found.daily)] if found.daily else [])],
        warnings=[*found.warnings, *found.notes],
    )


def _answer(lines: Sequence[tuple[str, Sentence]]) -> list[tuple[str, Markup]]:
    return [(word, sentence(words)) for word, words in lines]


def _chart(key: str, curve: Curve, lead: str) -> Charts:
    place = curve.name.replace(" ", "-")
    seen = curve.observed is not None
    return Charts(
        capital(f"{curve.name} by day").removesuffix("."),
        lead if curve.has_band else "One run.",
        [
            curve_chart(curve, width=width, name=f"{key}-{place}-{width}")
            for width in (WIDE, NARROW)
        ],
        legend=[("simulated", curve.shade), *([("observed", 1)] if seen else [])],
    )


def _loss(key: str, found: Fitted) -> list[Charts]:
    if not found.loss:
        return []
    curve = Curve("loss", found.loss, found.loss, found.loss, shade=2)
    return [
        Charts(
            "Loss by iteration",
            "Poisson deviance of the observed counts, a mean over the days.",
            [
                curve_chart(curve, width=width, name=f"{key}-loss-{width}", along="iteration")
                for width in (WIDE, NARROW)
            ],
        )
    ]


def _parameters(found: Fitted) -> TableView:
    rows: list[list[Markup | str]] = []
    for each in found.parameters:
        interval = each.why_no_interval or f"{each.value.low:.4g} to {each.value.high:.4g}"
        rows.append([each.name, f"{each.value.value:.4g}", interval, f"{each.first_guess:.4g}"])
    return TableView(
        "What was fitted", ["parameter", "fit", "95% interval", "first guess"], rows, []
    )


def _days(shown: Sequence[Curve]) -> TableView:
    head = ["day"]
    for curve in shown:
        head += [f"{curve.name} observed"] if curve.observed is not None else []
        head.append(curve.name)
    rows: list[list[Markup | str]] = []
    for day in curves.shown_days(len(shown[0].middle)):
        row: list[Markup | str] = [str(day)]
        for curve in shown:
            if curve.observed is not None:
                row.append(count(curve.observed[day]))
            row.append(apart(counts(on_day(curve, day))))
        rows.append(row)
    return TableView("Day by day", head, rows, [])
