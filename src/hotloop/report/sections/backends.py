"""The section of a sweep of backends: which is fastest, and the rate of each over its workers."""

from markupsafe import Markup

from hotloop.benchmark.backends import BackendTable, compare_backends
from hotloop.benchmark.noise import Interval
from hotloop.loop.run import Run
from hotloop.report import backends
from hotloop.report.charts.backends import Mark, Series, backends_chart
from hotloop.report.charts.svg import COLOURS, NARROW, WIDE
from hotloop.report.numbers import factor, percent
from hotloop.report.sections.section import (
    Charts,
    Footnotes,
    Section,
    TableView,
    Tile,
    apart,
    measure,
    sentence,
)


def backends_section(key: str, run: Run) -> Section:
    """What the page says about one sweep. key: unique on the page."""
    table = compare_backends(run)
    answer = [("best", sentence(backends.best(table)))]
    auto = backends.auto(table)
    if auto is not None:
        answer.append(("auto", sentence(auto)))
    return Section(
        key=key,
        run=run,
        heading=f"Which backend steps {table.env_id} fastest",
        tiles=_tiles(table),
        figures=[_chart(key, table)],
        warnings=table.warnings,
        answer=answer,
        tables=[_table(table)],
    )


def _tiles(table: BackendTable) -> list[Tile]:
    if table.best is None:
        return [Tile("env steps per second", apart("–"), "nothing was measured")]
    best = table.rows[table.best]
    tiles = [Tile("env steps per second", measure(best.sps), backends.row_name(best))]
    if isinstance(best.to_serial, Interval):
        tiles.append(Tile("of the serial rate", measure(best.to_serial, factor), "best to serial"))
    if table.auto is not None:
        row = table.rows[table.auto]
        tiles.append(
            Tile("auto, of the best", measure(row.to_best, percent), backends.row_name(row))
        )
    return tiles


def _chart(key: str, table: BackendTable) -> Charts:
    series = _series(table)
    return Charts(
        "Speed over workers",
        "Env steps per second with random actions, on logarithmic scales; what has no workers "
        "runs in the process that asks, and stands to the left.",
        [
            backends_chart(series, width=width, name=f"{key}-backends-{width}")
            for width in (WIDE, NARROW)
        ],
        legend=[(each.name, each.shade) for each in series],
        notes=[backends.measured(table), *([f"auto: {table.choice}"] if table.choice else [])],
    )


def _series(table: BackendTable) -> list[Series]:
    names = list(dict.fromkeys(backends.series_name(row) for row in table.rows))
    marks: dict[str, list[Mark]] = {name: [] for name in names}
    for k, row in enumerate(table.rows):
        if isinstance(row.sps, Interval):
            mark = Mark(backends.row_name(row), row.num_workers, row.sps, k == table.best)
            marks[backends.series_name(row)].append(mark)
    return [Series(name, k % COLOURS, marks[name]) for k, name in enumerate(names) if marks[name]]


def _table(table: BackendTable) -> TableView:
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            backends.series_name(row),
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
