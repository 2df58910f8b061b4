"""Named figures as the reports of benchmarks and of watched trainings show them: those that are
known in a table, the others by the reason why they are not.
"""

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.report.console import plain_table
from hotloop.report.numbers import duration, figure, interval
from hotloop.report.section import TableView, Tile, figure_markup
from hotloop.report.sentence import NamedFigure, names_by_reason


def print_figures(console: Console, figures: Sequence[NamedFigure]) -> None:
    """Print the figures that are known, one a line, with their remarks."""
    table = plain_table()
    for each in figures:
        if not isinstance(each.value, Unknown):
            table.add_row(each.name, figure(each.value, each.form), escape(each.note))
    console.print(table)


def print_unknown(console: Console, figures: Sequence[NamedFigure]) -> None:
    """Print the names of the figures that are unknown, a line for each reason."""
    for why, names in names_by_reason(figures).items():
        console.print(
            f"[dim]unknown  {escape(', '.join(names))}: {escape(why)}[/]", highlight=False
        )


def figure_view(figures: Sequence[NamedFigure], notes: Sequence[str]) -> TableView:
    """The table of figures on the page: those that are known, then the others by reason."""
    rows: list[list[Markup | str]] = [
        [each.name, figure_markup(each.value, each.form), each.note]
        for each in figures
        if not isinstance(each.value, Unknown)
    ]
    for why, names in names_by_reason(figures).items():
        rows.append([", ".join(names), figure_markup(Unknown(why)), ""])
    return TableView("Figures", ["figure", "value", "meaning"], rows, [], list(notes))


def rate_tile(unit: str, units_per_s: Figure, ms_per_iteration: Figure) -> Tile:
    """The rate in large, with the time of an iteration below where it is known."""
    below = ""
    if isinstance(ms_per_iteration, Interval):
        below = f"{interval(ms_per_iteration, duration.scaled(1e6))} an iteration"
    return Tile(f"{unit} per second", figure_markup(units_per_s), below)
