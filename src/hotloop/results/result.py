"""Results of measurements: each can be shown as text, as a page and as JSON, and be saved."""

import dataclasses
import html
import io
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hotloop.loop.conduct import Observer
from hotloop.loop.figures import Unknown
from hotloop.loop.run import Run
from hotloop.report.kind import Kind
from hotloop.results.noted import note

# Columns of a report without a terminal: its tables need more than the usual guess of 80.
WIDTH = 120
_PAGE_HEIGHT = 600  # pixels, in a notebook that does not run the frame's script

S = TypeVar("S")

# Shows the progress of a measurement: takes a function that returns the share done, 0 to 1, and
# returns a context manager whose value is the observer.
View = Callable[[Callable[[], float]], AbstractContextManager[Observer]]


class Result(Generic[S]):
    """One measurement, complete or cut short; everything is read from its run.

    The subclass for each verb names the kind of its runs.
    """

    kind: ClassVar[Kind[Any]]

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def found(self) -> S:
        """The summary of the run, computed once."""
        found: S = self.kind.summarize(self.run)
        return found

    def print_to(self, console: Console) -> None:
        """Print the report that the command prints."""
        self.kind.print(console, self.found, self.run)

    def to_dict(self) -> dict[str, Any]:
        """The figures, as `--json` prints them; an unknown one is null beside its reason."""
        return dict(plain(self.kind.json(self.found, self.run)))

    @property
    def has_samples(self) -> bool:
        """Whether anything was measured that is worth showing and saving."""
        return self.kind.has_samples(self.run)

    def save(self, path: Path | str | None = None) -> Path:
        """Write the run to `path`, or under `.hotloop/` by date and target; returns where.

        Under `.hotloop/` the journal notes it as well, as it does the runs of the commands.
        Raises: RunError if it cannot be written; JournalError if it cannot be noted.
        """
        if path is not None:
            return self.run.save(Path(path))
        saved = self.run.save()
        note(self.run, dict(self.kind.metrics(self.found, self.run)), saved, None)
        return saved

    def __repr__(self) -> str:
        return self._drawn(WIDTH, colours=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = self._drawn(options.max_width, colours=True)
        yield Text.from_ansi(drawn, no_wrap=True, overflow="ignore")

    def _repr_html_(self) -> str:
        from hotloop.report.html import render

        # A frame of its own: the page's styles would change those of a notebook.
        page = html.escape(render([self.run]), quote=True)
        fit = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
        return (
            f'<iframe srcdoc="{page}" onload="{fit}" title="hotloop report" '
            f'style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'
        )

    def _drawn(self, width: int, *, colours: bool) -> str:
        console = Console(
            file=io.StringIO(),
            record=True,
            width=width,
            force_terminal=colours,
            color_system="truecolor" if colours else None,
            force_jupyter=False,
        )
        self.print_to(console)
        return console.export_text(styles=colours).rstrip("\n")


R = TypeVar("R", bound=Result[Any])


@dataclass(frozen=True)
class Ending(Generic[R]):
    """The end of a measurement: its result, and the error that cut it short, if there is one."""

    result: R
    error: BaseException | None

    def completed(self) -> R:
        """The result of a complete measurement.

        Raises: the error that cut it short; its attribute `result` is then the partial result.
        """
        if self.error is None:
            return self.result
        if self.result.has_samples:
            self.error.result = self.result  # type: ignore[attr-defined]  # any exception takes it
            self.error.add_note("what had been measured is this exception's attribute `result`")
        raise self.error


def plain(value: Any) -> Any:
    """Convert a dataclass to JSON types; an unknown number is null beside `unknown`, the reason."""
    if isinstance(value, Unknown):
        return {"value": None, "unknown": value.why}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
