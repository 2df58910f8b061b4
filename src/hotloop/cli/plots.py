"""Files of curves beside the report, for the verbs that have `--plot`, `--out` and `--save`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from hotloop.cli.files import check_place, write_table
from hotloop.loop.run import Run
from hotloop.report.curves import Curve
from hotloop.report.html import write_html
from hotloop.report.picture import write_picture


def check_outputs(options: Any) -> None:
    """Refuse files that could not be written. An empty name of a plot stands for a page here.

    Raises: SettingError.
    """
    check_place("--out", options.out, (".csv", ".parquet"))
    check_place("--save", options.save)
    if options.plot:
        check_place("--plot", Path(options.plot), (".png", ".html"))


def write_outputs(
    errors: Console,
    options: Any,
    run: Run,
    curves: list[Curve],
    table: Callable[[], Mapping[str, np.ndarray]],
) -> None:
    """Write the plot and the table that were asked for, and name each file.

    table: makes the columns, where they are asked for.
    Raises: RunError if one cannot be written.
    """
    if options.plot is not None:
        _say_written(errors, _write_plot(options.plot, run, curves))
    if options.out is not None:
        write_table(table(), options.out, "--out")
        _say_written(errors, options.out)


def _write_plot(plot: str, run: Run, curves: list[Curve]) -> Path:
    """Draw the curves as the page or picture that was asked for; returns where."""
    place = Path(plot or re.sub(r"[^\w.-]+", "-", run.target) + ".html")
    if place.suffix == ".png":
        return write_picture(curves, run.target, place)
    return write_html([run], place)


def _say_written(errors: Console, path: Path) -> None:
    line = f"written: {path.resolve()}"
    errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
