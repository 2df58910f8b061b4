"""Curves as a picture or a page beside the report, for the verbs that have `--plot`."""

import re
from pathlib import Path

from rich.console import Console

from hotloop.cli.files import check_place
from hotloop.loop.run import Run
from hotloop.report.curves import Curve
from hotloop.report.html import write_html
from hotloop.report.picture import write_picture


def check_plot(plot: str | None) -> None:
    """Refuse a picture that could not be written. An empty name stands for a page here.

    Raises: SettingError.
    """
    if plot:
        check_place("--plot", Path(plot), (".png", ".html"))


def write_plot(plot: str, run: Run, curves: list[Curve]) -> Path:
    """Draw the curves as the page or picture that was asked for; returns where."""
    place = Path(plot or re.sub(r"[^\w.-]+", "-", run.target) + ".html")
    if place.suffix == ".png":
        return write_picture(curves, run.target, place)
    return write_html([run], place)


def say_written(errors: Console, path: Path) -> None:
    """Name a file that was written beside the run."""
    line = f"written: {path.resolve()}"
    errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
