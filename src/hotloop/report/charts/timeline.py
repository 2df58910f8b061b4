"""The timeline: the calls of stages over time, a row for each lane.

Calls that can be labelled are rectangles of their own; legible ones share a path for each stage;
the rest is added up pixel by pixel, so that a chart of any number of calls stays small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.numbers import duration, percent

# Calls narrower than this are drawn together: height is the part of the time that they take.
_LEGIBLE_PX = 1.5
_LEVELS = 8  # that the height of narrow calls is rounded to, so that neighbours join
_HEIGHTS = (34.0, 18.0, 9.0, 5.0)  # of a stage, a stage inside it, and so on


@dataclass(frozen=True)
class Call:
    """One call of a stage, in ns from the left end of the chart; depth 0 is outermost."""

    stage: str
    start: float
    end: float
    depth: int


@dataclass(frozen=True)
class Lane:
    """A thread, a task or a GPU stream, which runs one call at a time, and its calls."""

    label: str
    calls: Sequence[Call]


def timeline(
    lanes: Sequence[Lane],
    duration_ns: float,
    colours: Mapping[str, int],
    *,
    width: float,
    name: str,
) -> Markup:
    """The calls of each lane over `duration_ns`, a row for each lane; inner stages are thinner.

    Calls too narrow to be seen are drawn together, as high as the part of the time that they take.
    """
    scale = width / duration_ns
    parts: list[Markup] = []
    y = 0.0
    for lane in lanes:
        parts.append(svg.text(0, y + 11, svg.fitted(lane.label, svg.SMALL, width), "m"))
        deepest = max((call.depth for call in lane.calls), default=0)
        height = _HEIGHTS[0] if deepest else 24.0
        y += 17
        parts.append(svg.tag("rect", x=0, y=y, width=width, height=height, class_="track"))
        for depth in range(deepest + 1):
            tall = height if depth == 0 else _HEIGHTS[min(depth, len(_HEIGHTS) - 1)]
            calls = [call for call in lane.calls if call.depth == depth]
            parts += _lane_level(calls, colours, scale, width, y + height - tall, tall, deepest)
        y += height + 12
    y -= 4
    parts.append(svg.line(0, y, width, y, "axis"))
    ticks = svg.ticks(0, duration_ns, max(5, int(width / 100)))
    for tick in ticks:
        x = tick * scale
        shown = duration(tick) if tick else "0"
        wide = svg.text_width(shown, svg.SMALL)
        anchor = "start" if x < wide / 2 else "end" if x + wide / 2 > width else "middle"
        parts.append(svg.line(x, y, x, y + 4, "axis"))
        parts.append(svg.text(x, y + 17, shown, "m", anchor=anchor))
    description = "; ".join(
        f"{lane.label}: "
        + (", ".join(_busy(lane.calls, duration_ns)) or "no call of a stage began or ended")
        for lane in lanes
    )
    return svg.drawing(
        parts,
        width,
        y + 22,
        name=name,
        title=f"Timeline of {duration(duration_ns)}",
        description=description,
        look="timeline",
    )


def _lane_level(
    calls: Sequence[Call],
    colours: Mapping[str, int],
    scale: float,
    width: float,
    y: float,
    height: float,
    deepest: int,
) -> list[Markup]:
    """The calls of one lane at one depth: a path for each stage, and each large call by itself."""
    pieces: dict[str, list[str]] = {}
    cells: dict[str, np.ndarray] = {}
    large: list[Markup] = []
    durations: dict[str, list[float]] = {}
    for call in calls:
        a, b = call.start * scale, call.end * scale
        durations.setdefault(call.stage, []).append(call.end - call.start)
        if b - a >= 8:
            large.append(_large_call(call, colours, a, b, y, height, deepest))
        elif b - a >= _LEGIBLE_PX:
            pieces.setdefault(call.stage, []).append(_block(a, y, b - a, height))
        else:
            _cover(cells.setdefault(call.stage, np.zeros(math.ceil(width))), a, b)
    for stage, runs in _stacked(cells).items():
        for first, count, base, level in runs:
            lower = y + height * (1 - base - level)
            pieces.setdefault(stage, []).append(_block(first, lower, count, height * level))
    drawn = [
        svg.tag(
            "path",
            svg.tooltip(f"{stage}: {len(taken)} calls, {duration(sum(taken))} together"),
            d="".join(blocks),
            class_=svg.stage_class(stage, colours),
        )
        for stage, blocks in pieces.items()
        for taken in [durations[stage]]
    ]
    return drawn + large


def _large_call(
    call: Call,
    colours: Mapping[str, int],
    a: float,
    b: float,
    y: float,
    height: float,
    deepest: int,
) -> Markup:
    look = svg.stage_class(call.stage, colours)
    length = duration(call.end - call.start)
    # A hairline is left free, so that two calls in a row are seen as two.
    parts = [
        svg.tag(
            "rect",
            svg.tooltip(f"{call.stage}: {length}"),
            x=a,
            y=y,
            width=b - a - 0.5,
            height=height,
            class_=look,
        )
    ]
    # Inner stages cover the lower part of an outer one.
    baseline = y + 12 if deepest and call.depth == 0 else y + height / 2 + 4
    for shown in (f"{call.stage} {length}", call.stage):
        if height >= 16 and svg.text_width(shown, svg.SMALL) < b - a - 10:
            parts.append(svg.text(a + 5, baseline, shown, f"on {look}"))
            break
    return Markup("").join(parts)


def _block(x: float, y: float, width: float, height: float) -> str:
    return f"M{svg.px(x)} {svg.px(y)}h{svg.px(width)}v{svg.px(height)}h{svg.px(-width)}z"


def _cover(cells: np.ndarray, a: float, b: float) -> None:
    """Add the part of each pixel that lies between a and b."""
    for cell in range(max(0, int(a)), min(len(cells) - 1, int(b)) + 1):
        cells[cell] += max(0.0, min(b, cell + 1) - max(a, cell))


def _stacked(cells: Mapping[str, np.ndarray]) -> dict[str, list[tuple[int, int, float, float]]]:
    """Runs of equal pixels, for each stage: first pixel, count, base and height (0 to 1).

    The smallest call is one level high; where that overfills a pixel, all are scaled down alike.
    """
    if not cells:
        return {}
    covered = np.stack(list(cells.values()))
    levels = np.where(covered > 0, np.maximum(np.round(covered * _LEVELS), 1), 0) / _LEVELS
    levels /= np.maximum(levels.sum(axis=0), 1)
    bases = np.cumsum(levels, axis=0) - levels
    found: dict[str, list[tuple[int, int, float, float]]] = {}
    for row, stage in enumerate(cells):
        pairs = list(zip(bases[row].tolist(), levels[row].tolist(), strict=True))
        runs, first = [], 0
        for k in range(1, len(pairs) + 1):
            if k == len(pairs) or pairs[k] != pairs[first]:
                if pairs[first][1] > 0:
                    runs.append((first, k - first, *pairs[first]))
                first = k
        found[stage] = runs
    return found


def _busy(calls: Sequence[Call], duration_ns: float) -> list[str]:
    """The calls of each stage and their share of the time, in words."""
    totals: dict[str, list[float]] = {}
    for call in calls:
        totals.setdefault(call.stage, []).append(call.end - call.start)
    return [
        f"{stage} {len(each)} {'call' if len(each) == 1 else 'calls'}, "
        f"{percent(sum(each) / duration_ns)} of it"
        for stage, each in totals.items()
    ]
