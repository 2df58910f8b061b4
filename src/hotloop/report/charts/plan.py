"""Efficiency over the duration of a step: a line for each number of nodes, dots for what was
measured. The scale of durations is logarithmic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.numbers import percent, seconds

_HEIGHT = 300.0


@dataclass(frozen=True)
class Line:
    """The model for one number of nodes. efficiency: 0 to 1, at each duration of a step."""

    name: str
    colour: int
    step_s: Sequence[float]
    efficiency: Sequence[float]


@dataclass(frozen=True)
class Mark:
    """A measured point. name: its tooltip."""

    name: str
    step_s: float
    efficiency: float


def plan_chart(lines: Sequence[Line], marks: Sequence[Mark], *, width: float, name: str) -> Markup:
    """Efficiency over the duration of a step."""
    durations = [d for line in lines for d in line.step_s] + [mark.step_s for mark in marks]
    frame = _Frame(50.0, width - 14, 26.0, _HEIGHT - 44, min(durations), max(durations))
    parts = [*_axes(frame, width)]
    parts += [part for line in lines for part in _line(line, frame)]
    for mark in marks:
        x, y = frame.x(mark.step_s), frame.y(mark.efficiency)
        tip = svg.tooltip(f"{mark.name}, {percent(mark.efficiency)}")
        parts.append(svg.tag("circle", tip, cx=x, cy=y, r=4, class_="dot"))
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title="Efficiency over the duration of a step",
        description="; ".join(_described(line) for line in lines),
        look="plan",
    )


@dataclass(frozen=True)
class _Frame:
    """The box of the chart and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    low: float
    high: float

    def x(self, step_s: float) -> float:
        if self.high <= self.low:
            return (self.left + self.right) / 2
        part = math.log(step_s / self.low) / math.log(self.high / self.low)
        return self.left + 12 + part * (self.right - self.left - 24)

    def y(self, efficiency: float) -> float:
        return self.bottom - min(max(efficiency, 0.0), 1.0) * (self.bottom - self.top)


def _axes(frame: _Frame, width: float) -> list[Markup]:
    parts = [svg.text(0, 12, "efficiency", "m")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = frame.y(share)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid" if share else "axis"))
        parts.append(svg.text(frame.left - 6, y + 4, f"{share:.0%}", "m", anchor="end"))
    for step_s in _ticks(frame.low, frame.high):
        x = frame.x(step_s)
        parts.append(svg.line(x, frame.bottom, x, frame.bottom + 4, "axis"))
        parts.append(svg.text(x, frame.bottom + 17, seconds(step_s), "m", anchor="middle"))
    parts.append(svg.text(width - 14, _HEIGHT - 6, "duration of a step", "m", anchor="end"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high; low itself where there is none between them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [10.0**p for p in powers if low * 0.999 <= 10.0**p <= high * 1.001]
    return found or [low]


def _line(line: Line, frame: _Frame) -> list[Markup]:
    points = [(frame.x(d), frame.y(e)) for d, e in zip(line.step_s, line.efficiency, strict=True)]
    if len(points) == 1:
        ((x, y),) = points
        return [
            svg.tag("circle", svg.tooltip(line.name), cx=x, cy=y, r=4, class_=f"dot s{line.colour}")
        ]
    path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in points)
    return [svg.tag("path", svg.tooltip(line.name), d=path, class_=f"trace s{line.colour}")]


def _described(line: Line) -> str:
    ends = ((line.step_s[0], line.efficiency[0]), (line.step_s[-1], line.efficiency[-1]))
    return f"{line.name}: " + ", ".join(f"{percent(e)} at {seconds(d)}" for d, e in ends)
