"""The looks of a comparison: how the interval of the slowdown became narrow enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.repeat.estimate import Look
from hotloop.report.charts import svg

_ROW, _TOP, _BELOW = 22, 24, 34
_MOST_ROWS = 10
_LABEL = 92  # px, for the launches at the left


def looks_chart(
    looks: Sequence[Look],
    ratios: Sequence[float],
    limits: Sequence[float],
    *,
    width: float,
    name: str,
) -> Markup:
    """One interval for each look, the last one at the bottom, above a point for each launch.

    ratios: the slowdown of each launch alone; limits: slowdowns that the answer depends on.
    """
    shown = [looks[k] for k in _spaced(len(looks), _MOST_ROWS)]
    scale = _Scale.around([*limits, 0.0, shown[-1].slowdown.low, shown[-1].slowdown.high], width)
    bottom = _TOP + _ROW * (len(shown) + 1)
    parts = [
        svg.text(scale.x(tick), bottom + 16, f"{100 * tick:+g}%", "m", anchor="middle")
        for tick in svg.ticks(scale.low, scale.high, 6 if width > 500 else 4)
    ]
    parts += [svg.line(scale.x(each), _TOP - 8, scale.x(each), bottom, "grid") for each in limits]
    parts.append(svg.line(scale.x(0.0), _TOP - 8, scale.x(0.0), bottom, "axis"))
    for row, look in enumerate(shown):
        parts += _interval(look, scale, _TOP + _ROW * row + _ROW / 2)
    parts += _launches(ratios, scale, bottom - _ROW / 2)
    return svg.drawing(
        parts,
        width,
        bottom + _BELOW,
        name=name,
        title="The slowdown after each look",
        description="Intervals of the slowdown of B after more and more launches.",
        look="learning",
    )


@dataclass(frozen=True)
class _Scale:
    """Slowdowns from left to right; what lies beyond an end is drawn there."""

    low: float
    high: float
    right: float

    @classmethod
    def around(cls, values: Sequence[float], width: float) -> "_Scale":
        low, high = min(values), max(values)
        reach = 0.35 * (high - low) or 0.01
        return cls(low - reach, high + reach, width - 12)

    def x(self, value: float) -> float:
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return _LABEL + part * (self.right - _LABEL)


def _interval(look: Look, scale: _Scale, y: float) -> list[Markup]:
    gap = look.slowdown
    what = f"{100 * gap.value:+.1f}% [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    point = svg.tag("circle", svg.tooltip(what), cx=scale.x(gap.value), cy=y, r=4, class_="pass")
    label = svg.text(0, y + 4, f"{look.launches} launches", "m")
    return [label, *svg.whisker(scale.x(gap.low), scale.x(gap.high), y), point]


def _launches(ratios: Sequence[float], scale: _Scale, y: float) -> list[Markup]:
    points = [
        svg.tag(
            "circle",
            svg.tooltip(f"{100 * each:+.1f}%"),
            cx=scale.x(each),
            cy=y,
            r=2,
            class_="point",
        )
        for each in ratios
        if math.isfinite(each)
    ]
    return [svg.text(0, y + 4, "each alone", "m"), *points]


def _spaced(count: int, most: int) -> list[int]:
    """Numbers of at most so many of `count` rows, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]
