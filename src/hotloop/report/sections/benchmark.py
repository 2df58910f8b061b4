"""The section of a benchmark, and the table that compares several: rates, use, time by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Summary, Unknown, summarize
from hotloop.loop.run import Run
from hotloop.report import statements
from hotloop.report.numbers import bytes_, duration, factor, interval, percent
from hotloop.report.sections.iteration import iteration_charts
from hotloop.report.sections.section import (
    Footnotes,
    Section,
    TableView,
    Tile,
    measure,
    stage_name,
)


@dataclass(frozen=True)
class ComparedRow:
    """One benchmark beside the first."""

    target: str
    date: str
    rate: Markup
    against: Markup


def benchmark_section(key: str, run: Run, colours: Mapping[str, int]) -> Section:
    """What the page says about one benchmark. key: unique on the page."""
    summary = summarize(run)
    stages = [_stage_table(summary, colours)] if summary.stages else []
    return Section(
        key=key,
        run=run,
        heading="How fast it is",
        tiles=_tiles(summary),
        figures=iteration_charts(key, run, colours),
        tables=[*stages, _figure_table(summary, run)],
        warnings=summary.warnings,
    )


def compared_rows(runs: Sequence[Run]) -> list[ComparedRow]:
    """The benchmarks among these runs, each against the first; empty with fewer than two."""
    benchmarks = [(run, summarize(run)) for run in runs if run.verb == "benchmark"]
    if len(benchmarks) < 2:
        return []
    return [
        ComparedRow(
            row.target,
            row.date,
            Markup("{} {}/s").format(measure(row.rate), row.unit),
            Markup("the first") if row.against is None else measure(row.against, factor),
        )
        for row in statements.compared(benchmarks)
    ]


def _tiles(summary: Summary) -> list[Tile]:
    each = summary.ms_per_iteration
    shown = interval(each, duration.scaled(1e6)) if isinstance(each, Interval) else ""
    return [
        Tile(
            f"{summary.unit} per second",
            measure(summary.units_per_s),
            f"{shown} an iteration" if shown else "",
        ),
        Tile("of the cores", measure(summary.cpu_share, percent), "in use by the process tree"),
        Tile("peak memory", measure(summary.memory_bytes, bytes_), "resident"),
    ]


def _stage_table(summary: Summary, colours: Mapping[str, int]) -> TableView:
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            stage_name(stage, colours),
            measure(stage.share, percent),
            measure(stage.ns_per_iteration, duration),
            measure(stage.ns_per_call, duration),
            measure(stage.calls_per_iteration),
            notes.cell(stage.cpu_share, percent),
            notes.cell(stage.bytes_per_iteration, bytes_),
        ]
        for stage in statements.by_share(summary.stages)
    ]
    return TableView(
        "Time by stage",
        ["stage", "share", "an iteration", "a call", "calls", "on the CPU", "bytes moved"],
        rows,
        notes.reasons,
        [f"{line}." for line in statements.side_by_side(summary.stages)],
    )


def _figure_table(summary: Summary, run: Run) -> TableView:
    figures = statements.benchmark_figures(summary, run)
    rows: list[list[Markup | str]] = [
        [figure.name, measure(figure.value, figure.form), figure.note]
        for figure in figures
        if not isinstance(figure.value, Unknown)
    ]
    for why, names in statements.names_by_reason(figures).items():
        rows.append([", ".join(names), measure(Unknown(why)), ""])
    return TableView(
        "Figures",
        ["figure", "value", "meaning"],
        rows,
        [],
        [statements.measured_for(summary)] if summary.iterations else [],
    )
