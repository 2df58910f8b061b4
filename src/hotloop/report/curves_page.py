"""Curves over steps on the page: the answer, the charts and the table."""

from collections.abc import Sequence

from markupsafe import Markup

from hotloop.report.charts.curves import curve_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.curves import Curve, table_head, table_rows
from hotloop.report.section import ChartView, TableView, as_sentence, number_markup, sentence_markup
from hotloop.report.sentence import Sentence


def answer_view(lines: Sequence[tuple[str, Sentence]]) -> list[tuple[str, Markup]]:
    """The lines of an answer, each after its word."""
    return [(word, sentence_markup(words)) for word, words in lines]


def curve_charts(key: str, curves: Sequence[Curve], lead: str) -> list[ChartView]:
    """A chart for each curve. lead: says what line and band are."""
    return [
        ChartView(
            as_sentence(f"{curve.name} by {curve.step}").removesuffix("."),
            lead if curve.has_band else "One run.",
            both_widths(key, curve),
            legend=[
                ("simulated", curve.colour),
                *([("observed", 1)] if curve.observed is not None else []),
            ],
        )
        for curve in curves
    ]


def both_widths(key: str, curve: Curve) -> list[Markup]:
    """The chart of a curve in the page's two widths."""
    place = "-".join(curve.name.split())
    return [
        curve_chart(curve, width=width, name=f"{key}-{place}-{width}") for width in (WIDE, NARROW)
    ]


def curve_view(curves: Sequence[Curve]) -> TableView:
    """One row for each step."""
    step = curves[0].step
    rows: list[list[Markup | str]] = [
        [row[0], *(number_markup(cell) for cell in row[1:])] for row in table_rows(curves)
    ]
    return TableView(
        as_sentence(f"{step} by {step}").removesuffix("."), table_head(curves), rows, []
    )
