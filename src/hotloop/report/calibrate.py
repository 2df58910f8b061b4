"""Calibrations: the fitted parameters, and how the fit compares with what was observed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.figures import Interval
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import SECONDS, Metric, known
from hotloop.report import curves
from hotloop.report.console import print_answer, print_warnings
from hotloop.report.curves import (
    MODEL_FACTS,
    Curve,
    Setting,
    outputs_fit,
    outputs_of,
    setting_of,
)
from hotloop.report.curves_console import curve_table, print_chart, print_head
from hotloop.report.curves_page import answer_view, both_widths, curve_charts, curve_view
from hotloop.report.format import Count, Format
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import seconds
from hotloop.report.section import ChartView, Section, TableView, Tile, number_markup
from hotloop.report.sentence import Amount, Name, Sentence

# An interval whose ends are further apart than this factor says nothing about the parameter.
_NOTHING_KNOWN = 1e3

# --- what a saved run holds ---------------------------------------------------------------------


class ParameterFacts(TypedDict):
    """A parameter: its label, the group in whose line it stands, and whether it was fitted."""

    label: str
    group: str
    fitted: bool


class GroupFacts(TypedDict):
    """A group of parameters, which share a line of the answer. note: ends that line."""

    label: str
    note: str


def _fits(run: Run) -> str | None:
    if not any(f"observed_{output.name}" in run.arrays for output in outputs_of(run)):
        return "arrays: expected 'observed_NAME' for one of the outputs at least"
    return None


def _curves_of(run: Run) -> dict[str, str]:
    if outputs_fit(run) is not None:
        return {}
    names = [output.name for output in outputs_of(run)]
    return {f"observed_{name}": "real steps" for name in names} | {
        f"fitted_{name}": "real 3 steps" for name in names
    }


_FORMAT = Format(
    settings={"seed": Count},
    facts={
        **MODEL_FACTS,
        "replicates": Count,
        "notes": list[str],
        "parameters": list[ParameterFacts],
        "groups": list[GroupFacts],
    },
    optional_facts={"loss_label": str},
    arrays={
        "loss": "any iterations",
        "parameter": "any parameters",
        "parameter_first": "any parameters",
        "parameter_interval": "any parameters 2",
    },
    optional_run_arrays=_curves_of,
    check=lambda run: outputs_fit(run) or _fits(run),
)

# --- what it says -------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedNumber:
    """One parameter: its fit, with an interval where there is one, and its first guess.

    why_no_interval: the reason, where there is none.
    """

    name: str
    group: str
    value: Interval
    first_guess: float
    fitted: bool
    why_no_interval: str = ""


@dataclass(frozen=True)
class Fitted:
    """What a calibration found. by_step: empty if it was cut short."""

    setting: Setting
    parameters: list[FittedNumber]
    by_step: list[Curve]
    loss: list[float]
    inside: tuple[int, int] | None  # observed values inside the band, of how many
    seconds: float
    notes: list[str]
    warnings: list[str]


def fitted(run: Run) -> Fitted:
    """Read what a `calibrate` run found.

    Arrays: loss (I,); parameter, parameter_first (P,), parameter_interval (P, 2); for each output
    observed_NAME (T,), if it was observed, and fitted_NAME (3, T): mean, low, high; without those
    if the fit was cut short.
    """
    arrays, facts = run.arrays, run.facts
    observed = [
        f"observed_{output.name}"
        for output in outputs_of(run)
        if f"observed_{output.name}" in arrays
    ]
    setting = setting_of(run, len(arrays[observed[0]]), int(facts["replicates"]))
    by_step = _curves(run, setting.step)
    rows = zip(
        facts["parameters"],
        arrays["parameter"].tolist(),
        arrays["parameter_interval"],
        arrays["parameter_first"].tolist(),
        strict=True,
    )
    return Fitted(
        setting=setting,
        parameters=[_parameter(*row, step=setting.step) for row in rows],
        by_step=by_step,
        loss=arrays["loss"].tolist(),
        inside=_inside(by_step),
        seconds=float(facts["seconds"]),
        notes=list(facts["notes"]),
        warnings=[] if run.complete else ["the fit was interrupted: no intervals, no curves"],
    )


def _curves(run: Run, step: str) -> list[Curve]:
    found = []
    for output in outputs_of(run):
        if f"fitted_{output.name}" not in run.arrays:
            continue
        middle, low, high = (row.tolist() for row in run.arrays[f"fitted_{output.name}"])
        observed = run.arrays.get(f"observed_{output.name}")
        found.append(
            Curve(
                output.label,
                middle,
                low,
                high,
                None if observed is None else observed.tolist(),
                colour=output.colour,
                step=step,
                per=f"a {step}" if output.is_count else "",
                is_count=output.is_count,
            )
        )
    return found


def _parameter(
    facts: ParameterFacts, value: float, ends: curves.Array, first: float, *, step: str
) -> FittedNumber:
    low, high = (float(end) for end in ends)
    why = ""
    if not np.isfinite(ends).all():
        why = "the fit was cut short" if facts["fitted"] else "it was not fitted"
    elif high > _NOTHING_KNOWN * max(low, 1e-300):
        why = f"the observed {step}s say nothing about it"
    interval = Interval(value, value, value) if why else Interval(value, low, high)
    return FittedNumber(facts["label"], facts["group"], interval, first, facts["fitted"], why)


def _inside(found: Sequence[Curve]) -> tuple[int, int] | None:
    seen = [
        low <= value <= high
        for curve in found
        if curve.observed is not None
        for low, value, high in zip(curve.low, curve.observed, curve.high, strict=True)
    ]
    return (sum(seen), len(seen)) if seen else None


def _answer(found: Fitted, run: Run) -> list[tuple[str, Sentence]]:
    """The answer in lines: each group of parameters, then how well they fit."""
    notes = {group["label"]: group["note"] for group in run.facts["groups"]}
    lines: list[tuple[str, Sentence]] = []
    for group in dict.fromkeys(each.group for each in found.parameters):
        words: list[str | Name | Amount] = []
        for each in found.parameters:
            if each.group == group:
                words += [", " if words else "", Name(_value(each))]
        note = notes.get(group, "").strip()
        lines.append((group, [*words, f" {note}"] if note else words))
    return [*lines, ("fit", _quality(found))]


def _quality(found: Fitted) -> Sentence:
    if not found.loss:
        words: list[str | Name | Amount] = ["nothing was fitted"]
    else:
        words = [
            f"loss {found.loss[0]:.4g} to ",
            Name(f"{found.loss[-1]:.4g}"),
            f" in {len(found.loss)} iterations, {seconds(found.seconds)}",
        ]
    if found.inside is not None:
        inside, observed = found.inside
        what = "counts" if all(curve.is_count for curve in found.by_step) else "values"
        words.append(f"; {inside} of {observed} observed {what} lie in the band of 95%")
    return words


def _value(of: FittedNumber) -> str:
    """A parameter with its interval, to three digits."""
    if of.why_no_interval or of.value.low == of.value.high:
        return f"{of.value.value:.3g}"
    return f"{of.value.value:.3g} [{of.value.low:.3g}, {of.value.high:.3g}]"


def _interval(of: FittedNumber) -> str:
    return f"{of.value.low:.4g} to {of.value.high:.4g}"


# --- in the terminal ----------------------------------------------------------------------------


def print_calibrate(console: Console, found: Fitted, run: Run, *, charts: bool = True) -> None:
    """Print what was fitted; then each parameter, and the fit beside what was observed."""
    print_head(console, found.setting)
    print_answer(console, _answer(found, run))
    for curve in found.by_step if charts else []:
        print_chart(console, curve)
    console.print()
    console.print(_parameter_table(found))
    if found.by_step:
        console.print()
        console.print(curve_table(found.by_step))
        console.print(curves.middle_of("mean", found.setting.replicates), style="dim")
    console.print(describe(run.host), style="dim", highlight=False)
    print_warnings(console, [*found.notes, *found.warnings])


def _parameter_table(found: Fitted) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("parameter", "fit", "95% interval", "first guess"):
        table.add_column(name, justify="left" if name == "parameter" else "right")
    for each in found.parameters:
        interval = _interval(each)
        if each.why_no_interval:
            interval = f"[dim]{escape(each.why_no_interval)}[/]"
        value, first = f"{each.value.value:.4g}", f"{each.first_guess:.4g}"
        table.add_row(escape(each.name), value, interval, first)
    return table


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, found: Fitted, run: Run) -> Section:
    setting = found.setting
    lead = "The line is the mean of the runs at the fit; the band holds 95% of them."
    return Section(
        key=page.key,
        run=run,
        heading=f"What fits the observed {setting.step}s of {setting.population}",
        answer=answer_view(_answer(found, run)),
        tiles=[
            Tile(each.name, number_markup(_value(each)), each.why_no_interval)
            for each in found.parameters
        ],
        charts=[*curve_charts(page.key, found.by_step, lead), *_loss(page.key, found, run)],
        tables=[_parameter_view(found), *([curve_view(found.by_step)] if found.by_step else [])],
        warnings=[*found.warnings, *found.notes],
    )


def _loss(key: str, found: Fitted, run: Run) -> list[ChartView]:
    if not found.loss:
        return []
    curve = Curve(
        "loss", found.loss, found.loss, found.loss, colour=2, step="iteration", is_count=False
    )
    lead = run.facts.get("loss_label", "The distance from the observed values.")
    return [ChartView("Loss by iteration", lead, both_widths(key, curve))]


def _parameter_view(found: Fitted) -> TableView:
    rows: list[list[Markup | str]] = []
    for each in found.parameters:
        interval = each.why_no_interval or _interval(each)
        rows.append([each.name, f"{each.value.value:.4g}", interval, f"{each.first_guess:.4g}"])
    return TableView(
        "What was fitted", ["parameter", "fit", "95% interval", "first guess"], rows, []
    )


def _metrics(found: Fitted, _run: Run) -> dict[str, Metric]:
    loss = {"loss": (found.loss[-1], "")} if found.loss else {}
    return known({SECONDS: (found.seconds, "s"), **loss})


CALIBRATE = Kind[Fitted](
    format=_FORMAT,
    summarize=fitted,
    print=print_calibrate,
    section=_section,
    json=lambda found, _run: found,
    has_samples=lambda run: len(run.arrays["loss"]) > 0,
    metrics=_metrics,
)
