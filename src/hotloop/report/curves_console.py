"""Curves over steps in the terminal: the line about the run, the table and the charts."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hotloop.report import curves
from hotloop.report.charts.curves import Cell, characters
from hotloop.report.curves import Curve, Setting
from hotloop.report.numbers import number

# By the number of a curve's colour, like those of the page.
_COLOURS = ("blue", "dark_orange", "green", "red", "cyan", "magenta", "purple", "yellow")
_OBSERVED = "yellow"


def print_head(console: Console, setting: Setting) -> None:
    """Print the model, the population and how it was run, in a line."""
    title = f"[bold]{escape(setting.model)}[/] on [bold]{escape(setting.population)}[/]"
    console.print(f"{title}  {escape(curves.about(setting))}", highlight=False)


def print_chart(console: Console, curve: Curve) -> None:
    """Print one curve as a chart of characters."""
    margin = 8
    chart = characters(curve, width=console.width - margin - 2)
    words = ["observed: o"] if curve.observed else []
    words += ["shaded: 95% of runs"] if curve.has_band else []
    console.print()
    console.print(f"[bold]{escape(curve.title)}[/]  [dim]{', '.join(words)}[/]", highlight=False)
    rows = chart.rows
    for k, row in enumerate(rows):
        # The value at the upper edge of the row.
        edge = chart.high - (chart.high - chart.low) * k / len(rows)
        label = number(edge) if k % (len(rows) // 2) == 0 else ""
        line = Text(f"{label:>{margin - 2}} ┤" if label else f"{'':>{margin - 2}} │", style="dim")
        line.append_text(_styled(row, curve.colour))
        console.print(line, no_wrap=True, crop=True)
    columns, last = len(rows[0]), len(curve.middle) - 1
    bottom = number(chart.low) if chart.low else "0"
    console.print(f"[dim]{bottom:>{margin - 2}} └{'─' * columns}[/]", highlight=False)
    first = f"{curve.step} 0"
    below = f"{first}{f'{curve.step} {last}':>{max(columns - len(first), 8)}}" if last else first
    console.print(f"[dim]{'':>{margin}}{escape(below)}[/]", highlight=False)


def curve_table(shown: Sequence[Curve]) -> Table:
    """One row for each step."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in curves.table_head(shown):
        table.add_column(escape(name), justify="right")
    for row in curves.table_rows(shown):
        table.add_row(*map(escape, row))
    return table


def _styled(row: Sequence[Cell], number: int) -> Text:
    colour = _COLOURS[number % len(_COLOURS)]
    styles = {"middle": f"bold {colour}", "band": colour, "observed": f"bold {_OBSERVED}"}
    line = Text()
    for cell in row:
        line.append(cell.char, style=styles.get(cell.of, ""))
    return line
