"""The learning curve: mean greedy return over env steps, with the seconds along the top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.numbers import Form, number

_HEIGHT, _MOST_POINTS = 280.0, 120


@dataclass(frozen=True)
class LearningCurve:
    """A learning curve: entries (K,), one for each greedy evaluation."""

    env_steps: Sequence[float]
    seconds: Sequence[float]
    mean_return: Sequence[float]
    passed: Sequence[bool]
    threshold: float | None
    solved: bool  # by the last two entries
    unit: str


def learning_curve(curve: LearningCurve, *, width: float, name: str) -> Markup:
    """Mean greedy return over env steps; the evaluations that reached the threshold are marked."""
    frame = _frame(curve, width)
    parts = _frame_axes(curve, frame)
    label = []
    if curve.threshold is not None:
        y = frame.y(curve.threshold)
        parts.append(svg.line(frame.left, y, frame.right, y, "threshold"))
        label = [svg.text(frame.left + 6, y + 15, f"threshold {curve.threshold:g}", "m halo")]
    points = [
        (frame.x(step), frame.y(value))
        for step, value in zip(curve.env_steps, curve.mean_return, strict=True)
    ]
    if points:
        path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in points)
        parts += [svg.tag("path", d=path, class_="curve"), *_evaluations(curve, points)]
        description = (
            f"{len(points)} evaluations, from {curve.mean_return[0]:.4g} to {_reading(curve, -1)}"
        )
    else:
        description = "nothing was evaluated"
        parts.append(svg.text(width / 2, _HEIGHT / 2, description, "m", anchor="middle"))
    return svg.drawing(
        [*parts, *label],  # the curve may pass through the label
        width,
        _HEIGHT,
        name=name,
        title="Learning curve",
        description=description,
        look="learning",
    )


@dataclass(frozen=True)
class _Frame:
    """The box of a learning curve and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    last: float  # env steps at the right end
    low: float
    high: float
    marks: Sequence[float]

    def x(self, step: float) -> float:
        return self.left + step / self.last * (self.right - self.left)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.bottom - part * (self.bottom - self.top)


def _frame(curve: LearningCurve, width: float) -> _Frame:
    values = [0.0, *curve.mean_return, *([] if curve.threshold is None else [curve.threshold])]
    low, high = min(values), max(*values, min(values) + 1e-9)
    high += 0.06 * (high - low)
    marks = svg.ticks(low, high, 5)
    return _Frame(
        left=12 + max(svg.text_width(f"{mark:g}", svg.SMALL) for mark in marks),
        right=width - 14,
        top=42,
        bottom=_HEIGHT - 44,
        last=max([1.0, *curve.env_steps[-1:]]),
        low=low,
        high=high,
        marks=marks,
    )


def _frame_axes(curve: LearningCurve, frame: _Frame) -> list[Markup]:
    """Returns to the left, env steps below, seconds of training above."""
    parts = []
    about = 6 if frame.right > 500 else 4
    for mark in frame.marks:
        y = frame.y(mark)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid"))
        parts.append(svg.text(frame.left - 6, y + 4, f"{mark:g}", "m", anchor="end"))
    below = [(tick, frame.x(tick)) for tick in svg.ticks(0, frame.last, about)]
    parts += _axis_ticks(below, frame.bottom, 17, frame.right + 14, number)
    parts.append(svg.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    parts.append(svg.text(frame.right, _HEIGHT - 6, curve.unit, "m", anchor="end"))
    if curve.seconds and curve.seconds[-1] > 0:
        seconds, steps = [0.0, *curve.seconds], [0.0, *curve.env_steps]
        ticks = svg.ticks(0, seconds[-1], about)
        above = [(tick, frame.x(float(np.interp(tick, seconds, steps)))) for tick in ticks]
        parts += _axis_ticks(above, frame.top, -8, frame.right + 14, number)
        parts.append(svg.line(frame.left, frame.top, frame.right, frame.top, "axis"))
        parts.append(svg.text(frame.right, 12, "seconds of training", "m", anchor="end"))
    return parts


def _axis_ticks(
    ticks: Sequence[tuple[float, float]], y: float, offset: float, width: float, form: Form
) -> list[Markup]:
    """Ticks with their labels; a tick whose label would touch its neighbour is left out."""
    parts: list[Markup] = []
    free_from = -math.inf
    for value, x in ticks:
        shown = form(value) if value else "0"
        wide = svg.text_width(shown, svg.SMALL)
        centre = min(x, width - wide / 2)
        if centre - wide / 2 < free_from:
            continue
        free_from = centre + wide / 2 + 8
        parts.append(svg.line(x, y, x, y + math.copysign(4, offset), "axis"))
        parts.append(svg.text(centre, y + offset, shown, "m", anchor="middle"))
    return parts


def _evaluations(curve: LearningCurve, points: Sequence[tuple[float, float]]) -> list[Markup]:
    """A point for each evaluation; the two that solved it are larger."""
    parts = []
    for k, (x, y) in enumerate(points):
        solving = curve.solved and k >= len(points) - 2
        if not solving and len(points) > _MOST_POINTS:
            continue  # the line is all that can be seen
        look = "pass" if solving else "passed" if curve.passed[k] else "point"
        radius = 5 if solving else 2.5
        parts.append(
            svg.tag("circle", svg.tooltip(_reading(curve, k)), cx=x, cy=y, r=radius, class_=look)
        )
    return parts


def _reading(curve: LearningCurve, k: int) -> str:
    steps, taken = int(curve.env_steps[k]), curve.seconds[k]
    return f"{curve.mean_return[k]:.4g} after {steps:,} {curve.unit}, {taken:.3g} s"
