"""Predictions beside what became of them: one point a try, and the line on which both are equal."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.repeat.entries import Metric
from hotloop.repeat.tries import Prediction
from hotloop.report.charts import svg
from hotloop.report.numbers import percent

_SIZE = 320.0  # of the square, at most
_TICK = 4.0  # half the width of a whisker's end


@dataclass(frozen=True)
class _Frame:
    """A square with one scale for both axes: predicted to the right, achieved upwards."""

    left: float
    top: float
    size: float
    low: float
    high: float

    def x(self, gain: float) -> float:
        return self.left + self._part(gain) * self.size

    def y(self, gain: float) -> float:
        return self.top + (1 - self._part(gain)) * self.size

    def _part(self, gain: float) -> float:
        return (min(max(gain, self.low), self.high) - self.low) / (self.high - self.low)


def calibration_chart(predictions: Sequence[Prediction], *, width: float, name: str) -> Markup:
    """Achieved over predicted gains, both as shares of the time, with their whiskers."""
    frame = _frame(predictions, width)
    parts = _axes(frame)
    low, high = frame.low, frame.high
    parts.append(svg.line(frame.x(low), frame.y(low), frame.x(high), frame.y(high), "worth"))
    for each in predictions:
        parts += _whiskers(frame, each)
        reading = (
            f"{each.number} {each.hypothesis}: predicted {percent(each.predicted.value)}, "
            f"achieved {percent(each.achieved.value)}"
        )
        at = {"cx": frame.x(each.predicted.value), "cy": frame.y(each.achieved.value), "r": 4.5}
        look = "pass" if each.held else "point"
        parts.append(svg.tag("circle", svg.tooltip(reading), **at, class_=look))
    held = sum(bool(each.held) for each in predictions)
    return svg.drawing(
        parts,
        width,
        frame.top + frame.size + 44,
        name=name,
        title="How predictions came true",
        description=f"{len(predictions)} predictions, {held} within the interval of what was "
        "achieved",
        look="calibration",
    )


def _frame(predictions: Sequence[Prediction], width: float) -> _Frame:
    shown = [0.0]
    for each in predictions:
        shown += [each.predicted.value, each.achieved.value]
        # A wide interval must not press all points into a corner: beyond its end it is cut.
        shown += [end for end in _ends(each.achieved) if -1 <= end <= 1]
    low, high = min(shown), max(*shown, min(shown) + 0.01)
    edge = 0.06 * (high - low)
    left = 62.0
    return _Frame(left, 12.0, min(_SIZE, width - left - 20), low - edge, high + edge)


def _axes(frame: _Frame) -> list[Markup]:
    parts = []
    bottom, right = frame.top + frame.size, frame.left + frame.size
    for mark in svg.ticks(frame.low, frame.high, 5):
        x, y = frame.x(mark), frame.y(mark)
        look = "grid" if mark else "axis"
        parts.append(svg.line(frame.left, y, right, y, look))
        parts.append(svg.line(x, frame.top, x, bottom, look))
        parts.append(svg.text(frame.left - 6, y + 4, percent(mark), "m", anchor="end"))
        parts.append(svg.text(x, bottom + 17, percent(mark), "m", anchor="middle"))
    parts.append(svg.text(right, bottom + 36, "predicted gain", "m", anchor="end"))
    parts.append(svg.text(frame.left + 6, frame.top + 10, "achieved gain", "m halo"))
    return parts


def _whiskers(frame: _Frame, each: Prediction) -> list[Markup]:
    """The interval of what was achieved, upright, and that of the prediction, if it has one."""
    parts: list[Markup] = []
    x, y = frame.x(each.predicted.value), frame.y(each.achieved.value)
    if ends := _ends(each.achieved):
        low, high = (svg.px(frame.y(end)) for end in ends)
        tick = f"{svg.px(x - _TICK)} {{}}h{svg.px(2 * _TICK)}"
        path = f"M{svg.px(x)} {low}V{high}M{tick.format(low)}M{tick.format(high)}"
        parts.append(svg.tag("path", d=path, class_="whisker"))
    if ends := _ends(each.predicted):
        parts += svg.whisker(frame.x(ends[0]), frame.x(ends[1]), y)
    return parts


def _ends(gain: Metric) -> tuple[float, ...]:
    return () if gain.low is None or gain.high is None else (gain.low, gain.high)
