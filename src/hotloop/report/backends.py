"""Sweeps of backends: which one steps an env fastest, what `auto` chose, every rate."""

from typing import TypedDict

import numpy as np
from markupsafe import Markup
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from hotloop.benchmark.backends import BackendRow, BackendTable, compare_backends
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE, SECONDS, Metric, known
from hotloop.report.charts.backends import Mark, Series, backends_chart
from hotloop.report.charts.svg import COLOURS, NARROW, WIDE
from hotloop.report.console import headed_table, marked, print_warnings
from hotloop.report.format import Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import factor, figure, number, percent
from hotloop.report.section import (
    ChartView,
    Footnotes,
    Section,
    TableView,
    Tile,
    figure_markup,
    number_markup,
    sentence_markup,
)
from hotloop.report.sentence import Amount, Name, Sentence

_BAR = 32  # characters, of the longest bar

# --- what a saved run holds ---------------------------------------------------------------------


class _Variant(TypedDict):
    """A row of a sweep of backends."""

    backend: str
    num_workers: int | None
    splits: int
    envs_per_worker: int | None
    chosen: str | None
    problem: str | None


def _variants_fit(run: Run) -> str | None:
    for variant in run.facts["variants"]:
        for name in ("num_workers", "splits", "envs_per_worker"):
            number = variant[name]
            if number is not None and number < 1:
                return f"variants: {name}: expected a number above 0, got {number}"
    return None


_FORMAT = Format(
    facts={
        "env_id": str,
        "num_envs": Positive,
        "round_s": Positive,
        "choice": str | None,
        "variants": list[_Variant],
    },
    arrays={"sps": "rate variants rounds"},
    check=_variants_fit,
)

# --- in words -----------------------------------------------------------------------------------


def _row_name(row: BackendRow) -> str:
    """The variant's name: process, 2 workers, 2 splits."""
    return _counted(row.backend if row.chosen is None else f"auto ({row.chosen})", row)


def _series_name(row: BackendRow) -> str:
    """The backend, without its workers."""
    return row.backend if row.splits == 1 else f"{row.backend}, {row.splits} splits"


def _best_words(table: BackendTable) -> Sentence:
    """Say which backend is best, by how much, and which others may be as good."""
    if table.best is None:
        return ["nothing was measured"]
    row = table.rows[table.best]
    words: list[str | Name | Amount] = [Name(_row_name(row)), ": ", Amount(row.sps, number), " SPS"]
    if isinstance(row.to_serial, Interval) and row.backend != "serial":
        words += [", ", Amount(row.to_serial, factor), " serial’s"]
    for k in table.equals:
        words += ["; not told apart from " if k == table.equals[0] else ", "]
        words.append(Name(_row_name(table.rows[k])))
    second = _second(table)
    if second is not None:
        words += ["; the next, ", Name(_row_name(second)), ", has "]
        words += [Amount(second.to_best, percent), " of its rate"]
    return words


def _auto_words(table: BackendTable) -> Sentence | None:
    """Say what auto chose and how it compares; None where it was not measured."""
    if table.auto is None:
        return None
    row = table.rows[table.auto]
    chosen: Sentence = ["chose ", Name(_counted(str(row.chosen), row)), ": "]
    if table.best == table.auto:
        return [*chosen, Amount(row.sps, number), " SPS"]
    return [*chosen, Amount(row.to_best, percent), " of the best one’s rate"]


def _measured_words(table: BackendTable) -> str:
    """Say how the rates were measured."""
    return (
        f"{table.rounds} rounds in random order, {table.round_s:.2g} s each; random actions, "
        "policy and learner left out"
    )


def _second(table: BackendTable) -> BackendRow | None:
    """The fastest row that is slower than the best one."""
    slower = [
        row
        for k, row in enumerate(table.rows)
        if k not in (table.best, table.auto, *table.equals) and isinstance(row.to_best, Interval)
    ]
    return max(slower, key=_share, default=None)


def _share(row: BackendRow) -> float:
    return row.to_best.value if isinstance(row.to_best, Interval) else 0.0


def _counted(name: str, row: BackendRow) -> str:
    words = [name]
    if row.num_workers is not None:
        what = "actor" if "ray" in (row.backend, row.chosen) else "worker"
        words.append(f"{row.num_workers} {what}{'s' if row.num_workers != 1 else ''}")
    if row.splits > 1:
        words.append(f"{row.splits} splits")
    return ", ".join(words)


# --- in the terminal ----------------------------------------------------------------------------


def print_backends(console: Console, table: BackendTable, run: Run) -> None:
    """Print which backend is best and what auto chose; then the rate of each variant."""
    title = f"[bold]{escape(table.env_id)}[/]  {table.num_envs} envs  {describe(run.host)}"
    console.print(title, highlight=False)
    console.print(f"[bold]best[/]   {marked(_best_words(table))}", highlight=False)
    auto = _auto_words(table)
    if auto is not None:
        console.print(f"[bold]auto[/]   {marked(auto)}", highlight=False)
    console.print()
    console.print(_backend_table(table))
    console.print(f"[dim]{_measured_words(table)}[/]", highlight=False)
    if table.choice is not None:
        console.print(f"[dim]auto: {escape(table.choice)}[/]", highlight=False)
    print_warnings(console, table.warnings)


def _backend_table(table: BackendTable) -> Table:
    shown = headed_table(
        [
            ("backend", "left"),
            ("workers", "right"),
            ("envs each", "right"),
            ("SPS", "right"),
            ("to serial", "right"),
            ("", "left"),
        ]
    )
    rates = [row.sps.value for row in table.rows if isinstance(row.sps, Interval)]
    for k, row in enumerate(table.rows):
        style = "bold green" if k == table.best else "yellow" if k in table.equals else ""
        bar: RenderableType = ""
        if isinstance(row.sps, Interval):
            bar = Bar(max(rates), 0, row.sps.value, width=_BAR, color="green" if style else "blue")
        elif isinstance(row.sps, Unknown):
            bar = f"[dim]{escape(row.sps.why)}[/]"
        shown.add_row(
            escape(_series_name(row)),
            _count(row.num_workers),
            _count(row.envs_per_worker),
            figure(row.sps, why=False),
            figure(row.to_serial, factor, why=False),
            bar,
            style=style,
        )
    return shown


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, table: BackendTable, run: Run) -> Section:
    answer = [("best", sentence_markup(_best_words(table)))]
    auto = _auto_words(table)
    if auto is not None:
        answer.append(("auto", sentence_markup(auto)))
    return Section(
        key=page.key,
        run=run,
        heading=f"Which backend steps {table.env_id} fastest",
        tiles=_tiles(table),
        charts=[_chart(page.key, table)],
        warnings=table.warnings,
        answer=answer,
        tables=[_table_view(table)],
    )


def _tiles(table: BackendTable) -> list[Tile]:
    if table.best is None:
        return [Tile("env steps per second", number_markup("–"), "nothing was measured")]
    best = table.rows[table.best]
    tiles = [Tile("env steps per second", figure_markup(best.sps), _row_name(best))]
    if isinstance(best.to_serial, Interval):
        tiles.append(
            Tile("of the serial rate", figure_markup(best.to_serial, factor), "best to serial")
        )
    if table.auto is not None:
        row = table.rows[table.auto]
        tiles.append(Tile("auto, of the best", figure_markup(row.to_best, percent), _row_name(row)))
    return tiles


def _chart(key: str, table: BackendTable) -> ChartView:
    series = _series(table)
    return ChartView(
        "Speed over workers",
        "Env steps per second with random actions, on logarithmic scales; what has no workers "
        "runs in the process that asks, and stands to the left.",
        [
            backends_chart(series, width=width, name=f"{key}-backends-{width}")
            for width in (WIDE, NARROW)
        ],
        legend=[(each.name, each.colour) for each in series],
        notes=[_measured_words(table), *([f"auto: {table.choice}"] if table.choice else [])],
    )


def _series(table: BackendTable) -> list[Series]:
    names = list(dict.fromkeys(_series_name(row) for row in table.rows))
    marks: dict[str, list[Mark]] = {name: [] for name in names}
    for k, row in enumerate(table.rows):
        if isinstance(row.sps, Interval):
            mark = Mark(_row_name(row), row.num_workers, row.sps, k == table.best)
            marks[_series_name(row)].append(mark)
    return [Series(name, k % COLOURS, marks[name]) for k, name in enumerate(names) if marks[name]]


def _table_view(table: BackendTable) -> TableView:
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            _series_name(row),
            "–" if row.num_workers is None else str(row.num_workers),
            "–" if row.envs_per_worker is None else str(row.envs_per_worker),
            notes.cell(row.sps),
            notes.cell(row.to_serial, factor),
        ]
        for row in table.rows
    ]
    return TableView(
        "Every variant",
        ["backend", "workers", "envs each", "env steps per second", "to serial"],
        rows,
        notes.reasons,
    )


def _metrics(table: BackendTable, _run: Run) -> dict[str, Metric]:
    found = {f"{RATE}: {_row_name(row)}": (row.sps, "env steps/s") for row in table.rows}
    measured_s = table.rounds * len(table.rows) * table.round_s
    return known({**found, SECONDS: (measured_s, "s")})


BACKENDS = Kind[BackendTable](
    format=_FORMAT,
    summarize=compare_backends,
    print=print_backends,
    section=_section,
    json=lambda table, _run: table,
    has_samples=lambda run: bool(np.isfinite(run.arrays["sps"]).any()),
    metrics=_metrics,
)
