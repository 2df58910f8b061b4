"""The levels of `hotloop simplify --deepen`, printed in the terminal."""

from rich.console import Console
from rich.markup import escape

from hotloop.report.console import print_warnings
from hotloop.report.numbers import percent
from hotloop.report.simplify import verdict_table
from hotloop.simplify.deepen import Level


def print_level(console: Console, level: Level) -> None:
    """Print one level inside a stage: its parts, its hottest lines, and why the search ended."""
    console.print(f"[bold]inside {escape(level.stage)}[/]", highlight=False)
    if level.verdict is not None:
        console.print(verdict_table(level.verdict))
    for why in level.left_out:
        console.print(f"[dim]not looked at: {escape(why)}[/]", highlight=False)
    for file, line, function, share in level.hot_lines:
        console.print(
            f"[dim]{percent(share):>6}  {escape(file)}:{line} {escape(function)}[/]",
            highlight=False,
            soft_wrap=True,
        )
    if level.stopped is not None:
        console.print(
            f"[bold]stop[/]   {escape(level.stopped)}. The lines above are where its time goes; "
            "with native frames: py-spy record --native -- hotloop benchmark …",
            highlight=False,
        )
    if level.verdict is not None:
        print_warnings(console, level.verdict.warnings)
    console.print()
