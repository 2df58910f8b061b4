"""A flame graph: what calls what, from the stages down; the width is the share of the samples."""

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from hotloop.profile.flame import Node
from hotloop.report.charts import svg
from hotloop.report.section import ChartView

ROW, LEAST_PX, LETTER_PX = 17.0, 1.5, 6.6
DEEPEST = 28


def flame_views(key: str, root: Node, colours: Mapping[str, int]) -> list[ChartView]:
    """The flame graph in both widths; none without samples."""
    if not root.count:
        return []
    return [
        ChartView(
            "Flame graph",
            "Each bar is a function, as wide as its share of the samples; what it calls is below.",
            [_drawn(key, root, width, colours) for width in (svg.WIDE, svg.NARROW)],
        )
    ]


def _drawn(key: str, root: Node, width: float, colours: Mapping[str, int]) -> Markup:
    bars = list(_bars(root, 0, 0.0, width / root.count, root.count, None, colours))
    rows = 1 + max(row for row, _ in bars)
    return svg.drawing(
        (bar for _, bar in bars),
        width,
        rows * ROW,
        name=f"{key}-flame-{round(width)}",
        title="Flame graph",
        description="; ".join(
            f"{child.name} {child.count / root.count:.0%}" for child in root.children[:8]
        ),
        look="flame",
    )


def _bars(
    node: Node,
    row: int,
    left: float,
    per_sample: float,
    total: int,
    stage: str | None,
    colours: Mapping[str, int],
) -> Iterator[tuple[int, Markup]]:
    if node.is_stage:
        stage = node.name.partition(": ")[2]
    wide = node.count * per_sample
    shown = node.name.rpartition(".")[2] if len(node.name) * LETTER_PX > wide else node.name
    look = "unstaged" if stage is None else svg.stage_class(stage, colours)
    yield (
        row,
        svg.tag(
            "g",
            svg.tag(
                "rect",
                x=left,
                y=row * ROW,
                width=max(wide - 0.5, 0.5),
                height=ROW - 1,
                class_="call",
            ),
            svg.text(
                left + 3, row * ROW + 12, shown if len(shown) * LETTER_PX < wide else "", "on"
            ),
            svg.tooltip(f"{node.name}, {node.count / total:.1%} {node.file}"),
            class_=look,
        ),
    )
    if row == DEEPEST:
        return
    for child in node.children:
        if child.count * per_sample >= LEAST_PX:
            yield from _bars(child, row + 1, left, per_sample, total, stage, colours)
        left += child.count * per_sample
