"""Profiles: where time, memory, arithmetic and bytes go, by stage; and what looking cost."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Interval
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.profile.profile import ASPECTS
from hotloop.profile.saved import from_saved
from hotloop.profile.tool import Overhead
from hotloop.report.console import headed_table
from hotloop.report.format import MEASURED_LOOP, Format
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import factor, measured
from hotloop.report.profile_charts import CHARTS
from hotloop.report.profile_rows import Rows
from hotloop.report.profile_tables import TABLES
from hotloop.report.section import Section, TableView, Tile, number_markup


@dataclass(frozen=True)
class Profiles:
    """All that one run has found. stage: the only one that was looked at; None: the loop."""

    stage: str | None
    found: dict[str, Any]
    missing: dict[str, str]

    def tables(self) -> list[Rows]:
        """The tables of all profiles, in their order."""
        return [
            rows for name, found in self.found.items() for rows in TABLES[name](found, self.stage)
        ]

    def overheads(self) -> list[tuple[str, Overhead]]:
        """What each profile's tool has cost."""
        return [(name, found.overhead) for name, found in self.found.items()]


def _summarize(run: Run) -> Profiles:
    return Profiles(
        run.facts.get("stage"),
        {name: from_saved(ASPECTS[name].kind, saved) for name, saved in _saved(run)},
        dict(run.facts.get("not_profiled", {})),
    )


def _saved(run: Run) -> list[tuple[str, Any]]:
    profiles = run.facts["profiles"]
    return [(name, profiles[name]) for name in ASPECTS if name in profiles]


def _problem(run: Run) -> str | None:
    unknown = [name for name in run.facts["profiles"] if name not in ASPECTS]
    if unknown:
        return f"facts: profiles: expected only {', '.join(ASPECTS)}, got {unknown[0]!r}"
    for name, saved in _saved(run):
        try:
            from_saved(ASPECTS[name].kind, saved)
        except (KeyError, TypeError, ValueError) as wrong:
            return f"facts: profiles: {name}: {wrong}"
    return None


# --- in the terminal -----------------------------------------------------------------------------


def _print(console: Console, profiles: Profiles, run: Run) -> None:
    of = f", stage {profiles.stage}" if profiles.stage else ""
    console.print(
        f"[bold]{escape(run.target)}{escape(of)}[/]  {describe(run.host)}", highlight=False
    )
    for rows in profiles.tables():
        console.print()
        console.print(f"[bold]{escape(rows.title)}[/]", highlight=False)
        if rows.rows:
            table = headed_table(rows.columns)
            for row in rows.rows:
                table.add_row(*map(escape, row))
            console.print(table)
        for note in rows.notes:
            console.print(f"[dim]{escape(note)}[/]", highlight=False)
    console.print()
    for line in _costs(profiles):
        console.print(f"[dim]{escape(line)}[/]", highlight=False)


def _costs(profiles: Profiles) -> list[str]:
    """What each tool has cost, which ones were not used, and what there is no profile of."""
    lines = []
    for name, overhead in profiles.overheads():
        lines.append(
            f"{name}: {overhead.tool}, {overhead.iterations} iterations; one with it takes "
            f"{_slowdown(overhead.slowdown)} of one without it"
        )
        lines += [f"{name}: not with {each.tool}: {each.why}" for each in overhead.not_used]
    return lines + [f"{name}: no profile: {why}" for name, why in profiles.missing.items()]


def _slowdown(of: Interval) -> str:
    return measured(of, factor)


# --- on the page ---------------------------------------------------------------------------------


def _section(page: PageContext, profiles: Profiles, run: Run) -> Section:
    charts = [
        view
        for name, views in CHARTS.items()
        if name in profiles.found
        for view in views(page.key, profiles.found[name], page.colours)
    ]
    return Section(
        key=page.key,
        run=run,
        heading="Where it goes",
        tiles=[
            Tile(f"{name}: an iteration with {cost.tool}", number_markup(_slowdown(cost.slowdown)))
            for name, cost in profiles.overheads()
        ],
        charts=charts,
        tables=[
            TableView(
                rows.title,
                [name for name, _ in rows.columns],
                list(map(list, rows.rows)),
                [],
                rows.notes,
            )
            for rows in profiles.tables()
        ],
        warnings=_costs(profiles),
    )


PROFILE = Kind[Profiles](
    format=Format(
        facts={"profiles": dict[str, dict[str, Any]]},
        optional_facts={
            **MEASURED_LOOP,
            "stage": str | None,
            "stages": list[dict[str, str]],
            "not_profiled": dict[str, str],
        },
        check=_problem,
    ),
    summarize=_summarize,
    print=_print,
    section=_section,
    json=lambda profiles, _run: {
        "stage": profiles.stage,
        "profiles": profiles.found,
        "not_profiled": profiles.missing,
    },
    has_samples=lambda run: bool(run.facts["profiles"]),
)
