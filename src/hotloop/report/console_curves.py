"""Curves by day in the terminal: the answer, the table, and, where asked for, charts."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report import curves
from hotloop.report.charts.curves import Cell, drawn
from hotloop.report.curves import Curve, Fitted, Setting, Simulated, count, counts, on_day
from hotloop.report.numbers import bytes_, duration, number, seconds
from hotloop.report.statements import Amount, Name, Sentence

# By the number of a curve's colour, as on the page.
_COLOURS = {0: "blue", 3: "red"}
_OBSERVED = "yellow"


def print_simulate(console: Console, found: Simulated, run: Run, *, charts: bool = False) -> None:
    """What a simulation found; then the days, and how fast it was."""
    _print_head(console, found.setting)
    _print_answer(console, curves.simulate_answer(found))
    if charts:
        for curve in found.daily:
            _print_chart(console, curve)
    console.print()
    console.print(_days(found.curves))
    console.print(_about_intervals("median", found.setting.replicates), style="dim")
    console.print(curves.speed(found), style="dim", highlight=False)
    console.print(describe(run.host), style="dim", highlight=False)
    for warning in found.warnings:
        console.print(f"[yellow]note[/]  {escape(warning)}", highlight=False)


def print_calibrate(console: Console, found: Fitted, run: Run, *, charts: bool = False) -> None:
    """What was fitted; then each parameter, and how the fit compares with what was observed."""
    _print_head(console, found.setting)
    _print_answer(console, curves.calibrate_answer(found))
    if charts:
        for curve in found.daily:
            _print_chart(console, curve)
    console.print()
    table = _table("parameter", "fit", "95% interval", "first guess")
    for each in found.parameters:
        interval = f"{each.value.low:.4g} to {each.value.high:.4g}"
        if each.why_no_interval:
            interval = f"[dim]{escape(each.why_no_interval)}[/]"
        table.add_row(each.name, f"{each.value.value:.4g}", interval, f"{each.first_guess:.4g}")
    console.print(table)
    if found.daily:
        console.print()
        console.print(_days(found.daily))
        console.print(_about_intervals("mean", found.setting.replicates), style="dim")
    console.print(describe(run.host), style="dim", highlight=False)
    for note in (*found.notes, *found.warnings):
        console.print(f"[yellow]note[/]  {escape(note)}", highlight=False)


def print_stats(console: Console, found: Simulated) -> None:
    """The engine's own counters, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in found.stats.items():
        table.add_row(escape(key), escape(_stat(key, value)))
    console.print()
    console.print(table)


def _print_head(console: Console, setting: Setting) -> None:
    title = f"[bold]{escape(setting.model)}[/] on [bold]{escape(setting.population)}[/]"
    console.print(f"{title}  {escape(curves.about(setting))}", highlight=False)


def _print_answer(console: Console, answer: Sequence[tuple[str, Sentence]]) -> None:
    wide = max(len(word) for word, _ in answer) + 2
    for word, sentence in answer:
        console.print(f"[bold]{word:<{wide}}[/]{_marked(sentence)}", highlight=False)


def _print_chart(console: Console, curve: Curve) -> None:
    margin = 8
    rows, top = drawn(curve, width=console.width - margin - 2)
    words = ["observed: o"] if curve.observed else []
    words += ["shaded: 95% of runs"] if curve.has_band else []
    console.print()
    console.print(f"[bold]{curve.name} a day[/]  [dim]{', '.join(words)}[/]", highlight=False)
    for k, row in enumerate(rows):
        # The value at the upper edge of the row.
        label = number(top * (1 - k / len(rows))) if k % (len(rows) // 2) == 0 else ""
        line = Text(f"{label:>{margin - 2}} ┤" if label else f"{'':>{margin - 2}} │", style="dim")
        line.append_text(_styled(row, curve.shade))
        console.print(line, no_wrap=True, crop=True)
    columns, last = len(rows[0]), len(curve.middle) - 1
    console.print(f"[dim]{'0':>{margin - 2}} └{'─' * columns}[/]", highlight=False)
    below = f"day 0{f'day {last}':>{max(columns - 5, 8)}}" if last else "day 0"
    console.print(f"[dim]{'':>{margin}}{below}[/]", highlight=False)


def _styled(row: Sequence[Cell], shade: int) -> Text:
    colour = _COLOURS.get(shade, "blue")
    styles = {"middle": f"bold {colour}", "band": colour, "observed": f"bold {_OBSERVED}"}
    line = Text()
    for cell in row:
        line.append(cell.char, style=styles.get(cell.of, ""))
    return line


def _days(shown: Sequence[Curve]) -> Table:
    """One row a day: what was observed, if anything was, beside what was simulated."""
    table = _table("day")
    for curve in shown:
        if curve.observed is not None:
            table.add_column(f"{curve.name} observed", justify="right")
        table.add_column(curve.name, justify="right")
    for day in curves.shown_days(len(shown[0].middle)):
        cells = [str(day)]
        for curve in shown:
            if curve.observed is not None:
                cells.append(count(curve.observed[day]))
            cells.append(counts(on_day(curve, day)))
        table.add_row(*map(escape, cells))
    return table


def _about_intervals(middle: str, replicates: int) -> str:
    if replicates == 1:
        return "one run"
    return f"{middle} of {replicates:,} runs, in brackets where 95% of them lie"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name == "parameter" else "right")
    return table


def _stat(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "seconds" in key:
        return seconds(value)
    if "bytes" in key:
        return bytes_(value)
    if key.endswith("_ns"):
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def _marked(sentence: Sentence) -> str:
    words = []
    for word in sentence:
        if isinstance(word, Name):
            words.append(f"[bold]{escape(word.text)}[/]")
        else:
            assert not isinstance(word, Amount)  # these sentences have none
            words.append(escape(word))
    return "".join(words)
