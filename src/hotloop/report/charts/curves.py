"""A curve over steps with its band, and the observed values where there are some.

`curve_chart` draws it for the page, as SVG; `characters` for the terminal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.curves import Curve
from hotloop.report.numbers import number

_HEIGHT, _MOST_POINTS = 240.0, 120
# Of the terminal's chart, in characters.
_ROWS, _WIDEST = 10, 64
_MIDDLE_TOP, _MIDDLE_LOW, _MIDDLE_BOTH, _BAND, _SEEN = "▀", "▄", "█", "░", "o"


def curve_chart(curve: Curve, *, width: float, name: str) -> Markup:
    """One curve for the page. name: unique on the page."""
    frame = _frame(curve, width)
    parts = _axes(frame, curve.step)
    steps = range(len(curve.middle))
    points = [(frame.x(k), frame.y(value)) for k, value in zip(steps, curve.middle, strict=True)]
    if curve.has_band:
        above = [f"{svg.px(frame.x(k))} {svg.px(frame.y(curve.high[k]))}" for k in steps]
        below = [f"{svg.px(frame.x(k))} {svg.px(frame.y(curve.low[k]))}" for k in reversed(steps)]
        path = "M" + "L".join([*above, *below]) + "Z"
        parts.append(svg.tag("path", d=path, class_=f"s{curve.colour} share"))
    if points:
        path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in points)
        parts.append(svg.tag("path", d=path, class_=f"trace s{curve.colour}"))
    if len(points) <= _MOST_POINTS:
        for k, (x, y) in enumerate(points):
            shown = svg.tooltip(f"{curve.step} {k}: {curve.at(k)} {curve.name}")
            parts.append(svg.tag("circle", shown, cx=x, cy=y, r=2.5, class_=f"dot s{curve.colour}"))
    for k, value in enumerate(curve.observed or ()):
        shown = svg.tooltip(f"{curve.step} {k}: {curve.single(value)} {curve.name} observed")
        mark = svg.tag("circle", shown, cx=frame.x(k), cy=frame.y(value), r=3.5, class_="dot s1")
        parts.append(mark)
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title=f"{curve.name} by {curve.step}",
        description=_description(curve),
        look="curves",
    )


@dataclass(frozen=True)
class Cell:
    """One character of a chart in the terminal, and what it shows: its style's name."""

    char: str
    of: str  # "middle", "band", "observed" or ""


@dataclass(frozen=True)
class Characters:
    """A chart as rows of characters, the first on top, and the values at its two edges."""

    rows: list[list[Cell]]
    low: float
    high: float


def characters(curve: Curve, *, width: int = _WIDEST) -> Characters:
    """One curve as characters.

    width: the most columns there are room for; steps share columns, or take several each.
    """
    bottom, top = _edges(curve)
    steps = len(curve.middle)
    columns = _columns(steps, width)
    rows = [[Cell(" ", "") for _ in range(columns)] for _ in range(_ROWS)]
    chart = Characters(rows, bottom, top)
    if not steps:
        return chart
    at = np.linspace(0, steps - 1, columns)
    middle, low, high = (
        (np.interp(at, range(steps), values) - bottom) / (top - bottom) * 2 * _ROWS
        for values in (curve.middle, curve.low, curve.high)
    )
    before = _half(middle[0])
    for column in range(columns):
        now = _half(middle[column])
        # Down or up to where the line was, so that it is one line.
        filled = range(min(now, before + 1), max(now, before - 1) + 1) if now != before else [now]
        for row in range(_ROWS):
            upper, lower = 2 * (_ROWS - row) - 1, 2 * (_ROWS - row) - 2
            halves = (upper in filled, lower in filled)
            if any(halves):
                char = _MIDDLE_BOTH if all(halves) else _MIDDLE_TOP if halves[0] else _MIDDLE_LOW
                rows[row][column] = Cell(char, "middle")
            elif low[column] < upper + 1 and high[column] > lower:
                rows[row][column] = Cell(_BAND, "band")
        before = now
    for k, value in enumerate(curve.observed or ()):
        column = round(k / max(steps - 1, 1) * (columns - 1))
        row = _ROWS - 1 - _half((value - bottom) / (top - bottom) * 2 * _ROWS) // 2
        rows[row][column] = Cell(_SEEN, "observed")
    return chart


def _columns(steps: int, width: int) -> int:
    """As many columns for each step as fit, at most four."""
    width = max(2, min(width, _WIDEST))
    if steps < 2:
        return 2
    each = min(4, (width - 1) // (steps - 1))
    return each * (steps - 1) + 1 if each else width


def _half(height: float) -> int:
    return min(2 * _ROWS - 1, max(0, math.floor(height)))


def _edges(curve: Curve) -> tuple[float, float]:
    """Round numbers below and above the whole curve; the lower one is zero if nothing is below."""
    values = [*curve.middle, *curve.low, *curve.high, *(curve.observed or ())]
    least, most = min(values, default=0.0), max(values, default=0.0)
    if curve.is_count:  # the band of a mean may reach below zero, but no count is there
        return 0.0, _round_up(max(most, 1.0))
    low = -_round_up(-least) if least < 0 else 0.0
    high = _round_up(most) if most > 0 else 0.0
    return low, high if high > low else low + 1.0


def _round_up(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * k for k in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * k >= value)


@dataclass(frozen=True)
class _Frame:
    """The box of a chart and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    last: int  # the step at the right end
    low: float
    high: float
    marks: Sequence[float]

    def x(self, step: float) -> float:
        return self.left + step / max(self.last, 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.bottom - part * (self.bottom - self.top)


def _frame(curve: Curve, width: float) -> _Frame:
    low, high = _edges(curve)
    marks = svg.ticks(low, high, 4)
    return _Frame(
        left=14 + max(svg.text_width(_shown(mark), svg.SMALL) for mark in marks),
        right=width - 14,
        top=14,
        bottom=_HEIGHT - 42,
        last=len(curve.middle) - 1,
        low=low,
        high=high,
        marks=marks,
    )


def _axes(frame: _Frame, step: str) -> list[Markup]:
    parts = []
    for mark in frame.marks:
        y = frame.y(mark)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid" if mark else "axis"))
        parts.append(svg.text(frame.left - 6, y + 4, _shown(mark), "m", anchor="end"))
    about = 10 if frame.right > 500 else 5
    for tick in svg.ticks(0, max(frame.last, 1), about):
        if tick == int(tick) and tick <= frame.last:
            x = frame.x(tick)
            parts.append(svg.line(x, frame.bottom, x, frame.bottom + 4, "axis"))
            parts.append(svg.text(x, frame.bottom + 17, f"{tick:g}", "m", anchor="middle"))
    parts.append(svg.text(frame.right, _HEIGHT - 6, step, "m", anchor="end"))
    return parts


def _shown(mark: float) -> str:
    return number(mark) if mark else "0"


def _description(curve: Curve) -> str:
    if not curve.middle:
        return "nothing was simulated"
    best, last = int(np.argmax(curve.middle)), len(curve.middle) - 1
    first, most, end = (f"{curve.at(k)} on {curve.step} {k}" for k in (0, best, last))
    return f"{first}, at most {most}, {end}"
