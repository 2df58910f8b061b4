"""The live view of a training: one refreshed panel on a terminal, a line now and then elsewhere.

It is drawn by time, not by iteration: an iteration may take a millisecond, and so does a drawing.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PANEL_S, LINE_S = 0.25, 10.0  # between two drawings of the panel, between two lines
Row = Sequence[tuple[str, str]]  # figures that stand side by side: what it is, its value


class LivePanel:
    """Show figures while the context is entered.

    clock: returns seconds, as `time.perf_counter` does.
    """

    def __init__(
        self, console: Console, title: str, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._console, self._title, self._clock = console, title, clock
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._period_s = PANEL_S if console.is_terminal else LINE_S
        self._next = clock() + self._period_s

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def due(self) -> bool:
        """Whether it is time to show new figures; cheap enough to be asked every millisecond."""
        return self._clock() >= self._next

    def show(self, share: float, rows: Sequence[Row]) -> None:
        """Show the share that is done, 0 to 1, and the figures."""
        self._next = self._clock() + self._period_s
        share = min(1.0, max(0.0, share))
        if not self._console.is_terminal:
            words = ", ".join(f"{name} {value}" for row in rows for name, value in row)
            line = f"{self._title}  {share:.0%}  {words}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        head = Table.grid(padding=(0, 1))
        head.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=1.0, completed=share, width=30),
            Text(f"{share:.0%}", style="dim"),
        )
        self._live.update(Group(head, *map(_line, rows)), refresh=True)


def _line(row: Row) -> Text:
    text = Text()
    for name, value in row:
        text.append(f"{name} ", style="dim").append(f"{value}  ", style="bold")
    return text
