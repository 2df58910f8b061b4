"""Elements that several charts share: tags, text that fits, ticks, whiskers, hatching.

Coordinates are CSS pixels, y downwards. Colours and fonts are set by the page's stylesheet.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape

WIDE, NARROW = 720, 340
TEXT, SMALL = 12.5, 11.0
COLOURS = 20  # of the stylesheet; more stages repeat them and differ by their names

# Characters that XML cannot hold, not even escaped.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def drawing(
    parts: Iterable[Markup],
    width: float,
    height: float,
    *,
    name: str,
    title: str,
    description: str,
    look: str,
) -> Markup:
    """A chart of these parts.

    name: unique on the page; description: for screen readers; look: its class of the stylesheet.
    """
    size = "wide" if width >= 500 else "narrow"
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {px(width)} {px(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=f"chart {size} {look}",
    )


def stage_class(name: str, colours: Mapping[str, int]) -> str:
    """The class that gives a stage its colour."""
    return f"s{colours.get(name, 0) % COLOURS}"


def tag(kind: str, *content: str | Markup, **attributes: str | float) -> Markup:
    """An element; attributes, and content that is not markup, are escaped."""
    written = "".join(
        f' {_attribute(key)}="{escape(_clean(value))}"' for key, value in attributes.items()
    )
    inner = "".join(
        part if isinstance(part, Markup) else str(escape(_clean(part))) for part in content
    )
    return Markup(f"<{kind}{written}>{inner}</{kind}>" if inner else f"<{kind}{written}/>")


def tooltip(text: str) -> Markup:
    """A text that is shown while the pointer rests on the element around it."""
    return tag("title", text)


def text(x: float, y: float, shown: str, class_: str, anchor: str = "start") -> Markup:
    """A line of text with its baseline at y; nothing if it is empty."""
    if not shown:
        return Markup("")
    if anchor == "start":
        return tag("text", shown, x=x, y=y, class_=class_)
    return tag("text", shown, x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "axis") -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def whisker(low: float, high: float, y: float) -> list[Markup]:
    """An interval as a line with two ends; nothing if it is too short or infinite."""
    if not (math.isfinite(low) and math.isfinite(high)) or high - low < 0.2:
        return []
    path = f"M{px(low)} {px(y)}H{px(high)}M{px(low)} {px(y - 4)}v8M{px(high)} {px(y - 4)}v8"
    return [tag("path", d=path, class_="halo whisker"), tag("path", d=path, class_="whisker")]


def hatch(name: str) -> Markup:
    """The definition of the hatching, one of the parts of the chart with this name."""
    stroke = tag("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5", class_="hatch")
    pattern = tag(
        "pattern",
        stroke,
        id=f"{name}-hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )
    return tag("defs", pattern)


def hatched(why: str, x: float, y: float, width: float, height: float, name: str) -> Markup:
    """A hatched bar, for an unknown length, in the chart with this name. why: its tooltip."""
    return tag(
        "rect",
        tooltip(why),
        x=x + 0.5,
        y=y + 0.5,
        width=width,
        height=height,
        class_="unknown",
        fill=f"url(#{name}-hatch)",
    )


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from low to high. about: how many of them, roughly."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def text_width(shown: str, size: float) -> float:
    """The width of a text in a system font, in px: an estimate that is rather too large."""
    return size * sum(_em(char) for char in shown)


def fitted(shown: str, size: float, width: float) -> str:
    """The text, cut with an ellipsis if it is too wide."""
    if text_width(shown, size) <= width:
        return shown
    while shown and text_width(shown + "…", size) > width:
        shown = shown[:-1]
    return shown.rstrip() + "…"


def px(value: float) -> str:
    """A coordinate as text, to a tenth of a pixel."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0: no negative zero


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _clean(value: str | float) -> str:
    return _CONTROL.sub("�", value) if isinstance(value, str) else px(value)


def _em(char: str) -> float:
    if char in "ijlI.,:;|!'()[]/ ·tfr":
        return 0.36
    if char in "mwMW@%×→↳…—" or char.isupper():
        return 0.86 if char in "mwMW@%" else 0.7
    return 1.05 if unicodedata.east_asian_width(char) in "WF" else 0.59
