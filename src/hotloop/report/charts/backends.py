"""Env steps per second over the number of workers: a line for each backend, with intervals.

Both scales are logarithmic: equal distances are equal factors, and where twice the workers are
twice as fast, a line is straight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.loop.figures import Interval
from hotloop.report.charts import svg
from hotloop.report.numbers import interval, number

_HEIGHT = 300.0
_COLUMN = 74.0  # px, left of one worker: variants without workers


@dataclass(frozen=True)
class Mark:
    """One variant. num_workers: None for one without worker processes."""

    name: str
    num_workers: int | None
    sps: Interval
    best: bool


@dataclass(frozen=True)
class Series:
    """The variants on one line, by their number of workers. colour: its number."""

    name: str
    colour: int
    marks: Sequence[Mark]


def backends_chart(series: Sequence[Series], *, width: float, name: str) -> Markup:
    """Env steps per second over workers; the best variant is larger, with its rate."""
    marks = [mark for each in series for mark in each.marks]
    if not marks:
        parts = [svg.text(width / 2, _HEIGHT / 2, "nothing was measured", "m", anchor="middle")]
        description = "nothing was measured"
    else:
        frame = _frame(marks, width)
        parts = _axes(frame)
        parts += [part for each in series for part in _line(each, frame)]
        parts += [part for each in series for part in _dots(each, frame)]
        description = "; ".join(f"{mark.name}: {number(mark.sps.value)}" for mark in marks)
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title="Env steps per second over workers",
        description=description,
        look="backends",
    )


@dataclass(frozen=True)
class _Frame:
    """The box of the chart and its two scales. column: x of variants without workers."""

    left: float
    column: float | None
    first: float  # x of one worker
    right: float
    top: float
    bottom: float
    numbers: Sequence[int]
    low: float
    high: float
    ticks: Sequence[float]

    def x(self, num_workers: int | None) -> float:
        if num_workers is None:
            return self.column or self.first
        doublings = math.log2(self.numbers[-1])
        part = math.log2(num_workers) / doublings if doublings else 0.0
        return self.first + part * (self.right - self.first - 18)

    def y(self, sps: float) -> float:
        part = math.log(max(sps, self.low) / self.low) / math.log(self.high / self.low)
        return self.bottom - min(part, 1.0) * (self.bottom - self.top)


def _frame(marks: Sequence[Mark], width: float) -> _Frame:
    values = [mark.sps.value for mark in marks]
    ends = [end for m in marks for end in (m.sps.low, m.sps.high) if math.isfinite(end) and end > 0]
    # An interval that reaches down to zero is cut: it would leave no room for the rest.
    low = max(min([*values, *ends]), min(values) / 3) / 1.15
    high = max([*values, *ends]) * 1.25
    ticks = _round_numbers(low, high)
    left = 14 + max(svg.text_width(number(tick), svg.SMALL) for tick in ticks)
    numbers = sorted({mark.num_workers for mark in marks if mark.num_workers is not None})
    apart = any(mark.num_workers is None for mark in marks)
    return _Frame(
        left=left,
        column=left + 28 if apart else None,
        first=left + (_COLUMN + 14 if apart else 18),
        right=width - 14,
        top=26,
        bottom=_HEIGHT - 44,
        numbers=numbers,
        low=low,
        high=high,
        ticks=ticks,
    )


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from low to high; powers alone where those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [k * 10.0**p for p in powers for k in factors if low <= k * 10.0**p <= high]
        if len(found) <= 8:
            break
    return found or [low]


def _axes(frame: _Frame) -> list[Markup]:
    parts = [svg.text(0, 12, "env steps per second", "m")]
    for tick in frame.ticks:
        y = frame.y(tick)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid"))
        parts.append(svg.text(frame.left - 6, y + 4, number(tick), "m", anchor="end"))
    parts.append(svg.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    if frame.column is not None:
        parts.append(svg.text(frame.column, frame.bottom + 17, "none", "m", anchor="middle"))
    free_from = -math.inf
    for count in frame.numbers:
        x, half = frame.x(count), svg.text_width(str(count), svg.SMALL) / 2
        if x - half < free_from:
            continue
        free_from = x + half + 8
        parts.append(svg.line(x, frame.bottom, x, frame.bottom + 4, "axis"))
        parts.append(svg.text(x, frame.bottom + 17, str(count), "m", anchor="middle"))
    parts.append(svg.text(frame.right, _HEIGHT - 6, "workers", "m", anchor="end"))
    return parts


def _line(series: Series, frame: _Frame) -> list[Markup]:
    points = [
        (frame.x(mark.num_workers), frame.y(mark.sps.value))
        for mark in series.marks
        if mark.num_workers is not None
    ]
    if len(points) < 2:
        return []
    path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in points)
    return [svg.tag("path", d=path, class_=f"trace s{series.colour}")]


def _dots(series: Series, frame: _Frame) -> list[Markup]:
    parts = []
    for mark in series.marks:
        x, y = frame.x(mark.num_workers), frame.y(mark.sps.value)
        parts += _upright(mark.sps, x, frame)
        tip = svg.tooltip(f"{mark.name}: {interval(mark.sps)} env steps per second")
        look = "pass" if mark.best else f"dot s{series.colour}"
        parts.append(svg.tag("circle", tip, cx=x, cy=y, r=6 if mark.best else 4, class_=look))
        if mark.best:
            shown = f"best: {number(mark.sps.value)}"
            fits = x + 10 + svg.text_width(shown, svg.TEXT) <= frame.right + 14
            side = ("start", x + 10) if fits else ("end", x - 10)
            parts.append(svg.text(side[1], y - 8, shown, "b halo", anchor=side[0]))
    return parts


def _upright(sps: Interval, x: float, frame: _Frame) -> list[Markup]:
    """An interval as an upright whisker; nothing where it is too short or has no end."""
    if not (math.isfinite(sps.low) and math.isfinite(sps.high)):
        return []
    low, high = frame.y(sps.low), frame.y(sps.high)
    if low - high < 0.2:
        return []
    path = f"M{svg.px(x)} {svg.px(low)}V{svg.px(high)}"
    for end in (low, high):
        path += f"M{svg.px(x - 4)} {svg.px(end)}h8"
    return [svg.tag("path", d=path, class_=c) for c in ("halo whisker", "whisker")]
