"""Watched trainings: rates, time by stage, and what delays of the stages did."""

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.figures import Figure, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE, SECONDS, Metric, known
from hotloop.report.benchmark import SavedStage, blocks_fit, stage_table, stage_view
from hotloop.report.console import headed_table, print_warnings
from hotloop.report.format import Count, Format
from hotloop.report.iteration import benchmark_window, iteration_charts
from hotloop.report.kind import Kind, PageContext
from hotloop.report.named_figures import figure_view, print_figures, print_unknown, rate_tile
from hotloop.report.numbers import duration, figure, number, percent, seconds
from hotloop.report.section import Footnotes, Section, TableView, Tile, figure_markup
from hotloop.report.sentence import NamedFigure
from hotloop.simplify.watched import DelayedStage, WatchSummary, summarize_watch

_FORMAT = Format(
    facts={"unit": str, "stages": list[SavedStage], "spent_s": float},
    optional_facts={
        "iterations_marked_by": str | None,
        "no_iterations": str | None,
        "dropped_events": Count,
    },
    arrays={
        "start_ns": "count n",
        "duration_ns": "count n",
        "units": "amount n",
        "block_of": "count n",
        "stage_ns": "real blocks stages",
        "stage_running_ns": "real blocks stages",
        "stage_calls": "real blocks stages",
        "events": "int events 4",
        "period_s": "amount periods",
        "period_iterations": "amount periods",
        "period_units": "amount periods",
        "pair_stage": "count pairs",
        "pair_delay_ns": "amount pairs",
        "pair_base_ns": "amount pairs",
        "pair_delayed_ns": "amount pairs",
    },
    check=blocks_fit,
)

_FELT = (
    "A delay of 1 ms makes an iteration longer by the sensitivity times 1 ms; what is below the "
    "slack is not felt at all."
)


def print_watch(console: Console, summary: WatchSummary, run: Run) -> None:
    """Print the rates, the time by stage, and what delays did."""
    console.print(f"[bold]{escape(summary.target)}[/]  {describe(run.host)}", highlight=False)
    if summary.iteration:
        console.print(f"an iteration: {escape(summary.iteration)}", highlight=False)
    figures = _figures(summary)
    print_figures(console, figures)
    console.print(f"[dim]{_watched_for(summary)}[/]", highlight=False)
    if summary.stages:
        console.print()
        console.print(stage_table(summary.stages))
    if summary.delays:
        console.print()
        console.print(_delay_table(summary.delays))
        console.print(f"[dim]{_FELT}[/]", highlight=False)
    print_unknown(console, [*figures, *_unknown_delays(summary)])
    print_warnings(console, summary.warnings)


def _delay_table(delays: Sequence[DelayedStage]) -> Table:
    table = headed_table(
        [("stage", "left"), ("delayed by", "right"), ("sensitivity", "left"), ("slack", "left")]
    )
    for each in delays:
        table.add_row(
            escape(each.name),
            duration(each.delay_ns),
            figure(each.sensitivity, number, why=False),
            figure(_slack(each), duration, why=False),
        )
    return table


def _slack(each: DelayedStage) -> Figure:
    return each.slack if isinstance(each.slack, Unknown) else each.slack.slack_ns


def _figures(summary: WatchSummary) -> list[NamedFigure]:
    found = [NamedFigure(f"{summary.unit}/s", summary.units_per_s, number)]
    if summary.unit != "iterations":
        found.append(NamedFigure("iterations/s", summary.iterations_per_s, number))
    note = "the mean of all iterations that were counted"
    return [
        *found,
        NamedFigure("iteration", summary.ms_per_iteration, duration.scaled(1e6), note),
        NamedFigure("watching", summary.watching, percent, "of the time, for samples and lines"),
    ]


def _watched_for(summary: WatchSummary) -> str:
    return (
        f"{summary.iterations:,.0f} iterations in {seconds(summary.seconds)}, and all calls timed "
        f"in {summary.sampled} of them; intervals cover 95%."
    )


def _unknown_delays(summary: WatchSummary) -> list[NamedFigure]:
    return [
        NamedFigure(f"slack of {each.name}", each.sensitivity, number)
        for each in summary.delays
        if isinstance(each.sensitivity, Unknown)
    ]


def _section(page: PageContext, summary: WatchSummary, run: Run) -> Section:
    tables = [stage_view(summary.stages, page.colours)] if summary.stages else []
    if summary.delays:
        tables.append(_delay_view(summary.delays))
    return Section(
        key=page.key,
        run=run,
        heading="How the training went",
        tiles=_tiles(summary),
        charts=iteration_charts(page.key, run, page.colours, benchmark_window),
        tables=[*tables, figure_view(_figures(summary), [_watched_for(summary)])],
        warnings=summary.warnings,
    )


def _tiles(summary: WatchSummary) -> list[Tile]:
    return [
        rate_tile(summary.unit, summary.units_per_s, summary.ms_per_iteration),
        Tile("watching", figure_markup(summary.watching, percent), "of the time"),
    ]


def _delay_view(delays: Sequence[DelayedStage]) -> TableView:
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            each.name,
            duration(each.delay_ns),
            notes.cell(each.sensitivity, number),
            notes.cell(_slack(each), duration),
        ]
        for each in delays
    ]
    return TableView(
        "Stages that were delayed",
        ["stage", "delayed by", "sensitivity", "slack"],
        rows,
        notes.reasons,
        [_FELT],
    )


def _metrics(summary: WatchSummary, _run: Run) -> dict[str, Metric]:
    return known(
        {
            RATE: (summary.units_per_s, f"{summary.unit}/s"),
            SECONDS: (summary.seconds, "s"),
        }
    )


WATCH = Kind[WatchSummary](
    format=_FORMAT,
    summarize=summarize_watch,
    print=print_watch,
    section=_section,
    json=lambda summary, _run: summary,
    has_samples=lambda run: len(run.arrays["period_s"]) > 0,
    metrics=_metrics,
)
