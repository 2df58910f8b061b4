"""The charts of the page, as inline SVG: pure functions from numbers to markup.

Each chart is drawn for a width in CSS pixels and never scaled far from it, so that its text stays
as large as the text around it: the page draws every chart once for a wide and once for a narrow
screen. Colours and fonts come from the page's stylesheet, by class; `s0` to `s19` are stages.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Unknown
from hotloop.report.numbers import Form, duration, figure, interval, number, percent
from hotloop.simplify.ceilings import Rung
from hotloop.simplify.verdict import StageVerdict

WIDE, NARROW = 720, 340
COLOURS = 20  # the stylesheet's; more stages take turns, and their names tell them apart

_TEXT, _SMALL = 12.5, 11.0
_NO_GAP = 0.995  # of the rung above; narrower than that, nothing is left to say about a gap
_TIMES = Form(((1.0, "×"),))
# Calls narrower than this are drawn together: height is the part of the time that they take.
_LEGIBLE_PX = 1.5
_HEIGHTS = (34.0, 18.0, 9.0, 5.0)  # of a stage, a stage inside it, and so on
_CURVE_HEIGHT, _MOST_POINTS = 280.0, 120
_LEVELS = 8  # that the height of narrow calls is rounded to, so that neighbours join


@dataclass(frozen=True)
class Span:
    """One call of a stage, in ns from the left end of the picture; depth 0 is outermost."""

    stage: str
    start: float
    end: float
    depth: int


@dataclass(frozen=True)
class Lane:
    """What does one thing at a time, and the calls it made."""

    label: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Curve:
    """A learning curve: entries (K,), one for each greedy evaluation."""

    env_steps: Sequence[float]
    seconds: Sequence[float]
    mean_return: Sequence[float]
    passed: Sequence[bool]
    threshold: float | None
    solved: bool  # the last two entries are what solved it
    unit: str


def times(now: Interval, then: Interval) -> str:
    """How many times faster `then`, a rung below `now`, is; the ends are worst and best case."""
    if then.value <= 0:
        return "no limit"
    least = max(1.0, now.low / then.high)  # no rung lies above the one before it
    if then.low <= 0:
        return f"{_TIMES(now.value / then.value)} [{_TIMES(least)}, no limit]"
    ends = Interval(now.value / then.value, least, now.high / then.low)
    return interval(ends, _TIMES) if ends.low < ends.high else _TIMES(ends.value)


def rate(units: float, ns: Interval) -> str:
    """Units per second of an iteration with `units` that takes `ns`."""
    if ns.value <= 0:
        return "no limit"
    if ns.low <= 0:
        return f"{number(units / ns.value * 1e9)} [{number(units / ns.high * 1e9)}, no limit]"
    ends = Interval(units / ns.value, units / ns.high, units / ns.low).scaled(1e9)
    return interval(ends) if ends.low < ends.high else number(ends.value)


def ladder_waterfall(
    rungs: Sequence[Rung],
    unit: str,
    units_per_iteration: float,
    *,
    width: float,
    name: str,
    refused: bool = False,
) -> Markup:
    """Time of an iteration, rung by rung, and what closes the gap to the one above.

    name: unique on the page. An unknown rung is hatched, as wide as the last one that is known.
    """
    known = [rung.ns for rung in rungs if isinstance(rung.ns, Interval)]
    scale = (width - 2) / max([ns.high for ns in known] + [1.0])
    above: Interval | None = None
    parts = [_hatch(name)]
    y = 0.0
    for rung in rungs:
        factor, facts = "", [f"unknown: {rung.ns.why}" if isinstance(rung.ns, Unknown) else ""]
        if isinstance(rung.ns, Interval):
            factor = times(known[0], rung.ns) if above is not None else ""
            facts = [
                f"{_time(rung.ns)} an iteration",
                f"{rate(units_per_iteration, rung.ns)} {unit}/s",
            ]
        parts.append(_text(0, y + 13, rung.name, "b"))
        parts.append(_text(width, y + 13, factor, "b factor", anchor="end"))
        heading = _wrapped(" · ".join(facts), _SMALL, width)
        if len(heading) > 1 and len(facts) > 1:  # a line for each reads better than any break
            heading = [_fitted(fact, _SMALL, width) for fact in facts]
        lines, y = _paragraph(heading, y + 15)
        bar = _rung_bar(rung.ns, above, scale, width, y + 6, name)
        caption = [f"set by {rung.set_by}" if rung.set_by else "", _closing(rung, above)]
        below = [line for part in caption for line in _wrapped(part, _SMALL, width)]
        captions, y = _paragraph(below, y + 24)
        parts += [*lines, bar, *captions]
        y += 20
        above = rung.ns if isinstance(rung.ns, Interval) else above
    spoken = [
        f"{rung.name}: unknown, {rung.ns.why}"
        if isinstance(rung.ns, Unknown)
        else f"{rung.name}: {_time(rung.ns)} an iteration, set by {rung.set_by}"
        for rung in rungs
    ]
    shade = "ladder refused" if refused else "ladder"
    title = "Ladder from now to the machine's roof"
    return _svg(parts, width, y - 12, name, title, "; ".join(spoken), shade)


def tornado(
    rows: Sequence[StageVerdict],
    colours: Mapping[str, int],
    *,
    worth: float,
    width: float,
    name: str,
    refused: bool = False,
) -> Markup:
    """For each stage its share of the time to the left, its causal gain to the right.

    Both sides have one scale, so a large share without a gain is seen as such. worth: the
    smallest gain that counts, a dashed line. Shares over 100% (stages side by side) are cut.
    """
    sides = _sides(rows, worth, width)
    parts = [_hatch(name), *_side_titles(sides), *_percent_axis(sides)]
    if worth < sides.right:
        x = sides.gain_x + worth * sides.scale
        parts.append(_line(x, sides.top - 4, x, sides.bottom, "worth"))
    for k, row in enumerate(rows):
        y = sides.top + k * sides.row_height
        thick = 10.0 if row.inside else 16.0
        bar_y = y + (18 if sides.narrow else (sides.row_height - 16) / 2) + (16 - thick) / 2
        shade = f"s{colours.get(row.name, 0) % COLOURS}"
        parts += _share_marks(row, shade, sides, y, bar_y, thick)
        parts += _gain_marks(row, shade, sides, bar_y, thick, name)
        parts += _gain_label(row, sides, y)
    spoken = [
        f"{row.name}: share {percent(row.share)}, gain "
        + figure(row.gain, percent).replace("unknown:", "unknown,")
        for row in rows
    ]
    shade = "tornado refused" if refused else "tornado"
    title = "Share of time beside causal gain, by stage"
    return _svg(parts, width, sides.bottom + 20, name, title, "; ".join(spoken), shade)


def timeline(
    lanes: Sequence[Lane],
    duration_ns: float,
    colours: Mapping[str, int],
    *,
    width: float,
    name: str,
) -> Markup:
    """Who did what when, over `duration_ns`; one row a lane, inner stages thinner and lower.

    Calls that would be narrower than a pixel or so are drawn together, as high as the part of
    the time that they take.
    """
    scale = width / duration_ns
    parts: list[Markup] = []
    y = 0.0
    for lane in lanes:
        parts.append(_text(0, y + 11, _fitted(lane.label, _SMALL, width), "m"))
        deepest = max((span.depth for span in lane.spans), default=0)
        height = _HEIGHTS[0] if deepest else 24.0
        y += 17
        parts.append(_tag("rect", x=0, y=y, width=width, height=height, class_="track"))
        for depth in range(deepest + 1):
            tall = height if depth == 0 else _HEIGHTS[min(depth, len(_HEIGHTS) - 1)]
            spans = [span for span in lane.spans if span.depth == depth]
            parts += _lane_level(spans, colours, scale, width, y + height - tall, tall, deepest)
        y += height + 12
    y -= 4
    parts.append(_line(0, y, width, y, "axis"))
    ticks = _ticks(0, duration_ns, max(5, int(width / 100)))
    for tick in ticks:
        x = tick * scale
        shown = duration(tick) if tick else "0"
        wide = _text_width(shown, _SMALL)
        anchor = "start" if x < wide / 2 else "end" if x + wide / 2 > width else "middle"
        parts.append(_line(x, y, x, y + 4, "axis"))
        parts.append(_text(x, y + 17, shown, "m", anchor=anchor))
    spoken = "; ".join(
        f"{lane.label}: "
        + (", ".join(_busy(lane.spans, duration_ns)) or "no call of a stage began or ended")
        for lane in lanes
    )
    return _svg(
        parts, width, y + 22, name, f"Timeline of {duration(duration_ns)}", spoken, "timeline"
    )


def learning_curve(curve: Curve, *, width: float, name: str) -> Markup:
    """Mean greedy return over env steps; seconds along the top; the passes that solved it."""
    frame = _frame(curve, width)
    parts = _frame_axes(curve, frame)
    if curve.threshold is not None:
        y = frame.y(curve.threshold)
        parts.append(_line(frame.left, y, frame.right, y, "threshold"))
        label = f"threshold {curve.threshold:g}"
        parts.append(_text(frame.left + 6, y + 15, label, "m halo"))
    points = [
        (frame.x(step), frame.y(value))
        for step, value in zip(curve.env_steps, curve.mean_return, strict=True)
    ]
    if points:
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        parts += [_tag("path", d=path, class_="curve"), *_evaluations(curve, points)]
        spoken = f"{len(points)} evaluations, from {curve.mean_return[0]:.4g} to {_told(curve, -1)}"
    else:
        spoken = "nothing was evaluated"
        parts.append(_text(width / 2, _CURVE_HEIGHT / 2, spoken, "m", anchor="middle"))
    return _svg(parts, width, _CURVE_HEIGHT, name, "Learning curve", spoken, "learning")


# --- ladder ----------------------------------------------------------------------------------


def _time(ns: Interval) -> str:
    return interval(ns, duration) if ns.low < ns.high else duration(ns.value)


def _paragraph(lines: Sequence[str], y: float) -> tuple[list[Markup], float]:
    """Small lines below y, and where they end."""
    return [_text(0, y + 13 * (k + 1), line, "m") for k, line in enumerate(lines)], (
        y + 13 * len(lines)
    )


def _closing(rung: Rung, above: Interval | None) -> str:
    if not rung.to_gain:
        return ""
    if (
        above is not None
        and isinstance(rung.ns, Interval)
        and rung.ns.value >= _NO_GAP * above.value
    ):
        return "no gap to the rung above"
    return f"the gap closes by {rung.to_gain}"


def _rung_bar(
    ns: Interval | Unknown,
    above: Interval | None,
    scale: float,
    width: float,
    y: float,
    name: str,
) -> Markup:
    """The bar of one rung, with the gap to the one above it as a ghost."""
    end = width - 2 if above is None else above.value * scale
    if isinstance(ns, Unknown):
        return _tag(
            "rect",
            _title(f"unknown: {ns.why}"),
            x=0.5,
            y=y + 0.5,
            width=max(end - 1, 3),
            height=15,
            class_="unknown",
            fill=f"url(#{name}-hatch)",
        )
    length = max(ns.value * scale, 1.5)
    parts = []
    if above is not None and end - length > 2:
        parts.append(
            _tag("rect", x=length, y=y + 0.5, width=end - length - 0.5, height=15, class_="ghost")
        )
    shade = "now" if above is None else "rung"
    parts.append(_tag("rect", x=0, y=y, width=length, height=16, class_=shade))
    parts += _whisker(ns.low * scale, ns.high * scale, y + 8)
    return Markup("").join(parts)


# --- tornado ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """Where things are: shares from share_x to the left, gains from gain_x to the right.

    left, right, below: the largest share, the largest and the smallest gain that are drawn;
    scale: px for all of the time, on both sides.
    """

    width: float
    narrow: bool
    names: float
    share_x: float
    gain_x: float
    scale: float
    left: float
    right: float
    below: float
    top: float
    row_height: float
    bottom: float


def _sides(rows: Sequence[StageVerdict], worth: float, width: float) -> _Sides:
    gains = [row.gain for row in rows if isinstance(row.gain, Interval)]
    left = min(1.0, max([row.share for row in rows] + [0.02]))
    right = min(1.0, max([gain.high for gain in gains] + [worth * 1.5, 0.02]))
    if len(gains) < len(rows):
        right = max(right, 0.4 * left)  # room for the reason
    below = max(-0.5, min([gain.low for gain in gains] + [0.0]))
    narrow = width < 500
    names = min(150.0, max(_text_width(_stage_label(row), _TEXT) for row in rows) + 12)
    # Beside the bars: the names and the shares to the left, the gains to the right.
    start, end = (0.0, width) if narrow else (names + 46, width - 142)
    scale = (end - start - 10) / (left + right - below)
    row_height, top = (56.0, 38.0) if narrow else (30.0, 24.0)
    return _Sides(
        width=width,
        narrow=narrow,
        names=names,
        share_x=start + left * scale,
        gain_x=start + (left - below) * scale + 10,
        scale=scale,
        left=left,
        right=right,
        below=below,
        top=top,
        row_height=row_height,
        bottom=top + row_height * len(rows),
    )


def _side_titles(sides: _Sides) -> list[Markup]:
    if sides.narrow:
        return [
            _text(0, 11, "left: share of time", "m"),
            _text(0, 25, "right: gain if it were free", "m"),
        ]
    return [
        _text(sides.share_x, 11, "share of time", "m", anchor="end"),
        _text(sides.gain_x, 11, "gain if it were free", "m"),
    ]


def _stage_label(row: StageVerdict) -> str:
    return f"↳ {row.name}" if row.inside else row.name


def _percent_axis(sides: _Sides) -> list[Markup]:
    """Zero lines and ticks of both sides, at the same distance from each other on both."""
    share_x, gain_x, scale = sides.share_x, sides.gain_x, sides.scale
    top, bottom = sides.top - 4, sides.bottom
    step = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5) if s * scale >= 38), 1.0)
    parts = [
        _line(share_x, top, share_x, bottom, "axis"),
        _line(gain_x, top, gain_x, bottom, "axis"),
    ]
    places = [(share_x - k * step * scale, k * step) for k in range(_whole(sides.left / step) + 1)]
    first = -_whole(-sides.below / step)
    for k in range(first, _whole(sides.right / step) + 1):
        x = gain_x + k * step * scale
        if k == 0 or x - share_x > 30:
            places.append((x, k * step))
    zeros_meet = gain_x - share_x < 24
    for x, value in places:
        if value:
            parts.append(_line(x, top, x, bottom, "grid"))
        elif zeros_meet:
            if x == share_x:
                parts.append(_text((share_x + gain_x) / 2, bottom + 14, "0", "m", anchor="middle"))
            continue
        shown = f"{100 * value:g}%"
        half = _text_width(shown, _SMALL) / 2
        if half <= x <= sides.width - half:
            parts.append(_text(x, bottom + 14, shown, "m", anchor="middle"))
    return parts


def _whole(ratio: float) -> int:
    return int(ratio + 1e-9)


def _share_marks(
    row: StageVerdict, shade: str, sides: _Sides, y: float, bar_y: float, thick: float
) -> list[Markup]:
    """The name of a stage, and its bar to the left; torn where it goes on beyond the chart."""
    share, label = percent(row.share), _stage_label(row)
    length = min(row.share, sides.left) * sides.scale
    end = sides.share_x - length
    bar = _tag(
        "rect",
        _title(f"{row.name}: {share} of the time"),
        x=end,
        y=bar_y,
        width=max(length, 0.5),
        height=thick,
        class_=f"{shade} share",
    )
    torn = row.share > sides.left + 1e-9
    tear = _line(end + 5, bar_y - 2, end + 1, bar_y + thick + 2) if torn else Markup("")
    if sides.narrow:
        return [
            bar,
            tear,
            _text(0, y + 12, _fitted(label, _TEXT, sides.width), "b halo"),
            _text(0, y + 47, f"share {share}", "m halo"),
        ]
    return [
        bar,
        tear,
        _text(0, y + 19, _fitted(label, _TEXT, sides.names - 8), "b"),
        _text(end - 5, y + 19, share, "m", anchor="end"),
    ]


def _gain_marks(
    row: StageVerdict, shade: str, sides: _Sides, y: float, thick: float, name: str
) -> list[Markup]:
    """The bar and whisker of a gain, or a hatched stub where it is not known."""
    zero = sides.gain_x
    if isinstance(row.gain, Unknown):
        return [
            _tag(
                "rect",
                _title(f"{row.name}: gain unknown, {row.gain.why}"),
                x=zero + 0.5,
                y=y + 0.5,
                width=22,
                height=thick - 1,
                class_="unknown",
                fill=f"url(#{name}-hatch)",
            )
        ]
    low, value, high = (
        zero + sides.scale * min(max(part, sides.below), sides.right)
        for part in (row.gain.low, row.gain.value, row.gain.high)
    )
    return [
        _tag(
            "rect",
            _title(f"{row.name}: {interval(row.gain, percent)} of the time saved if free"),
            x=min(zero, value),
            y=y,
            width=max(abs(value - zero), 0.5),
            height=thick,
            class_=f"{shade} gain",
        ),
        *_whisker(low, high, y + thick / 2),
    ]


def _gain_label(row: StageVerdict, sides: _Sides, y: float) -> list[Markup]:
    shown, width = figure(row.gain, percent), sides.width
    if sides.narrow:
        fitted = _fitted(f"gain {shown}", _SMALL, width - 90)
        return [_text(width, y + 47, fitted, "m halo", anchor="end")]
    if isinstance(row.gain, Interval):
        return [_text(width, y + 19, shown, "v", anchor="end")]
    x = sides.gain_x + 30
    return [_text(x, y + 19, _fitted(shown, _SMALL, width - x), "m halo")]


# --- timeline --------------------------------------------------------------------------------


def _lane_level(
    spans: Sequence[Span],
    colours: Mapping[str, int],
    scale: float,
    width: float,
    y: float,
    height: float,
    deepest: int,
) -> list[Markup]:
    """The calls of one lane at one depth: a path a stage, a rectangle for what can be labelled."""
    pieces: dict[str, list[str]] = {}
    cells: dict[str, np.ndarray] = {}
    large: list[Markup] = []
    calls: dict[str, list[float]] = {}
    for span in spans:
        a, b = span.start * scale, span.end * scale
        calls.setdefault(span.stage, []).append(span.end - span.start)
        if b - a >= 8:
            large.append(_large_call(span, colours, a, b, y, height, deepest))
        elif b - a >= _LEGIBLE_PX:
            pieces.setdefault(span.stage, []).append(_block(a, y, b - a, height))
        else:
            _cover(cells.setdefault(span.stage, np.zeros(math.ceil(width))), a, b)
    for stage, runs in _stacked(cells).items():
        for first, count, base, level in runs:
            lower = y + height * (1 - base - level)
            pieces.setdefault(stage, []).append(_block(first, lower, count, height * level))
    drawn = [
        _tag(
            "path",
            _title(f"{stage}: {len(calls[stage])} calls, {duration(sum(calls[stage]))} together"),
            d="".join(blocks),
            class_=f"s{colours.get(stage, 0) % COLOURS}",
        )
        for stage, blocks in pieces.items()
    ]
    return drawn + large


def _large_call(
    span: Span,
    colours: Mapping[str, int],
    a: float,
    b: float,
    y: float,
    height: float,
    deepest: int,
) -> Markup:
    shade = f"s{colours.get(span.stage, 0) % COLOURS}"
    told = duration(span.end - span.start)
    # A hairline is left free, so that two calls in a row are seen as two.
    parts = [
        _tag(
            "rect",
            _title(f"{span.stage}: {told}"),
            x=a,
            y=y,
            width=b - a - 0.5,
            height=height,
            class_=shade,
        )
    ]
    # Inner stages cover the lower part of an outer one.
    baseline = y + 12 if deepest and span.depth == 0 else y + height / 2 + 4
    for shown in (f"{span.stage} {told}", span.stage):
        if height >= 16 and _text_width(shown, _SMALL) < b - a - 10:
            parts.append(_text(a + 5, baseline, shown, f"on {shade}"))
            break
    return Markup("").join(parts)


def _cover(cells: np.ndarray, a: float, b: float) -> None:
    """Add the part of each pixel that lies between a and b."""
    for cell in range(max(0, int(a)), min(len(cells) - 1, int(b)) + 1):
        cells[cell] += max(0.0, min(b, cell + 1) - max(a, cell))


def _stacked(cells: Mapping[str, np.ndarray]) -> dict[str, list[tuple[int, int, float, float]]]:
    """Runs of equal pixels, for each stage: first, count, and from where up to how high (0 to 1).

    The smallest call is still one level high; where that overfills a pixel, all are lowered alike.
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


def _busy(spans: Sequence[Span], duration_ns: float) -> list[str]:
    """What each stage took, in words."""
    totals: dict[str, list[float]] = {}
    for span in spans:
        totals.setdefault(span.stage, []).append(span.end - span.start)
    return [
        f"{stage} {len(each)} {'call' if len(each) == 1 else 'calls'}, "
        f"{percent(sum(each) / duration_ns)} of it"
        for stage, each in totals.items()
    ]


# --- learning curve --------------------------------------------------------------------------


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


def _frame(curve: Curve, width: float) -> _Frame:
    values = [0.0, *curve.mean_return, *([] if curve.threshold is None else [curve.threshold])]
    low, high = min(values), max(*values, min(values) + 1e-9)
    high += 0.06 * (high - low)
    marks = _ticks(low, high, 5)
    return _Frame(
        left=12 + max(_text_width(f"{mark:g}", _SMALL) for mark in marks),
        right=width - 14,
        top=42,
        bottom=_CURVE_HEIGHT - 44,
        last=max([1.0, *curve.env_steps[-1:]]),
        low=low,
        high=high,
        marks=marks,
    )


def _frame_axes(curve: Curve, frame: _Frame) -> list[Markup]:
    """Returns to the left, env steps below, and above them the seconds that they took."""
    parts = []
    about = 6 if frame.right > 500 else 4
    for mark in frame.marks:
        y = frame.y(mark)
        parts.append(_line(frame.left, y, frame.right, y, "grid"))
        parts.append(_text(frame.left - 6, y + 4, f"{mark:g}", "m", anchor="end"))
    below = [(tick, frame.x(tick)) for tick in _ticks(0, frame.last, about)]
    parts += _axis_ticks(below, frame.bottom, 17, frame.right + 14, number)
    parts.append(_line(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    parts.append(_text(frame.right, _CURVE_HEIGHT - 6, curve.unit, "m", anchor="end"))
    if curve.seconds and curve.seconds[-1] > 0:
        seconds, steps = [0.0, *curve.seconds], [0.0, *curve.env_steps]
        ticks = _ticks(0, seconds[-1], about)
        above = [(tick, frame.x(float(np.interp(tick, seconds, steps)))) for tick in ticks]
        parts += _axis_ticks(above, frame.top, -8, frame.right + 14, number)
        parts.append(_line(frame.left, frame.top, frame.right, frame.top, "axis"))
        parts.append(_text(frame.right, 12, "seconds of training", "m", anchor="end"))
    return parts


def _evaluations(curve: Curve, points: Sequence[tuple[float, float]]) -> list[Markup]:
    """A point for each evaluation; the two that solved it are larger."""
    parts = []
    for k, (x, y) in enumerate(points):
        solving = curve.solved and k >= len(points) - 2
        if not solving and len(points) > _MOST_POINTS:
            continue  # the line is all that can be seen
        shade = "pass" if solving else "passed" if curve.passed[k] else "point"
        radius = 5 if solving else 2.5
        parts.append(_tag("circle", _title(_told(curve, k)), cx=x, cy=y, r=radius, class_=shade))
    return parts


def _told(curve: Curve, k: int) -> str:
    steps, taken = int(curve.env_steps[k]), curve.seconds[k]
    return f"{curve.mean_return[k]:.4g} after {steps:,} {curve.unit}, {taken:.3g} s"


# --- axes ------------------------------------------------------------------------------------


def _axis_ticks(
    places: Sequence[tuple[float, float]], y: float, offset: float, width: float, form: Form
) -> list[Markup]:
    """Ticks with their labels; one that would touch its neighbour is left out."""
    parts: list[Markup] = []
    free_from = -math.inf
    for value, x in places:
        shown = form(value) if value else "0"
        wide = _text_width(shown, _SMALL)
        centre = min(x, width - wide / 2)
        if centre - wide / 2 < free_from:
            continue
        free_from = centre + wide / 2 + 8
        parts.append(_line(x, y, x, y + math.copysign(4, offset), "axis"))
        parts.append(_text(centre, y + offset, shown, "m", anchor="middle"))
    return parts


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from low to high, about so many."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _whisker(low: float, high: float, y: float) -> list[Markup]:
    if not (math.isfinite(low) and math.isfinite(high)) or high - low < 0.2:
        return []
    path = f"M{_n(low)} {_n(y)}H{_n(high)}M{_n(low)} {_n(y - 4)}v8M{_n(high)} {_n(y - 4)}v8"
    return [_tag("path", d=path, class_="halo whisker"), _tag("path", d=path, class_="whisker")]


# --- text and tags ---------------------------------------------------------------------------


def _text_width(text: str, size: float) -> float:
    """About how wide a text is in a system font, in px; on the wide side."""
    return size * sum(_em(char) for char in text)


def _em(char: str) -> float:
    if char in "ijlI.,:;|!'()[]/ ·tfr":
        return 0.36
    if char in "mwMW@%×→↳…—" or char.isupper():
        return 0.86 if char in "mwMW@%" else 0.7
    return 1.05 if unicodedata.east_asian_width(char) in "WF" else 0.59


def _fitted(text: str, size: float, width: float) -> str:
    """The text, cut with an ellipsis if it is too wide."""
    if _text_width(text, size) <= width:
        return text
    while text and _text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _wrapped(text: str, size: float, width: float) -> list[str]:
    """The text in lines, broken at spaces; a word wider than a line is cut."""
    lines: list[str] = []
    for word in text.split():
        if lines and _text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(_fitted(word, size, width))
    return lines


def _svg(
    parts: Iterable[Markup],
    width: float,
    height: float,
    name: str,
    title: str,
    description: str,
    class_: str,
) -> Markup:
    size = "wide" if width >= 500 else "narrow"
    return _tag(
        "svg",
        _tag("title", title, id=f"{name}-title"),
        _tag("desc", description, id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {_n(width)} {_n(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=f"chart {size} {class_}",
    )


def _hatch(name: str) -> Markup:
    line = _tag("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5", class_="hatch")
    pattern = _tag(
        "pattern",
        line,
        id=f"{name}-hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )
    return _tag("defs", pattern)


def _title(text: str) -> Markup:
    return _tag("title", text)


def _text(x: float, y: float, text: str, class_: str, anchor: str = "start") -> Markup:
    if not text:
        return Markup("")
    if anchor == "start":
        return _tag("text", text, x=x, y=y, class_=class_)
    return _tag("text", text, x=x, y=y, class_=class_, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str = "axis") -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _block(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """A coordinate: a tenth of a pixel is more than can be seen."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0: no negative zero


# What XML cannot hold even escaped.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _tag(kind: str, *content: str | Markup, **attributes: str | float) -> Markup:
    """An element; content that is not markup yet, and every attribute, is escaped."""
    written = "".join(
        f' {_attribute(key)}="{escape(_clean(value))}"' for key, value in attributes.items()
    )
    inner = "".join(
        part if isinstance(part, Markup) else str(escape(_clean(part))) for part in content
    )
    return Markup(f"<{kind}{written}>{inner}</{kind}>" if inner else f"<{kind}{written}/>")


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _clean(value: str | float) -> str:
    return _CONTROL.sub("�", value) if isinstance(value, str) else _n(value)
