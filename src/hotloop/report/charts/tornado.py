"""The tornado: beside each stage's share of the time, what the loop gains when it costs nothing.

Shares go to the left and gains to the right, on one scale. `_Sides` holds the layout of both; the
marks of a row are then drawn one kind at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.loop.figures import Interval, Unknown
from hotloop.report.charts import svg
from hotloop.report.numbers import figure, interval, percent
from hotloop.simplify.verdict_rows import StageVerdict


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
    parts = [svg.hatch(name), *_side_titles(sides), *_percent_axis(sides)]
    if worth < sides.right:
        x = sides.gain_x + worth * sides.scale
        parts.append(svg.line(x, sides.top - 4, x, sides.bottom, "worth"))
    for k, row in enumerate(rows):
        y = sides.top + k * sides.row_height
        thick = 10.0 if row.inside else 16.0
        bar_y = y + (18 if sides.narrow else (sides.row_height - 16) / 2) + (16 - thick) / 2
        look = svg.stage_class(row.name, colours)
        parts += _share_marks(row, look, sides, y, bar_y, thick)
        parts += _gain_marks(row, look, sides, bar_y, thick, name)
        parts += _gain_label(row, sides, y)
    description = [
        f"{row.name}: share {percent(row.share)}, gain "
        + figure(row.gain, percent).replace("unknown:", "unknown,")
        for row in rows
    ]
    return svg.drawing(
        parts,
        width,
        sides.bottom + 20,
        name=name,
        title="Share of time beside causal gain, by stage",
        description="; ".join(description),
        look="tornado refused" if refused else "tornado",
    )


@dataclass(frozen=True)
class _Sides:
    """The layout: shares from share_x to the left, gains from gain_x to the right.

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
    names = min(150.0, max(svg.text_width(_stage_label(row), svg.TEXT) for row in rows) + 12)
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


def _stage_label(row: StageVerdict) -> str:
    return f"↳ {row.name}" if row.inside else row.name


def _side_titles(sides: _Sides) -> list[Markup]:
    if sides.narrow:
        return [
            svg.text(0, 11, "left: share of time", "m"),
            svg.text(0, 25, "right: gain if it were free", "m"),
        ]
    return [
        svg.text(sides.share_x, 11, "share of time", "m", anchor="end"),
        svg.text(sides.gain_x, 11, "gain if it were free", "m"),
    ]


def _percent_axis(sides: _Sides) -> list[Markup]:
    """Zero lines and ticks of both sides, at the same distance from each other on both."""
    share_x, gain_x, scale = sides.share_x, sides.gain_x, sides.scale
    top, bottom = sides.top - 4, sides.bottom
    step = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5) if s * scale >= 38), 1.0)
    parts = [
        svg.line(share_x, top, share_x, bottom, "axis"),
        svg.line(gain_x, top, gain_x, bottom, "axis"),
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
            parts.append(svg.line(x, top, x, bottom, "grid"))
        elif zeros_meet:
            if x == share_x:
                parts.append(
                    svg.text((share_x + gain_x) / 2, bottom + 14, "0", "m", anchor="middle")
                )
            continue
        shown = f"{100 * value:g}%"
        half = svg.text_width(shown, svg.SMALL) / 2
        if half <= x <= sides.width - half:
            parts.append(svg.text(x, bottom + 14, shown, "m", anchor="middle"))
    return parts


def _whole(ratio: float) -> int:
    return int(ratio + 1e-9)


def _share_marks(
    row: StageVerdict, look: str, sides: _Sides, y: float, bar_y: float, thick: float
) -> list[Markup]:
    """The name of a stage, and its bar to the left; a mark shows where it is cut."""
    share, label = percent(row.share), _stage_label(row)
    length = min(row.share, sides.left) * sides.scale
    end = sides.share_x - length
    bar = svg.tag(
        "rect",
        svg.tooltip(f"{row.name}: {share} of the time"),
        x=end,
        y=bar_y,
        width=max(length, 0.5),
        height=thick,
        class_=f"{look} share",
    )
    torn = row.share > sides.left + 1e-9
    tear = svg.line(end + 5, bar_y - 2, end + 1, bar_y + thick + 2) if torn else Markup("")
    if sides.narrow:
        return [
            bar,
            tear,
            svg.text(0, y + 12, svg.fitted(label, svg.TEXT, sides.width), "b halo"),
            svg.text(0, y + 47, f"share {share}", "m halo"),
        ]
    return [
        bar,
        tear,
        svg.text(0, y + 19, svg.fitted(label, svg.TEXT, sides.names - 8), "b"),
        svg.text(end - 5, y + 19, share, "m", anchor="end"),
    ]


def _gain_marks(
    row: StageVerdict, look: str, sides: _Sides, y: float, thick: float, name: str
) -> list[Markup]:
    """The bar and whisker of a gain, or a hatched stub where it is not known."""
    zero = sides.gain_x
    if isinstance(row.gain, Unknown):
        why = f"{row.name}: gain unknown, {row.gain.why}"
        return [svg.hatched(why, zero, y, 22, thick - 1, name)]
    low, value, high = (
        zero + sides.scale * min(max(part, sides.below), sides.right)
        for part in (row.gain.low, row.gain.value, row.gain.high)
    )
    return [
        svg.tag(
            "rect",
            svg.tooltip(f"{row.name}: {interval(row.gain, percent)} of the time saved if free"),
            x=min(zero, value),
            y=y,
            width=max(abs(value - zero), 0.5),
            height=thick,
            class_=f"{look} gain",
        ),
        *svg.whisker(low, high, y + thick / 2),
    ]


def _gain_label(row: StageVerdict, sides: _Sides, y: float) -> list[Markup]:
    shown, width = figure(row.gain, percent), sides.width
    if sides.narrow:
        fitted = svg.fitted(f"gain {shown}", svg.SMALL, width - 90)
        return [svg.text(width, y + 47, fitted, "m halo", anchor="end")]
    if isinstance(row.gain, Interval):
        return [svg.text(width, y + 19, shown, "v", anchor="end")]
    x = sides.gain_x + 30
    return [svg.text(x, y + 19, svg.fitted(shown, svg.SMALL, width - x), "m halo")]
