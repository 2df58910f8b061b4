"""Memory over time: what a process tree, or a card, has in use while it is measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hotloop.report.charts import svg
from hotloop.report.numbers import bytes_, number

_HEIGHT, _TOP, _BELOW = 190.0, 14.0, 40.0
# More samples than these are joined: each point is then the most of its stretch.
MOST_POINTS = 240


@dataclass(frozen=True)
class MemoryCurve:
    """Samples of memory in use, (K,) each: seconds since the first of all samples, and bytes."""

    seconds: Sequence[float]
    in_use_bytes: Sequence[float]

    def joined(self) -> "MemoryCurve":
        """At most `MOST_POINTS` points; the highest of all samples is one of them."""
        count = len(self.seconds)
        if count <= MOST_POINTS:
            return self
        parts = np.array_split(np.arange(count), MOST_POINTS)
        most = [part[int(np.argmax(np.asarray(self.in_use_bytes)[part]))] for part in parts]
        return MemoryCurve([self.seconds[k] for k in most], [self.in_use_bytes[k] for k in most])


def memory_chart(curve: MemoryCurve, *, width: float, name: str, of: str) -> Markup:
    """Bytes in use over seconds, from 0, with its peak marked. of: whose memory it is."""
    shown = curve.joined()
    top = 1.12 * max(*shown.in_use_bytes, 1.0)
    unit = next(size for size, _ in bytes_.steps if top >= size)
    marks = [tick * unit for tick in svg.ticks(0, top / unit, 4)]
    left = 12 + max(svg.text_width(_axis_label(mark), svg.SMALL) for mark in marks)
    right, bottom = width - 14, _HEIGHT - _BELOW
    last = max(shown.seconds[-1], 1e-9)

    def place(second: float, held: float) -> tuple[float, float]:
        return left + second / last * (right - left), bottom - held / top * (bottom - _TOP)

    parts = []
    for mark in marks:
        _, y = place(0, mark)
        parts.append(svg.line(left, y, right, y, "grid"))
        parts.append(svg.text(left - 6, y + 4, _axis_label(mark), "m", anchor="end"))
    for tick in svg.ticks(0, last, 6 if width > 500 else 4):
        x, _ = place(tick, 0)
        parts.append(svg.line(x, bottom, x, bottom + 4, "axis"))
        parts.append(svg.text(x, bottom + 17, number(tick) if tick else "0", "m", anchor="middle"))
    parts.append(svg.line(left, bottom, right, bottom, "axis"))
    parts.append(svg.text(right, _HEIGHT - 6, "seconds", "m", anchor="end"))
    places = [place(*each) for each in zip(shown.seconds, shown.in_use_bytes, strict=True)]
    path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in places)
    peak = int(np.argmax(shown.in_use_bytes))
    reading = f"at most {bytes_(shown.in_use_bytes[peak])}, after {shown.seconds[peak]:.3g} s"
    dot = svg.tag("circle", svg.tooltip(reading), cx=places[peak][0], cy=places[peak][1], r=4)
    parts += [svg.tag("path", d=path, class_="curve"), svg.tag("g", dot, class_="point")]
    return svg.drawing(
        parts,
        width,
        _HEIGHT,
        name=name,
        title=f"Memory of {of} over time",
        description=reading,
        look="learning",
    )


def _axis_label(held: float) -> str:
    return bytes_(held) if held else "0"
