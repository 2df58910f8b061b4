"""A roofline: what stages and operations achieve, below what the machine allows at their intensity.

Both scales are logarithmic. The roof rises with the FLOPs for each byte as long as memory is the
limit, and is level where arithmetic is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.benchmark.peaks import Peaks
from hotloop.profile.model_costs import Cost, ModelProfile
from hotloop.report.charts import svg
from hotloop.report.numbers import number, percent
from hotloop.report.section import ChartView

_HEIGHT = 320.0
_MOST_OPERATIONS = 15
_STAGE, _OPERATION = 6.0, 3.5  # radii in px


@dataclass(frozen=True)
class Point:
    """A stage or an operation. stage: which colour it has."""

    name: str
    stage: str
    cost: Cost
    is_stage: bool


def roofline_views(key: str, found: ModelProfile, colours: Mapping[str, int]) -> list[ChartView]:
    """The roofline in both widths; none where nothing that was counted computes."""
    points = _points(found)
    if not points:
        return []
    return [
        ChartView(
            "Roofline",
            "Large dots are stages, small ones their operations that take the most. The line is "
            "what the machine allows: further right, more is computed with each byte.",
            [_drawn(key, points, found.peaks, width, colours) for width in (svg.WIDE, svg.NARROW)],
            legend=[(p.name, colours.get(p.stage, 0)) for p in points if p.is_stage],
            notes=["Above the slope is what comes out of a cache, not out of memory."],
        )
    ]


def _points(found: ModelProfile) -> list[Point]:
    """What computes; operations first, so that stages are drawn above them."""
    operations = [
        Point(f"{each.stage}, {each.operation}", each.stage, each.cost, False)
        for each in found.operations[:_MOST_OPERATIONS]
    ]
    stages = [Point(each.stage, each.stage, each.cost, True) for each in found.stages]
    return [
        point
        for point in (*operations, *stages)
        if point.cost.intensity > 0 and point.cost.flops_per_s > 0
    ]


@dataclass(frozen=True)
class _Frame:
    """The box of the chart and its two scales, whose ends are powers of ten."""

    left: float
    right: float
    top: float
    bottom: float
    x_ends: tuple[int, int]
    y_ends: tuple[int, int]

    def x(self, intensity: float) -> float:
        return self.left + _part(intensity, self.x_ends) * (self.right - self.left)

    def y(self, flops_per_s: float) -> float:
        return self.bottom - _part(flops_per_s, self.y_ends) * (self.bottom - self.top)


def _part(value: float, ends: tuple[int, int]) -> float:
    return (math.log10(value) - ends[0]) / (ends[1] - ends[0])


def _ends(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _drawn(
    key: str, points: Sequence[Point], peaks: Peaks, width: float, colours: Mapping[str, int]
) -> Markup:
    ridge = peaks.flops_per_s / peaks.bytes_per_s
    x_ends = _ends([*(p.cost.intensity for p in points), ridge / 4, ridge * 4])
    lowest_roof = min(10.0 ** x_ends[0] * peaks.bytes_per_s, peaks.flops_per_s)
    y_ends = _ends([*(p.cost.flops_per_s for p in points), peaks.flops_per_s * 1.2, lowest_roof])
    frame = _Frame(58.0, width - 14, 26.0, _HEIGHT - 44, x_ends, y_ends)
    parts = [*_axes(frame), _roof(frame, peaks, ridge)]
    for point in points:
        parts += _dot(point, frame, peaks, colours)
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=f"{key}-roofline-{round(width)}",
        title="Roofline",
        description="; ".join(_described(point, peaks) for point in points if point.is_stage),
        look="roofline",
    )


def _axes(frame: _Frame) -> Iterator[Markup]:
    yield svg.text(0, 12, "FLOP/s", "m")
    for power in range(frame.y_ends[0], frame.y_ends[1] + 1):
        y = frame.y(10.0**power)
        yield svg.line(frame.left, y, frame.right, y, "grid")
        yield svg.text(frame.left - 6, y + 4, number(10.0**power), "m", anchor="end")
    for power in range(frame.x_ends[0], frame.x_ends[1] + 1):
        x = frame.x(10.0**power)
        yield svg.line(x, frame.bottom, x, frame.bottom + 4, "axis")
        yield svg.text(x, frame.bottom + 17, f"{10.0**power:g}", "m", anchor="middle")
    yield svg.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis")
    yield svg.text(frame.right, _HEIGHT - 6, "FLOPs for each byte", "m", anchor="end")


def _roof(frame: _Frame, peaks: Peaks, ridge: float) -> Markup:
    lowest = 10.0 ** frame.x_ends[0]
    corners = [(lowest, lowest * peaks.bytes_per_s), (ridge, peaks.flops_per_s)]
    corners.append((10.0 ** frame.x_ends[1], peaks.flops_per_s))
    path = "M" + "L".join(f"{svg.px(frame.x(x))} {svg.px(frame.y(y))}" for x, y in corners)
    return svg.tag("path", svg.tooltip(peaks.how), d=path, class_="curve")


def _dot(point: Point, frame: _Frame, peaks: Peaks, colours: Mapping[str, int]) -> Iterator[Markup]:
    x, y = frame.x(point.cost.intensity), frame.y(point.cost.flops_per_s)
    yield svg.tag(
        "circle",
        svg.tooltip(_described(point, peaks)),
        cx=x,
        cy=y,
        r=_STAGE if point.is_stage else _OPERATION,
        class_=f"dot {svg.stage_class(point.stage, colours)}",
    )
    if point.is_stage:
        at_right = x + 10 + svg.text_width(point.name, svg.SMALL) > frame.right
        anchor = "end" if at_right else "start"
        yield svg.text(x - 10 if at_right else x + 10, y + 4, point.name, "m halo", anchor)


def _described(point: Point, peaks: Peaks) -> str:
    share = point.cost.share_of_roof(peaks)
    return (
        f"{point.name}: {number(point.cost.flops_per_s)} FLOP/s at "
        f"{number(point.cost.intensity)} FLOPs for each byte"
        + (f", {percent(share)} of the roof" if share is not None else "")
    )
