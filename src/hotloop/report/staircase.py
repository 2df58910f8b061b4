"""The tries of a target: the staircase, how predictions came true, and whether to stop.

Drawn from the journal, not from a run; otherwise as the reports of runs are: in the terminal, and
as a page with charts.
"""

import dataclasses
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.files import atomic_output
from hotloop.loop.run import Run
from hotloop.repeat.entries import TryEntry
from hotloop.repeat.overview import Overview
from hotloop.repeat.stop import GO_ON, STOP
from hotloop.repeat.tries import Step
from hotloop.report.charts.calibration import calibration_chart
from hotloop.report.charts.staircase import staircase_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.console import headed_table, marked, print_warnings
from hotloop.report.html import page
from hotloop.report.numbers import factor, number, percent
from hotloop.report.section import (
    ChartView,
    Section,
    TableView,
    Tile,
    number_markup,
    sentence_markup,
)
from hotloop.report.sentence import Sentence
from hotloop.report.staircase_words import (
    as_text,
    cost,
    next_try,
    notes,
    predictions,
    said,
    stand,
    why,
)

_COLOURS = {STOP: "green", GO_ON: "cyan"}
_WIDEST = 48  # characters of a hypothesis in the terminal

# --- in the terminal ----------------------------------------------------------------------------


def print_staircase(console: Console, found: Overview) -> None:
    """Print where the target stands, whether to stop, what is next and the cost; then tables."""
    console.print(f"[bold]{escape(found.target)}[/]  {marked(stand(found))}", highlight=False)
    verdict = found.decision.verdict
    colour = _COLOURS.get(verdict, "yellow")
    console.print(f"[bold {colour}]{verdict}[/]  {marked(why(found))}", highlight=False)
    console.print(f"[bold]next[/]  {marked(next_try(found))}", highlight=False)
    console.print(f"[bold]cost[/]  {marked(cost(found))}", highlight=False)
    if found.staircase.steps:
        console.print()
        console.print(_table(found))
        console.print(f"[dim]{escape(predictions(found))}[/]", highlight=False)
    if found.calibration.predictions:
        console.print()
        console.print(_calibration_table(found))
    print_warnings(console, notes(found))


def _table(found: Overview) -> Table:
    stairs = found.staircase
    columns = [
        ("try", "right"),
        ("what", "left"),
        ("predicted", "right"),
        ("achieved", "left"),
        ("", "left"),
        ("rate", "right"),
    ]
    priced = stairs.cost is not None
    table = headed_table([*columns, *([(stairs.cost_of, "right")] if priced else [])])
    table.add_row("", "[dim]the start[/]", "", "", "", said(stairs.rate), _money(stairs.cost))
    for step in stairs.steps:
        what = step.hypothesis
        cells = [
            str(step.number),
            escape(what if len(what) <= _WIDEST else f"{what[: _WIDEST - 1]}…"),
            said(step.predicted, percent),
            said(step.achieved, percent),
            _decision(step),
            said(step.rate),
            _money(step.cost),
        ]
        table.add_row(*cells[: len(table.columns)], style=None if step.kept else "dim")
    return table


def _calibration_table(found: Overview) -> Table:
    table = headed_table(
        [("try", "right"), ("predicted", "right"), ("achieved", "left"), ("ratio", "right")]
    )
    for each in found.calibration.predictions:
        table.add_row(
            str(each.number),
            percent(each.predicted.value),
            said(each.achieved, percent),
            "–" if each.ratio is None else number(each.ratio),
        )
    return table


def _decision(step: Step) -> str:
    """The verdict where it is not what decided: "kept", "kept, same"."""
    word = "kept" if step.kept else "reverted"
    return word if (step.verdict == "faster") == step.kept else f"{word}, {step.verdict}"


def _money(amount: float | None) -> str:
    return "" if amount is None else number(amount)


def print_try(console: Console, tried: TryEntry) -> None:
    """Print what was predicted and achieved of a try, and that it is noted."""
    predicted = "nothing" if tried.predicted is None else said(tried.predicted, percent)
    achieved = "unknown" if tried.achieved is None else said(tried.achieved, percent)
    console.print(
        f"[bold]{tried.decision}[/]  predicted {predicted}, achieved {achieved} of the time; noted "
        "as a try: hotloop repeat",
        highlight=False,
    )


def overview_json(found: Overview) -> dict[str, Any]:
    """Everything that is known, and the sentences that the report makes of it."""
    fields = {each.name: getattr(found, each.name) for each in dataclasses.fields(found)}
    return {
        **fields,
        "time": found.staircase.time,
        "next_try": found.next_try,
        "cost_so_far": found.spent.total,
        "said": {
            "stand": as_text(stand(found)),
            "why": as_text(why(found)),
            "next": as_text(next_try(found)),
            "cost": as_text(cost(found)),
            "notes": notes(found),
        },
    }


# --- on the page --------------------------------------------------------------------------------


def write_staircase(found: Overview, path: Path) -> Path:
    """Write a self-contained page to `path`; returns where.

    Raises: RunError if it cannot be written; a file that was there before stays as it was.
    """
    text = page([staircase_section(found)], title=found.target, hosts=[found.host])
    with atomic_output(path, "the report could not be written", "--html") as scratch:
        scratch.write_text(text, encoding="utf-8")
    return path


def staircase_section(found: Overview, key: str = "r0") -> Section:
    """The tries of a target as a section of a page. key: its id, unique on the page."""
    return Section(
        key=key,
        run=_as_run(found),
        heading="What was tried",
        answer=_answer(found),
        tiles=_tiles(found),
        charts=_charts(found, key) if found.staircase.steps else [],
        tables=[_staircase_view(found), _calibration_view(found)] if found.staircase.steps else [],
        warnings=notes(found),
    )


def _as_run(found: Overview) -> Run:
    """What the page says about how it came to be, in the shape in which it says it of runs."""
    limits = found.limits
    settings: dict[str, Any] = {
        "hours": limits.hours,
        "price_per_hour": limits.price_per_hour,
        "effort_hours": limits.effort_hours,
        "effort_price_per_hour": limits.effort_price_per_hour,
        "target_rate": limits.target_rate,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    return Run(verb="repeat", target=found.target, settings=given, host=dict(found.host))


def _answer(found: Overview) -> list[tuple[str, Markup]]:
    lines: list[tuple[str, Sentence]] = [
        (found.decision.verdict, why(found)),
        ("next", next_try(found)),
        ("cost", cost(found)),
    ]
    return [(word, sentence_markup(sentence)) for word, sentence in lines]


def _tiles(found: Overview) -> list[Tile]:
    steps = found.staircase.steps
    rate = found.decision.rate
    return [
        Tile(
            "the speed at the start",
            number_markup(factor(1 / found.staircase.time)),
            f"{sum(step.kept for step in steps)} of {len(steps)} tries kept",
        ),
        Tile("now", number_markup(said(rate)), "" if rate is None else rate.unit),
        Tile("cost so far", number_markup(number(found.spent.total)), "runs and hours of work"),
    ]


def _charts(found: Overview, key: str) -> list[ChartView]:
    views = [
        ChartView(
            "The staircase",
            "The rate after each try, as it was measured beside what was before. The line follows "
            "the tries that were kept.",
            [
                staircase_chart(found.staircase, width=width, name=f"{key}-staircase-{width}")
                for width in (WIDE, NARROW)
            ],
            notes=[
                "Filled: kept. Hollow: reverted. Each comparison has its own moment and machine: "
                "the speed above is the product of the ratios, each measured in turns."
            ],
        )
    ]
    if found.calibration.predictions:
        views.append(
            ChartView(
                "How predictions came true",
                "The gain that was predicted, and the one that was achieved. On the dashed line "
                "both are the same.",
                [
                    calibration_chart(
                        found.calibration.predictions,
                        width=width,
                        name=f"{key}-calibration-{width}",
                    )
                    for width in (WIDE, NARROW)
                ],
                notes=["Whiskers cover 95%.", predictions(found)],
            )
        )
    return views


def _staircase_view(found: Overview) -> TableView:
    stairs = found.staircase
    priced = stairs.cost is not None
    rows: list[list[Markup | str]] = [
        ["the start", "", "", "", "", number_markup(said(stairs.rate)), _money(stairs.cost)]
    ]
    rows += [
        [
            f"{step.number} {step.hypothesis}",
            step.at[:10],
            number_markup(said(step.predicted, percent)),
            number_markup(said(step.achieved, percent)),
            _decision(step),
            number_markup(said(step.rate)),
            _money(step.cost),
        ]
        for step in stairs.steps
    ]
    head = ["try", "date", "predicted", "achieved", "decision", "rate"]
    if priced:
        head.append(f"cost of {stairs.cost_of}")
    return TableView("Tries", head, [row[: len(head)] for row in rows], [])


def _calibration_view(found: Overview) -> TableView:
    rows: list[list[Markup | str]] = [
        [
            f"{each.number} {each.hypothesis}",
            number_markup(said(each.predicted, percent)),
            number_markup(said(each.achieved, percent)),
            "–" if each.ratio is None else number(each.ratio),
            {True: "yes", False: "no", None: "–"}[each.held],
        ]
        for each in found.calibration.predictions
    ]
    head = ["try", "predicted", "achieved", "achieved over predicted", "within the interval"]
    return TableView("Predictions", head, rows, [], [predictions(found)])
