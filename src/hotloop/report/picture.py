"""Curves by day as a picture file, drawn with matplotlib, which only this file needs."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.errors import RunError
from hotloop.report.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The page's colours on paper, by number.
_COLOURS = {0: "#0072b2", 1: "#d98c00", 3: "#c84e00"}


def write_picture(curves: Sequence[Curve], title: str, path: Path) -> Path:
    """Write the curves, one above the other, as a PNG; returns where.

    Raises: RunError if it cannot be written (what stood there before stays as it was), or if
    matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise RunError(f"{path}: a picture needs matplotlib: {INSTALL}") from None
    figure = Figure(figsize=(8.0, 3.0 * len(curves) + 0.6), dpi=120, layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for each, curve in zip(axes, curves, strict=True):
        _draw(each, curve)
    axes[-1].set_xlabel("day")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(scratch, format="png")
        scratch.replace(path)
    except OSError as error:
        raise RunError(
            f"the picture could not be written as {path}: {error.strerror or error}. Free some "
            "room or name another place with --plot"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return path


INSTALL = "pip install 'hotloop[plot]', or name a page, such as --plot curve.html"
"""What to do where matplotlib is missing."""


def _draw(axes: "Axes", curve: Curve) -> None:
    days = range(len(curve.middle))
    colour = _COLOURS.get(curve.shade, _COLOURS[0])
    if curve.has_band:
        axes.fill_between(days, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
    # A line through one day cannot be seen.
    axes.plot(days, curve.middle, color=colour, marker="o" if len(days) == 1 else "")
    if curve.observed is not None:
        axes.plot(days, curve.observed, "o", color=_COLOURS[1], markersize=4, label="observed")
        axes.legend(frameon=False)
    axes.set_ylabel(f"{curve.name} a day")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
