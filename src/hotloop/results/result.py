"""What every result can do: be drawn as text, as a page and as JSON, and be saved."""

import dataclasses
import html
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hotloop.benchmark.summary import Unknown
from hotloop.errors import SettingError, nearest
from hotloop.loop.conduct import Observer
from hotloop.loop.run import Run

# Reports hold tables: without a terminal they get this width instead of a narrow guess.
WIDTH = 120
_PAGE_HEIGHT = 600  # pixels, where a notebook does not let the page say its own

# Shows how far a measurement is while it runs: given that share, a context with the observer.
View = Callable[[Callable[[], float]], AbstractContextManager[Observer]]


class Result(ABC):
    """One measurement, complete or cut short; everything is read from its run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @abstractmethod
    def print_to(self, console: Console) -> None:
        """Print the report that the command prints."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The figures, as `--json` prints them; an unknown one is null beside its reason."""

    @property
    @abstractmethod
    def enough(self) -> bool:
        """Whether anything was measured that is worth showing and saving."""

    def save(self, path: Path | str | None = None) -> Path:
        """Write the run to `path`, or under `.hotloop/` by date and target; returns where.

        Raises: RunError if it cannot be written.
        """
        return self.run.save(None if path is None else Path(path))

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


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Ending(Generic[R]):
    """How a measurement ended: what it found, and what cut it short, if something did."""

    result: R
    error: BaseException | None

    def completed(self) -> R:
        """The result of a whole measurement.

        Raises: what cut it short; what had been measured is then its attribute `result`.
        """
        if self.error is None:
            return self.result
        if self.result.enough:
            self.error.result = self.result  # type: ignore[attr-defined]  # any exception takes it
            self.error.add_note("what had been measured is this exception's attribute `result`")
        raise self.error


def settings_of(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Settings of a dataclass by their names.

    Raises: SettingError for a name that it does not have, with the nearest that it has.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in names:
            raise SettingError(f"there is no setting {name!r}{nearest(name, names)}")
    return kind(**given)


def plain(value: Any) -> Any:
    """A dataclass as what JSON knows; an unknown number is null beside `unknown`, the reason."""
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
