"""Benchmarks: rates, the use of the machine and time by stage; and several compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.benchmark.summary import StageTime, Summary, summarize
from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE, SECONDS, Metric, known
from hotloop.report.benchmark_figures import benchmark_figures, bytes_unknown
from hotloop.report.console import headed_table, print_warnings
from hotloop.report.format import (
    MEASURED_LOOP,
    PEAKS,
    WARM_UP,
    WORK,
    Count,
    Format,
    Positive,
    as_saved,
)
from hotloop.report.iteration import benchmark_window, iteration_charts
from hotloop.report.kind import Comparison, Kind, PageContext
from hotloop.report.memory_views import memory_views
from hotloop.report.named_figures import figure_view, print_figures, print_unknown, rate_tile
from hotloop.report.numbers import bytes_, duration, factor, figure, interval, number, percent
from hotloop.report.ranks import RANK_ARRAYS, RANK_FACTS, print_ranks, rank_tables
from hotloop.report.section import Footnotes, Section, TableView, Tile, figure_markup, stage_name

# --- what a saved run holds ---------------------------------------------------------------------


class SavedStage(TypedDict):
    """A stage whose calls were timed."""

    name: str
    kind: str
    effect: str
    inside: str | None
    bytes_per_call: float | None
    cpu_share: float | None
    index: int


def blocks_fit(run: Run) -> str | None:
    """Why the numbers of a run's blocks do not fit its samples, or None."""
    blocks = len(run.arrays["stage_ns"])
    if (run.arrays["block_of"] >= blocks).any():
        return f"block_of: expected numbers below {blocks}, one for each block"
    return None


_FORMAT = Format(
    facts={"stages": list[SavedStage], "warm_up": WARM_UP, "work": WORK},
    optional_facts={
        **MEASURED_LOOP,
        **RANK_FACTS,
        "unit": str,
        "batches_per_iteration": Positive,
        "price_per_hour": Positive | None,
        "work_problem": str | None,
        "peaks": PEAKS,
        "dropped_events": Count,
        "measuring_ns": as_saved(Interval) | None,
    },
    arrays={
        "start_ns": "count n",
        "duration_ns": "count n",
        "units": "amount n",
        "block_of": "count n",
        "stage_ns": "real blocks stages",
        "stage_calls": "real blocks stages",
        "events": "int events 4",
    },
    optional_arrays={
        "stage_running_ns": "real blocks stages",
        "block_spinning_cpu_ns": "count blocks",
        "block_helpers_cpu_ns": "count blocks",  # as older versions call it
        "meters": "any samples columns",
        **RANK_ARRAYS,
    },
    check=blocks_fit,
)

# --- in the terminal ----------------------------------------------------------------------------


def print_benchmark(console: Console, summary: Summary, run: Run) -> None:
    """Print rates first, then the use of the machine, then time by stage."""
    console.print(f"[bold]{escape(summary.target)}[/]  {describe(run.host)}", highlight=False)
    figures = benchmark_figures(summary, run)
    print_figures(console, figures)
    if summary.iterations:
        console.print(f"[dim]{_measured_for(summary)}[/]")
    if summary.stages:
        console.print()
        console.print(stage_table(summary.stages))
        for line in _side_by_side(summary.stages):
            console.print(f"[dim]{escape(line)}[/]", highlight=False)
    if summary.ranks is not None:
        print_ranks(console, summary.ranks)
    print_unknown(console, [*figures, *bytes_unknown(summary)])
    print_warnings(console, summary.warnings)


def stage_table(stages: Sequence[StageTime]) -> Table:
    """The time by stage, for the terminal."""
    table = headed_table(
        [
            ("stage", "left"),
            ("share", "left"),
            ("an iteration", "right"),
            ("a call", "right"),
            ("calls", "right"),
            ("on the CPU", "right"),
            ("bytes moved", "right"),
        ]
    )
    for stage in _by_share(stages):
        table.add_row(
            ("  " if stage.inside else "") + escape(stage.name),
            interval(stage.share, percent),
            duration(stage.ns_per_iteration.value),
            duration(stage.ns_per_call),
            number(stage.calls_per_iteration),
            figure(stage.cpu_share, percent, why=False),
            figure(stage.bytes_per_iteration, bytes_, why=False),
        )
    return table


def _measured_for(summary: Summary) -> str:
    return (
        f"{summary.iterations} steady iterations in {summary.seconds:.1f} s; intervals cover 95%."
    )


def _by_share(stages: Sequence[StageTime]) -> list[StageTime]:
    """Stages in the order of a table: the largest first, those inside others at the end."""
    return sorted(stages, key=lambda stage: (stage.inside is not None, -stage.share.value))


def _side_by_side(stages: Sequence[StageTime]) -> list[str]:
    """The stages whose calls overlap: their share counts the time once, their calls add up."""
    return [
        f"{stage.name}: {stage.at_once:.2g} calls run side by side on average; added up, they take "
        f"{duration(stage.summed_ns_per_iteration.value)} an iteration"
        for stage in _by_share(stages)
        if stage.at_once > 1.01
    ]


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, summary: Summary, run: Run) -> Section:
    stages = [stage_view(summary.stages, page.colours)] if summary.stages else []
    figures = benchmark_figures(summary, run)
    notes = [_measured_for(summary)] if summary.iterations else []
    return Section(
        key=page.key,
        run=run,
        heading="How fast it is",
        tiles=_tiles(summary),
        charts=[
            *iteration_charts(page.key, run, page.colours, benchmark_window),
            *memory_views(page.key, run),
        ],
        tables=[
            *stages,
            *rank_tables(summary.ranks),
            figure_view(figures, notes),
        ],
        warnings=summary.warnings,
    )


def _tiles(summary: Summary) -> list[Tile]:
    return [
        rate_tile(summary.unit, summary.units_per_s, summary.ms_per_iteration),
        Tile(
            "of the cores", figure_markup(summary.cpu_share, percent), "in use by the process tree"
        ),
        Tile("peak memory", figure_markup(summary.memory_bytes, bytes_), "resident"),
    ]


def stage_view(stages: Sequence[StageTime], colours: Mapping[str, int]) -> TableView:
    """The time by stage, for the page."""
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            stage_name(stage, colours),
            figure_markup(stage.share, percent),
            figure_markup(stage.ns_per_iteration, duration),
            figure_markup(stage.ns_per_call, duration),
            figure_markup(stage.calls_per_iteration),
            notes.cell(stage.cpu_share, percent),
            notes.cell(stage.bytes_per_iteration, bytes_),
        ]
        for stage in _by_share(stages)
    ]
    return TableView(
        "Time by stage",
        ["stage", "share", "an iteration", "a call", "calls", "on the CPU", "bytes moved"],
        rows,
        notes.reasons,
        [f"{line}." for line in _side_by_side(stages)],
    )


# --- several benchmarks -------------------------------------------------------------------------

GLANCE = (
    "An unpaired glance: the runs were taken at different times, and what the machine did "
    "meanwhile is in the difference. `hotloop compare` measures two versions in turns."
)


@dataclass(frozen=True)
class _Compared:
    """One of several benchmarks. against: how many times the rate of the first; None for that."""

    target: str
    date: str
    rate: Figure
    unit: str
    against: Interval | Unknown | None


def print_compared(console: Console, benchmarks: Sequence[tuple[Run, Summary]]) -> None:
    """Print benchmarks in one table, each compared with the first."""
    table = Table(box=None, pad_edge=False)
    for column in ("run", "rate", "against the first"):
        table.add_column(column)
    for row in _compared(benchmarks):
        table.add_row(
            f"{row.date} {escape(row.target)}",
            f"{figure(row.rate)} {escape(row.unit)}/s",
            "the first" if row.against is None else figure(row.against, factor),
        )
    console.print(table)
    console.print(f"[dim]{escape(GLANCE)}[/]", highlight=False)


def _compared_view(benchmarks: Sequence[tuple[Run, Summary]]) -> TableView:
    rows: list[list[Markup | str]] = [
        [
            Markup('{}<br><span class="inside">{}</span>').format(row.target, row.date),
            Markup("{} {}/s").format(figure_markup(row.rate), row.unit),
            "the first" if row.against is None else figure_markup(row.against, factor),
        ]
        for row in _compared(benchmarks)
    ]
    return TableView(
        "Benchmarks compared", ["run", "rate", "against the first"], rows, [], [GLANCE]
    )


def _compared(benchmarks: Sequence[tuple[Run, Summary]]) -> list[_Compared]:
    first = benchmarks[0][1]
    return [
        _Compared(
            target=run.target,
            date=str(run.host.get("date", "")),
            rate=summary.units_per_s,
            unit=summary.unit,
            against=_against(first, summary) if k else None,
        )
        for k, (run, summary) in enumerate(benchmarks)
    ]


def _against(first: Summary, other: Summary) -> Interval | Unknown:
    if other.unit != first.unit:
        return Unknown("another unit")
    then, now = first.units_per_s, other.units_per_s
    if not isinstance(then, Interval) or not isinstance(now, Interval):
        return Unknown("a rate is missing")
    # Two separate runs: the ends of the ratio are those of the worst and the best case.
    return Interval(now.value / then.value, now.low / then.high, now.high / then.low)


def _metrics(summary: Summary, _run: Run) -> dict[str, Metric]:
    return known(
        {
            RATE: (summary.units_per_s, f"{summary.unit}/s"),
            "cost of a million": (summary.cost_per_million, ""),
            "first batch": (summary.first_batch_s, "s"),
            "cores in use": (summary.cpu_cores, ""),
            "peak memory": (summary.memory_bytes, "bytes"),
            SECONDS: (summary.wall_s, "s"),
        }
    )


BENCHMARK = Kind[Summary](
    format=_FORMAT,
    summarize=summarize,
    print=print_benchmark,
    section=_section,
    json=lambda summary, _run: summary,
    has_samples=lambda run: len(run.arrays["duration_ns"]) > 0,
    comparison=Comparison(print_compared, _compared_view),
    metrics=_metrics,
)
