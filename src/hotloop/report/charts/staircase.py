"""The staircase: the rate after each try, and a line that follows those which were kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.repeat.tries import Staircase, Step
from hotloop.report.charts import svg
from hotloop.report.numbers import number, percent

_HEIGHT = 260.0


@dataclass(frozen=True)
class _Frame:
    """The box of the chart: tries from left to right, rates upwards from 0."""

    left: float
    right: float
    top: float
    bottom: float
    tries: int
    high: float
    marks: Sequence[float]

    def x(self, place: float) -> float:
        """Where a try stands; the start is at place 0."""
        return self.left + (place + 0.5) / (self.tries + 1) * (self.right - self.left)

    def y(self, rate: float) -> float:
        return self.bottom - rate / self.high * (self.bottom - self.top)


def staircase_chart(stairs: Staircase, *, width: float, name: str) -> Markup:
    """The rate over the tries; a try whose rate is not known is left out."""
    rates = [step.rate.value for step in stairs.steps if step.rate is not None]
    if stairs.rate is None or not rates:
        return _nothing(width, name)
    frame = _frame([stairs.rate.value, *rates], len(stairs.steps), width)
    unit = stairs.rate.unit
    parts = [*_axes(frame, unit, width), _line(stairs, frame)]
    start = f"the start: {number(stairs.rate.value)} {unit}"
    parts.append(_point(frame, 0, stairs.rate.value, "point", start))
    for place, step in enumerate(stairs.steps, 1):
        if step.rate is not None:
            look = "pass" if step.kept else "hollow"
            parts.append(_point(frame, place, step.rate.value, look, _reading(stairs, step)))
    kept = sum(step.kept for step in stairs.steps)
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title="The staircase",
        description=f"{len(stairs.steps)} tries, {kept} kept, from {number(stairs.rate.value)} to "
        f"{number(_level(stairs))} {unit}",
        look="staircase",
    )


def _frame(rates: Sequence[float], tries: int, width: float) -> _Frame:
    high = max(rates) * 1.08
    marks = svg.ticks(0, high, 5)
    return _Frame(
        left=12 + max(svg.text_width(number(mark) if mark else "0", svg.SMALL) for mark in marks),
        right=width - 14,
        top=24,
        bottom=_HEIGHT - 40,
        tries=tries,
        high=high,
        marks=marks,
    )


def _axes(frame: _Frame, unit: str, width: float) -> list[Markup]:
    parts = [svg.text(frame.left, 12, unit, "m")]
    for mark in frame.marks:
        y = frame.y(mark)
        parts.append(svg.line(frame.left, y, frame.right, y, "grid" if mark else "axis"))
        parts.append(
            svg.text(frame.left - 6, y + 4, number(mark) if mark else "0", "m", anchor="end")
        )
    # As many numbers as have room.
    every = -(-(frame.tries + 1) * 28 // int(frame.right - frame.left))
    for place in range(0, frame.tries + 1, max(1, every)):
        label = str(place) if place else "start"
        parts.append(svg.text(frame.x(place), frame.bottom + 17, label, "m", anchor="middle"))
    parts.append(svg.text(width - 14, _HEIGHT - 6, "tries", "m", anchor="end"))
    return parts


def _line(stairs: Staircase, frame: _Frame) -> Markup:
    """Level from one kept try to the next, then up or down to its rate."""
    assert stairs.rate is not None
    path = f"M{svg.px(frame.x(-0.4))} {svg.px(frame.y(stairs.rate.value))}"
    for place, step in enumerate(stairs.steps, 1):
        if step.kept and step.rate is not None:
            path += f"H{svg.px(frame.x(place))}V{svg.px(frame.y(step.rate.value))}"
    return svg.tag("path", d=f"{path}H{svg.px(frame.right)}", class_="curve")


def _point(frame: _Frame, place: int, rate: float, look: str, reading: str) -> Markup:
    circle = {"cx": frame.x(place), "cy": frame.y(rate), "r": 4.5}
    return svg.tag("circle", svg.tooltip(reading), **circle, class_=look)


def _reading(stairs: Staircase, step: Step) -> str:
    assert step.rate is not None
    gain = "" if step.achieved is None else f", saves {percent(step.achieved.value)}"
    cost = "" if step.cost is None else f", {number(step.cost)} for {stairs.cost_of}"
    rate = f"{number(step.rate.value)} {step.rate.unit}"
    decision = "kept" if step.kept else "reverted"
    return f"{step.number} {step.hypothesis}: {rate}{gain}{cost}; {decision}"


def _level(stairs: Staircase) -> float:
    """The rate after the last try that was kept."""
    kept = [step.rate.value for step in stairs.steps if step.kept and step.rate is not None]
    assert stairs.rate is not None
    return kept[-1] if kept else stairs.rate.value


def _nothing(width: float, name: str) -> Markup:
    words = "no rate was measured"
    return svg.drawing(
        [svg.text(width / 2, 30, words, "m", anchor="middle")],
        width,
        50,
        name=name,
        title="The staircase",
        description=words,
        look="staircase",
    )
