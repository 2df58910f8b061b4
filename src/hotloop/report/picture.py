"""Curves over steps as a picture file, drawn with matplotlib, which only this file needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.errors import RunError
from hotloop.loop.files import atomic_output
from hotloop.report.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The page's colours on paper, by number.
_COLOURS = ["#0072b2", "#d98c00", "#009e73", "#c84e00", "#4ba6dd"]
_COLOURS += ["#c46a9b", "#4b3b8f", "#84842a", "#7b4b2a", "#5f7f86"]


def write_picture(curves: Sequence[Curve], title: str, path: Path) -> Path:
    """Write the curves, one above the other, as a PNG; returns where.

    Raises: RunError if it cannot be written (a file that was there before stays as it was), or if
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
    axes[-1].set_xlabel(curves[-1].step)
    with atomic_output(path, "the picture could not be written", "--plot") as scratch:
        figure.savefig(scratch, format="png")
    return path


INSTALL = "pip install 'hotloop[plot]', or name a page, such as --plot curve.html"
"""What to do where matplotlib is missing."""


def _draw(axes: "Axes", curve: Curve) -> None:
    steps = range(len(curve.middle))
    colour = _COLOURS[curve.colour % len(_COLOURS)]
    if curve.has_band:
        axes.fill_between(steps, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
    # A line through one step cannot be seen.
    axes.plot(steps, curve.middle, color=colour, marker="o" if len(steps) == 1 else "")
    if curve.observed is not None:
        axes.plot(steps, curve.observed, "o", color=_COLOURS[1], markersize=4, label="observed")
        axes.legend(frameon=False)
    axes.set_ylabel(curve.title)
    if curve.is_count or min([0.0, *curve.low]) == 0.0:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
