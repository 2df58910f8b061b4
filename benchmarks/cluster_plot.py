"""The plot of the cluster table: efficiency against nodes, one panel for each step duration.

Plain SVG whose colours can be told apart on light and on dark pages and by most colour-blind eyes;
dashes tell the lines apart without colour.
"""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, PANEL, HEIGHT, TOP, LEFT, GAP = 860, 180, 170, 48, 44, 24
GREY = "#808080"
LOOKS = (("#2a9d5c", ""), ("#3b82d0", "6 3"), ("#9b6bd3", "2 3"), ("#d9722e", "8 3 2 3"))
Lines = Mapping[str, Sequence[float | None]]


def plot(panels: Mapping[float, Lines], nodes: Sequence[int]) -> str:
    """An SVG document. panels: by step duration in s, efficiency (0 to 1) at `nodes` by name."""
    names = list(next(iter(panels.values())))
    parts = [_legend(names)]
    for place, (step_s, lines) in enumerate(panels.items()):
        left = LEFT + place * (PANEL + GAP)
        parts.append(_panel(left, f"steps of {step_s:g} s", lines, nodes, place == 0))
    height = TOP + HEIGHT + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{GREY}" role="img">'
        "<title>Efficiency against nodes of 48 cores</title>"
        "<desc>Share of the ideal steps per second that arrives at the head, for each duration of "
        f"a step and each way to bring them there</desc>{''.join(parts)}</svg>\n"
    )


def _legend(names: Sequence[str]) -> str:
    parts = []
    for place, name in enumerate(names):
        x = LEFT + place * 190
        parts.append(
            f'<line x1="{x}" y1="14" x2="{x + 28}" y2="14" {_look(place)}/>'
            f'<text x="{x + 34}" y="18">{escape(name)}</text>'
        )
    return "".join(parts)


def _panel(left: int, title: str, lines: Lines, nodes: Sequence[int], labelled: bool) -> str:
    parts = [f'<text x="{left + PANEL / 2}" y="{TOP - 10}" text-anchor="middle">{title}</text>']
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="{GREY}" '
            'stroke-opacity="0.35"/>'
        )
        if labelled:
            parts.append(
                f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{percent}%</text>'
            )
    for place, count in enumerate(nodes):
        x = _x(left, place, len(nodes))
        parts.append(
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{count}</text>'
        )
    parts.append(
        f'<text x="{left + PANEL / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">nodes</text>'
    )
    for number, values in enumerate(lines.values()):
        points = [
            (_x(left, place, len(nodes)), _y(value))
            for place, value in enumerate(values)
            if value is not None
        ]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{joined}" fill="none" {_look(number)}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {_fill(number)}/>' for x, y in points]
    return "".join(parts)


def _x(left: int, place: int, count: int) -> float:
    return left + 12 + place * (PANEL - 24) / (count - 1)


def _y(efficiency: float) -> float:
    return TOP + HEIGHT * (1 - efficiency)


def _look(number: int) -> str:
    colour, dashes = LOOKS[number]
    return f'stroke="{colour}" stroke-width="2"' + (
        f' stroke-dasharray="{dashes}"' if dashes else ""
    )


def _fill(number: int) -> str:
    return f'fill="{LOOKS[number][0]}"'
