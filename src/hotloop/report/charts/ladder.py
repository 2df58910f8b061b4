"""The ladder: how long an iteration takes now, at each ceiling, and what closes the gap between."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hotloop.loop.figures import Interval, Unknown
from hotloop.report.charts import svg
from hotloop.report.numbers import duration, measured, rate, times
from hotloop.simplify.ceilings import Rung

_NO_GAP = 0.995  # of the rung above; narrower than that, nothing is left to say about a gap


def ladder_waterfall(
    rungs: Sequence[Rung],
    unit: str,
    units_per_iteration: float,
    *,
    width: float,
    name: str,
    refused: bool = False,
) -> Markup:
    """The time of an iteration, rung by rung, and what closes the gap to the rung above.

    name: unique on the page. An unknown rung is hatched, as wide as the last known one.
    """
    known = [rung.ns for rung in rungs if isinstance(rung.ns, Interval)]
    frame = _Frame(
        width=width,
        name=name,
        scale=(width - 2) / max([ns.high for ns in known] + [1.0]),
        unit=unit,
        units_per_iteration=units_per_iteration,
        now=known[0] if known else None,
    )
    above: Interval | None = None
    parts = [svg.hatch(name)]
    y = 0.0
    for rung in rungs:
        drawn, y = _rung(rung, above, frame, y)
        parts += drawn
        above = rung.ns if isinstance(rung.ns, Interval) else above
    description = [
        f"{rung.name}: unknown, {rung.ns.why}"
        if isinstance(rung.ns, Unknown)
        else f"{rung.name}: {measured(rung.ns, duration)} an iteration, set by {rung.set_by}"
        for rung in rungs
    ]
    return svg.drawing(
        parts,
        width,
        y - 12,
        name=name,
        title="Ladder from now to the machine's roof",
        description="; ".join(description),
        look="ladder refused" if refused else "ladder",
    )


@dataclass(frozen=True)
class _Frame:
    """What all rungs of a ladder share. scale: px for a ns; now: the time of the first rung."""

    width: float
    name: str
    scale: float
    unit: str
    units_per_iteration: float
    now: Interval | None


def _rung(
    rung: Rung, above: Interval | None, frame: _Frame, y: float
) -> tuple[list[Markup], float]:
    """One rung below y, with its heading and its captions, and the y where the next one begins."""
    factor, facts = "", [f"unknown: {rung.ns.why}" if isinstance(rung.ns, Unknown) else ""]
    if isinstance(rung.ns, Interval):
        if frame.now is not None and above is not None:
            factor = times(frame.now, rung.ns)
        facts = [
            f"{measured(rung.ns, duration)} an iteration",
            f"{rate(frame.units_per_iteration, rung.ns)} {frame.unit}/s",
        ]
    heading = _wrapped(" · ".join(facts), svg.SMALL, frame.width)
    if len(heading) > 1 and len(facts) > 1:  # a line for each reads better than any break
        heading = [svg.fitted(fact, svg.SMALL, frame.width) for fact in facts]
    names = [
        svg.text(0, y + 13, rung.name, "b"),
        svg.text(frame.width, y + 13, factor, "b factor", anchor="end"),
    ]
    lines, y = _paragraph(heading, y + 15)
    bar = _rung_bar(rung.ns, above, frame, y + 6)
    captions = [f"set by {rung.set_by}" if rung.set_by else "", _closing(rung, above)]
    below = [line for part in captions for line in _wrapped(part, svg.SMALL, frame.width)]
    under, y = _paragraph(below, y + 24)
    return [*names, *lines, bar, *under], y + 20


def _wrapped(text: str, size: float, width: float) -> list[str]:
    """The text in lines, broken at spaces; a word wider than a line is cut."""
    lines: list[str] = []
    for word in text.split():
        if lines and svg.text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(svg.fitted(word, size, width))
    return lines


def _paragraph(lines: Sequence[str], y: float) -> tuple[list[Markup], float]:
    """Small lines of text below y, and the y where they end."""
    return [svg.text(0, y + 13 * (k + 1), line, "m") for k, line in enumerate(lines)], (
        y + 13 * len(lines)
    )


def _rung_bar(ns: Interval | Unknown, above: Interval | None, frame: _Frame, y: float) -> Markup:
    """The bar of one rung, with a dashed bar for the gap to the one above it."""
    scale = frame.scale
    end = frame.width - 2 if above is None else above.value * scale
    if isinstance(ns, Unknown):
        return svg.hatched(f"unknown: {ns.why}", 0, y, max(end - 1, 3), 15, frame.name)
    length = max(ns.value * scale, 1.5)
    parts = []
    if above is not None and end - length > 2:
        parts.append(
            svg.tag(
                "rect", x=length, y=y + 0.5, width=end - length - 0.5, height=15, class_="ghost"
            )
        )
    look = "now" if above is None else "rung"
    parts.append(svg.tag("rect", x=0, y=y, width=length, height=16, class_=look))
    parts += svg.whisker(ns.low * scale, ns.high * scale, y + 8)
    return Markup("").join(parts)


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
