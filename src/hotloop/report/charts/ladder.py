"""The ladder: how long an iteration takes now, at each ceiling, and what closes the gap between."""

from collections.abc import Sequence

from markupsafe import Markup

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Unknown
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
    """Time of an iteration, rung by rung, and what closes the gap to the one above.

    name: unique on the page. An unknown rung is hatched, as wide as the last one that is known.
    """
    known = [rung.ns for rung in rungs if isinstance(rung.ns, Interval)]
    scale = (width - 2) / max([ns.high for ns in known] + [1.0])
    above: Interval | None = None
    parts = [svg.hatch(name)]
    y = 0.0
    for rung in rungs:
        factor, facts = "", [f"unknown: {rung.ns.why}" if isinstance(rung.ns, Unknown) else ""]
        if isinstance(rung.ns, Interval):
            factor = times(known[0], rung.ns) if above is not None else ""
            facts = [
                f"{measured(rung.ns, duration)} an iteration",
                f"{rate(units_per_iteration, rung.ns)} {unit}/s",
            ]
        parts.append(svg.text(0, y + 13, rung.name, "b"))
        parts.append(svg.text(width, y + 13, factor, "b factor", anchor="end"))
        heading = _wrapped(" · ".join(facts), svg.SMALL, width)
        if len(heading) > 1 and len(facts) > 1:  # a line for each reads better than any break
            heading = [svg.fitted(fact, svg.SMALL, width) for fact in facts]
        lines, y = _paragraph(heading, y + 15)
        bar = _rung_bar(rung.ns, above, scale, width, y + 6, name)
        caption = [f"set by {rung.set_by}" if rung.set_by else "", _closing(rung, above)]
        below = [line for part in caption for line in _wrapped(part, svg.SMALL, width)]
        captions, y = _paragraph(below, y + 24)
        parts += [*lines, bar, *captions]
        y += 20
        above = rung.ns if isinstance(rung.ns, Interval) else above
    spoken = [
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
        description="; ".join(spoken),
        shade="ladder refused" if refused else "ladder",
    )


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
    """Small lines below y, and where they end."""
    return [svg.text(0, y + 13 * (k + 1), line, "m") for k, line in enumerate(lines)], (
        y + 13 * len(lines)
    )


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
        return svg.hatched(f"unknown: {ns.why}", 0, y, max(end - 1, 3), 15, name)
    length = max(ns.value * scale, 1.5)
    parts = []
    if above is not None and end - length > 2:
        parts.append(
            svg.tag(
                "rect", x=length, y=y + 0.5, width=end - length - 0.5, height=15, class_="ghost"
            )
        )
    shade = "now" if above is None else "rung"
    parts.append(svg.tag("rect", x=0, y=y, width=length, height=16, class_=shade))
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
