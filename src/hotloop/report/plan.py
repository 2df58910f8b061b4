"""Plans: what a cluster would bring, what limits it, and what the measured points leave open."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.errors import HotloopError
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.plan.modes import Cell
from hotloop.plan.settings import PlanSettings
from hotloop.plan.summary import Plan, Prediction, fits_of, summarize_plan
from hotloop.repeat.entries import Metric, known
from hotloop.report.charts.plan import Line, Mark, plan_chart
from hotloop.report.charts.svg import COLOURS, NARROW, WIDE
from hotloop.report.console import headed_table, print_answer, print_warnings
from hotloop.report.format import Count, Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import number, percent
from hotloop.report.plan_format import (
    SAVED_POINTS,
    SAVED_QUESTIONS,
    SIMULATED,
    points_problem,
)
from hotloop.report.plan_words import (
    about_modes,
    answer_lines,
    forecast_cells,
    nodes_text,
    smallest_cells,
)
from hotloop.report.section import (
    ChartView,
    Section,
    TableView,
    Tile,
    figure_markup,
    number_markup,
    sentence_markup,
)

# --- what a saved run holds ---------------------------------------------------------------------


def _plan_problem(run: Run) -> str | None:
    """Say what cannot be forecast: a cell, a setting, or points that no model fits."""
    problem = points_problem(run)
    if problem is not None:
        return problem
    facts = run.facts
    if not facts["points"] or not facts["questions"]:
        return "facts: expected at least one point and one question"
    if facts["simulated"] is not None and len(facts["simulated"]) != len(facts["questions"]):
        return f"simulated: expected {len(facts['questions'])} rates, got {len(facts['simulated'])}"
    try:
        PlanSettings(**run.settings)
        fits_of(run)
    except (HotloopError, TypeError) as error:
        return str(error)
    return None


_FORMAT = Format(
    settings={
        "policy_s": float,
        "step_spread": float,
        "learner_sps": Positive | None,
        "step_bytes": Positive | None,
        "bandwidth_bytes_per_s": Positive | None,
        "price_per_hour": Positive | None,
        "target_sps": Positive | None,
        "batch_fragments": Count,
        "queue_fragments": Count,
    },
    facts={"points": SAVED_POINTS, "questions": SAVED_QUESTIONS, "simulated": SIMULATED},
    check=_plan_problem,
)

# --- in the terminal ----------------------------------------------------------------------------


def print_plan(console: Console, plan: Plan, run: Run) -> None:
    """Print the model, what it leaves open, and the forecasts."""
    count = sum(len(model.points) for model in plan.models)
    console.print(
        f"[bold]plan of {escape(plan.source)}[/]  {count} points  {describe(run.host)}",
        highlight=False,
    )
    print_answer(console, answer_lines(plan))
    console.print()
    console.print(_table(plan))
    if plan.smallest:
        console.print(f"\n[bold]Fewest nodes for {number(plan.settings.target_sps or 0.0)} SPS[/]")
        columns, rows = smallest_cells(plan)
        table = headed_table(columns)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for about in about_modes(plan):
        console.print(f"[dim]{escape(about)}[/]", highlight=False)
    print_warnings(console, plan.warnings)


def _table(plan: Plan) -> Table:
    columns, rows = forecast_cells(plan)
    table = headed_table(columns)
    for prediction, row in zip(plan.predictions, rows, strict=True):
        style = "" if prediction.forecast.determined else "yellow"
        table.add_row(*(escape(text) for text in row), style=style)
    return table


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, plan: Plan, run: Run) -> Section:
    columns, rows = forecast_cells(plan)
    shown: list[list[Markup | str]] = [list(row) for row in rows]
    return Section(
        key=page.key,
        run=run,
        heading=f"What a cluster would bring, from {plan.source}",
        tiles=_tiles(plan),
        charts=[_chart(page.key, plan)],
        warnings=plan.warnings,
        answer=[(word, sentence_markup(words)) for word, words in answer_lines(plan)],
        tables=[
            TableView("Forecasts", [name for name, _ in columns], shown, [], about_modes(plan)),
            *([_smallest_view(plan)] if plan.smallest else []),
            _points_view(plan),
        ],
    )


def _tiles(plan: Plan) -> list[Tile]:
    tiles = [
        Tile("env steps per second at most", figure_markup(model.most_sps), f"mode {model.mode}")
        for model in plan.models
    ]
    if plan.errors:
        note = f"of {len(plan.errors)} forecasts; at worst {percent(max(plan.errors))}"
        tiles.append(Tile("median error", number_markup(percent(median(plan.errors))), note))
    return tiles


def _chart(key: str, plan: Plan) -> ChartView:
    lines = [
        Line(_line_name(plan, curve.nodes, curve.mode), k % COLOURS, curve.step_s, curve.efficiency)
        for k, curve in enumerate(plan.curves)
    ]
    marks = [_mark(each.cell, each.sps) for model in plan.models for each in model.points]
    return ChartView(
        "Efficiency over the duration of a step",
        "Env steps per second over what the envs alone would bring, cores / duration. Lines are "
        "the model’s, dots were measured.",
        [
            plan_chart(lines, marks, width=width, name=f"{key}-plan-{width}")
            for width in (WIDE, NARROW)
        ],
        legend=[(line.name, line.colour) for line in lines],
    )


def _mark(cell: Cell, sps: float) -> Mark:
    return Mark(f"{cell}: {number(sps)} SPS", cell.step_s, sps / cell.ideal_sps)


def _line_name(plan: Plan, nodes: int, mode: str) -> str:
    several = len({curve.mode for curve in plan.curves}) > 1
    return f"{nodes_text(nodes)}, {mode}" if several else nodes_text(nodes)


def _smallest_view(plan: Plan) -> TableView:
    columns, rows = smallest_cells(plan)
    shown: list[list[Markup | str]] = [list(row) for row in rows]
    title = f"Fewest nodes for {number(plan.settings.target_sps or 0.0)} SPS"
    return TableView(title, [name for name, _ in columns], shown, [])


def _points_view(plan: Plan) -> TableView:
    rows: list[list[Markup | str]] = [
        [str(each.cell), number(each.sps), f"{each.error:+.1%}"]
        for model in plan.models
        for each in model.points
    ]
    return TableView("Points that were fitted", ["point", "measured", "model"], rows, [])


# --- as JSON, and in the journal ----------------------------------------------------------------


def plan_json(plan: Plan, _run: Run) -> dict[str, Any]:
    """What `--json` prints: `predictions` in the order of the questions, and the model."""
    return {
        "predictions": [_as_json(prediction) for prediction in plan.predictions],
        "models": plan.models,
        "undetermined": plan.gaps,
        "smallest": [
            {
                **{name: getattr(each, name) for name in ("mode", "step_s", "cores_per_node")},
                **{name: getattr(each, name) for name in ("nodes", "nodes_surely")},
                "sps": each.forecast and each.forecast.sps,
                "money_per_million": each.forecast and each.forecast.money,
            }
            for each in plan.smallest
        ],
        "median_error": median(plan.errors) if plan.errors else None,
        "worst_error": max(plan.errors, default=None),
        "warnings": plan.warnings,
    }


def _as_json(prediction: Prediction) -> dict[str, Any]:
    found, cell = prediction.forecast, prediction.forecast.cell
    return {
        "nodes": cell.nodes,
        "cores_per_node": cell.cores_per_node,
        "step_s": cell.step_s,
        "mode": cell.mode,
        "sps": found.sps.value,
        "interval": [found.sps.low, found.sps.high],
        "determined": found.determined,
        "ideal_sps": cell.ideal_sps,
        "efficiency": found.efficiency,
        "limited_by": found.limited_by,
        "lift": found.lift,
        "money_per_million": found.money,
        "staleness": found.staleness,
        "simulated_sps": prediction.simulated_sps,
        "measured_sps": prediction.measured_sps,
        "error": prediction.error,
    }


def _metrics(plan: Plan, _run: Run) -> Mapping[str, Metric]:
    return known(
        {
            f"env steps/s at most, {model.mode}": (model.most_sps, "env steps/s")
            for model in plan.models
        }
    )


PLAN = Kind[Plan](
    format=_FORMAT,
    summarize=summarize_plan,
    print=print_plan,
    section=_section,
    json=plan_json,
    has_samples=lambda run: bool(run.facts["points"]),
    metrics=_metrics,
)
