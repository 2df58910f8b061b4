"""The live view of a measurement: progress, the current rate, a sparkline.

It is drawn at the ends of iterations, outside every timing, and only on a terminal.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hotloop.loop.conduct import Conductor, Observer
from hotloop.report.numbers import number

_BARS = "▁▂▃▄▅▆▇█"
KEPT = 40  # rates of the sparkline


class LiveView:
    """Show a measurement while the context is entered; its value is the observer to pass on."""

    def __init__(self, console: Console, title: str, progress: Callable[[], float]) -> None:
        """progress: returns how much of the measurement is done, 0 to 1."""
        self._title = title
        self._progress = progress
        self._rates: deque[float] = deque(maxlen=KEPT)
        self._last: tuple[int, float] | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._shown = console.is_terminal

    def __enter__(self) -> Observer:
        if self._shown:
            self._live.start()
        return self.update

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._live.stop()

    def update(self, conductor: Conductor) -> None:
        """Draw the current state."""
        now = conductor.control.clock.now_ns()
        if self._last is not None:
            elapsed = (now - self._last[0]) * 1e-9
            if elapsed > 0:
                self._rates.append((conductor.units_done - self._last[1]) / elapsed)
        self._last = (now, conductor.units_done)
        if not self._shown:
            return
        phase = conductor.block.request.phase if conductor.block is not None else ""
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=1.0, completed=min(1.0, max(0.0, self._progress())), width=30),
            Text(phase, style="dim"),
        )
        rate = number(self._rates[-1]) if self._rates else "…"
        line = Text.from_markup(
            f"{rate} {escape(conductor.unit)}/s  [cyan]{sparkline(list(self._rates))}[/]  "
            f"[dim]{conductor.iterations_done} iterations[/]"
        )
        self._live.update(Group(grid, line), refresh=True)


def sparkline(values: list[float]) -> str:
    """The values as bars of eight heights, from zero to the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[min(7, int(8 * max(value, 0.0) / top))] for value in values)
