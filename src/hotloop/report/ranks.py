"""The ranks of one job in reports: how long each waits, the slowest one, what all that costs."""

from typing import TypedDict

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from hotloop.benchmark.ranks import Ranks
from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.report.console import headed_table, plain_table
from hotloop.report.numbers import Form, duration, figure, number, percent
from hotloop.report.section import TableView, figure_markup

# --- what a saved run holds ---------------------------------------------------------------------


class _Rank(TypedDict):
    """A rank of a job."""

    iterations: int
    ns_per_iteration: float
    stage_ns: dict[str, float]
    units: dict[str, float]
    exchange_ns: float | None
    overlap_ns: float | None


RANK_FACTS = {"ranks": list[_Rank]}
RANK_ARRAYS = {"rank_waits_ns": "amount common ranks", "rank_iteration_ns": "amount common"}

# --- in the terminal ----------------------------------------------------------------------------

_CLOCK = "waits: for the last rank, at the calls of collectives, by the clock that all ranks share."


def print_ranks(console: Console, ranks: Ranks) -> None:
    """Print a line for each rank, then what the slowest costs."""
    console.print()
    table = headed_table(
        [("rank", "right"), ("waits an iteration", "left"), *((n, "right") for n in _names(ranks))]
    )
    for row in ranks.rows:
        table.add_row(
            str(row.rank),
            figure(row.waits_ns, duration, why=False),
            *(duration(row.ns_per_iteration.get(name, 0.0)) for name in _names(ranks)),
        )
    console.print(table)
    facts = plain_table()
    for name, value, form, note in _figures(ranks):
        if not isinstance(value, Unknown):
            facts.add_row(name, figure(value, form), escape(note))
    console.print(facts)
    for name, value, _form, _note in _figures(ranks):
        if isinstance(value, Unknown):
            console.print(f"[dim]unknown  {name}: {escape(value.why)}[/]", highlight=False)
    console.print(f"[dim]{_together(ranks)}{_CLOCK}[/]", highlight=False)


# --- on the page --------------------------------------------------------------------------------


def rank_tables(ranks: Ranks | None) -> list[TableView]:
    """The tables of a run's ranks; none for one process."""
    if ranks is None:
        return []
    names = _names(ranks)
    rows: list[list[Markup | str]] = [
        [
            str(row.rank),
            figure_markup(row.waits_ns, duration),
            *(duration(row.ns_per_iteration.get(name, 0.0)) for name in names),
        ]
        for row in ranks.rows
    ]
    facts: list[list[Markup | str]] = [
        [name, figure_markup(value, form), note] for name, value, form, note in _figures(ranks)
    ]
    return [
        TableView("Time by rank", ["rank", "waits an iteration", *names], rows, [], [_CLOCK]),
        TableView(
            "What the slowest rank costs",
            ["figure", "value", "meaning"],
            facts,
            [],
            [together] if (together := _together(ranks).strip()) else [],
        ),
    ]


# --- what both show -----------------------------------------------------------------------------


def _names(ranks: Ranks) -> list[str]:
    """The stages of all ranks, those that take longest first."""
    longest: dict[str, float] = {}
    for row in ranks.rows:
        for name, ns in row.ns_per_iteration.items():
            longest[name] = max(longest.get(name, 0.0), ns)
    return sorted(longest, key=lambda name: -longest[name])


def _figures(ranks: Ranks) -> list[tuple[str, Figure, Form, str]]:
    slowest = "no rank stands out" if ranks.slowest is None else f"rank {ranks.slowest} is slowest"
    return [
        ("waiting", _share(ranks.cost_ns, ranks), percent, f"of an iteration; {slowest}"),
        ("if all were like the mean", ranks.if_like_mean_ns, duration, "an iteration, at best"),
        ("if all were like the fastest", ranks.if_like_fastest_ns, duration, "an iteration"),
        (
            "exchange of gradients",
            ranks.communication,
            percent,
            "of an iteration, with all ranks there and nothing left to compute; as "
            "DistributedDataParallel notes it, on the rank with the least",
        ),
        (
            "communication",
            ranks.stage_communication,
            percent,
            "of an iteration: collectives that Python calls, and what a backward pass waits for at "
            "its end; on the rank with the least",
        ),
    ]


def _share(cost: Figure, ranks: Ranks) -> Figure:
    if not isinstance(cost, Interval) or not isinstance(ranks.iteration_ns, Interval):
        return cost
    return cost.scaled(1 / ranks.iteration_ns.value)


def _together(ranks: Ranks) -> str:
    """The units of all ranks together, in one iteration."""
    units = sorted({unit for row in ranks.rows for unit in row.units_per_iteration})
    parts = [
        f"{number(sum(row.units_per_iteration.get(unit, 0.0) for row in ranks.rows))} {unit}"
        for unit in units
    ]
    if not parts:
        return ""
    return f"All {len(ranks.rows)} ranks together do {', '.join(parts)} an iteration. "
