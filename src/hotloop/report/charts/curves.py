"""A curve by day with its band, and the observed counts where there are some.

`curve_chart` draws for the page, as SVG; `drawn` for the terminal, in characters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.curves import Curve, count, counts, on_day
from hotloop.report.numbers import number

_HEIGHT, _MOST_POINTS = 240.0, 120
# Of the terminal's chart, in characters.
_ROWS, _WIDEST = 10, 64
_MIDDLE_TOP, _MIDDLE_LOW, _MIDDLE_BOTH, _BAND, _SEEN = "▀", "▄", "█", "░", "o"


def curve_chart(curve: Curve, *, width: float, name: str, along: str = "day") -> Markup:
    """One curve for the page. name: unique on the page; along: what the horizontal axis counts."""
    frame = _frame(curve, width)
    parts = _axes(frame, along)
    days = range(len(curve.middle))
    there = [(frame.x(day), frame.y(value)) for day, value in zip(days, curve.middle, strict=True)]
    if curve.has_band:
        above = [f"{svg.px(frame.x(d))} {svg.px(frame.y(curve.high[d]))}" for d in days]
        below = [f"{svg.px(frame.x(d))} {svg.px(frame.y(curve.low[d]))}" for d in reversed(days)]
        path = "M" + "L".join([*above, *below]) + "Z"
        parts.append(svg.tag("path", d=path, class_=f"s{curve.shade} share"))
    if there:
        path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in there)
        parts.append(svg.tag("path", d=path, class_=f"trace s{curve.shade}"))
    if len(there) <= _MOST_POINTS:
        for day, (x, y) in enumerate(there):
            told = svg.tooltip(f"{along} {day}: {counts(on_day(curve, day))} {curve.name}")
            parts.append(svg.tag("circle", told, cx=x, cy=y, r=2.5, class_=f"dot s{curve.shade}"))
    for day, value in enumerate(curve.observed or ()):
        told = svg.tooltip(f"{along} {day}: {count(value)} {curve.name} observed")
        mark = svg.tag("circle", told, cx=frame.x(day), cy=frame.y(value), r=3.5, class_="dot s1")
        parts.append(mark)
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title=f"{curve.name} by {along}",
        description=_spoken(curve, along),
        shade="curves",
    )


@dataclass(frozen=True)
class Cell:
    """One character of a chart in the terminal, and what it shows: its style's name."""

    char: str
    of: str  # "middle", "band", "observed" or ""


def drawn(curve: Curve, *, width: int = _WIDEST) -> tuple[list[list[Cell]], float]:
    """One curve as rows of characters, the first on top, and the value at its upper edge.

    width: the most columns there are room for; days share columns, or take several each.
    """
    top = _top(curve)
    days = len(curve.middle)
    columns = _columns(days, width)
    rows = [[Cell(" ", "") for _ in range(columns)] for _ in range(_ROWS)]
    if not days:
        return rows, top
    at = np.linspace(0, days - 1, columns)
    middle, low, high = (
        np.interp(at, range(days), values) / top * 2 * _ROWS
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
                char = {(True, True): _MIDDLE_BOTH, (True, False): _MIDDLE_TOP}.get(
                    halves, _MIDDLE_LOW
                )
                rows[row][column] = Cell(char, "middle")
            elif low[column] < upper + 1 and high[column] > lower:
                rows[row][column] = Cell(_BAND, "band")
        before = now
    for day, value in enumerate(curve.observed or ()):
        column = round(day / max(days - 1, 1) * (columns - 1))
        row = _ROWS - 1 - _half(value / top * 2 * _ROWS) // 2
        rows[row][column] = Cell(_SEEN, "observed")
    return rows, top


def _columns(days: int, width: int) -> int:
    """As many columns for each day as fit, at most four."""
    width = max(2, min(width, _WIDEST))
    if days < 2:
        return 2
    each = min(4, (width - 1) // (days - 1))
    return each * (days - 1) + 1 if each else width


def _half(height: float) -> int:
    return min(2 * _ROWS - 1, max(0, math.floor(height)))


def _top(curve: Curve) -> float:
    """A round number that nothing of the curve is above."""
    most = max([1.0, *curve.middle, *curve.high, *(curve.observed or ())])
    size = 10.0 ** math.floor(math.log10(most))
    return next(size * k for k in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * k >= most)


@dataclass(frozen=True)
class _Frame:
    """The box of a chart and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    last: int  # the day at the right end
    high: float
    marks: Sequence[float]

    def x(self, day: float) -> float:
        return self.left + day / max(self.last, 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - value / self.high * (self.bottom - self.top)


def _frame(curve: Curve, width: float) -> _Frame:
    high = _top(curve)
    marks = svg.ticks(0.0, high, 4)
    return _Frame(
        left=14 + max(svg.text_width(_shown(mark), svg.SMALL) for mark in marks),
        right=width - 14,
        top=14,
        bottom=_HEIGHT - 42,
        last=len(curve.middle) - 1,
        high=high,
        marks=marks,
    )


def _axes(frame: _Frame, along: str) -> list[Markup]:
    parts = []
    for mark in frame.marks:
        y = frame.y(mark)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid" if mark else "axis"))
        parts.append(svg.text(frame.left - 6, y + 4, _shown(mark), "m", anchor="end"))
    about = 10 if frame.right > 500 else 5
    for day in svg.ticks(0, max(frame.last, 1), about):
        if day == int(day) and day <= frame.last:
            x = frame.x(day)
            parts.append(svg.line(x, frame.bottom, x, frame.bottom + 4, "axis"))
            parts.append(svg.text(x, frame.bottom + 17, f"{day:g}", "m", anchor="middle"))
    parts.append(svg.text(frame.right, _HEIGHT - 6, along, "m", anchor="end"))
    return parts


def _shown(mark: float) -> str:
    return number(mark) if mark else "0"


def _spoken(curve: Curve, along: str) -> str:
    if not curve.middle:
        return "nothing was simulated"
    best, last = int(np.argmax(curve.middle)), len(curve.middle) - 1
    told = [f"{counts(on_day(curve, k))} on {along} {k}" for k in (0, best, last)]
    return f"{told[0]}, at most {told[1]}, {told[2]}"
