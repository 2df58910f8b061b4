"""Comparisons: which of two sides is faster, by how much, and how that became known."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Interval
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE_A, RATE_B, RATIO, SECONDS, Metric, known
from hotloop.repeat.estimate import launches_of, looks_of
from hotloop.repeat.record import COLUMNS, Record
from hotloop.repeat.verdict import ALPHA, CANNOT_SAY, FASTER, SAME, SLOWER, Measured, Verdict, judge
from hotloop.report.charts.looks import looks_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.console import print_warnings
from hotloop.report.format import Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import figure, number, seconds
from hotloop.report.section import ChartView, Section, Tile, number_markup

COLOURS = {FASTER: "green", SLOWER: "red", SAME: "green", CANNOT_SAY: "yellow"}


def record_of(run: Run) -> Record:
    """The blocks that a run holds."""
    columns = [run.arrays[name] for name in COLUMNS]
    return Record(
        unit=run.facts["unit"],
        budget_s=run.facts["budget_s"],
        rows=list(zip(*(column.tolist() for column in columns), strict=True)),
        ended_s=run.arrays["ended_s"].tolist(),
        last_look=run.facts["last_look"],
    )


def comparison_problem(run: Run) -> str | None:
    """Say what does not fit in the blocks of two sides; None if it fits."""
    if len(run.facts["sides"]) != 2:
        return f"facts: sides: expected two, got {len(run.facts['sides'])}"
    if not np.isin(run.arrays["side"], (0, 1)).all():
        return "arrays: side: expected 0 for A or 1 for B"
    launch, ended_s = run.arrays["launch"], run.arrays["ended_s"]
    if not (np.isin(launch, np.arange(len(launch))).all() and (np.diff(launch) >= 0).all()):
        return "arrays: launch: expected numbers from 0 up"
    if not (np.diff(ended_s, prepend=0) > 0).all():
        return "arrays: ended_s: expected times that grow"
    launches = launches_of(record_of(run))
    if not ((launches.seconds > 0) & (launches.units > 0)).all():
        return "arrays: expected time and units of both sides in each launch"
    return None


COMPARE_FORMAT = Format(
    settings={"budget": Positive, "margin": Positive},
    facts={"unit": str, "budget_s": Positive, "last_look": bool, "sides": list[str]},
    arrays=dict.fromkeys(COLUMNS, "real blocks") | {"ended_s": "real launches"},
    check=comparison_problem,
)


def _verdict(run: Run) -> Verdict:
    return judge(record_of(run), run.settings["margin"])


def print_compare(console: Console, verdict: Verdict, run: Run) -> None:
    """Print the answer in three lines."""
    colour = COLOURS[verdict.verdict]
    console.print(
        f"[bold {colour}]{verdict.verdict}[/]  {escape(answer(verdict))}", highlight=False
    )
    for line in (rates(verdict, run), how(verdict, run)):
        console.print(escape(line), highlight=False, soft_wrap=True)
    print_warnings(console, warnings_of(run))


def answer(verdict: Verdict) -> str:
    """The first line behind its word."""
    margin = f"{100 * verdict.margin:g}%"
    if not isinstance(verdict.ratio, Interval):
        return f"{figure(verdict.ratio)}; {more_time(verdict)}"
    if verdict.verdict in (SLOWER, FASTER):
        return difference(verdict.ratio)
    gap = f"B's time differs by {percent(verdict.ratio)} from A's"
    if verdict.verdict == SAME:
        return f"within {margin}: {gap}"
    return f"{gap}: by more than 0, or less than {margin}? {more_time(verdict)}"


def difference(ratio: Interval) -> str:
    """What B's time is, where it is known to differ from A's."""
    word, sign = ("more", 1) if ratio.value > 1 else ("less", -1)
    low, high = sorted(100 * sign * (each - 1) for each in (ratio.low, ratio.high))
    return f"B takes {100 * abs(ratio.value - 1):.1f}% [{low:.1f}, {high:.1f}] {word} time than A"


def rates(verdict: Measured, run: Run) -> str:
    """The second line: how fast either side is."""
    return "   ".join(
        f"{name}: {figure(rate)} {verdict.unit}/s  {label}"
        for name, rate, label in zip(
            "AB", (verdict.rate_a, verdict.rate_b), _labels(run), strict=True
        )
    )


def how(verdict: Measured, run: Run) -> str:
    """The third line: what the answer stands on."""
    what = "runs" if verdict.unit == "runs" else "launches"
    stolen = f"{100 * verdict.stolen:.0f}% of it taken by other programs and left out"
    bound = "" if verdict.bound_by_processor else "; a side waits, so its time has noise of others"
    return (
        f"{verdict.launches} {what} of both in {seconds(verdict.seconds)}, {stolen}{bound}; "
        f"{describe(run.host)}"
    )


def percent(ratio: Interval) -> str:
    """A ratio as a change with its interval, such as "+3.1% [+2.2, +4.0]"."""
    value, low, high = (100 * (each - 1) for each in (ratio.value, ratio.low, ratio.high))
    return f"{value:+.1f}% [{low:+.1f}, {high:+.1f}]"


def more_time(verdict: Measured) -> str:
    """What it would take to know."""
    if verdict.needed_s is None:
        return "nothing was measured"
    return f"--budget {_rounded(verdict.needed_s)} would be about enough"


def warnings_of(run: Run) -> list[str]:
    """What a reader must know besides."""
    return [] if run.complete else ["it was interrupted; this is what had been measured"]


def _rounded(time_s: float) -> int:
    """A time in seconds, as a person would give it."""
    step = 10 if time_s < 300 else 60
    return int(-(-time_s // step) * step)


def _labels(run: Run) -> Iterator[str]:
    yield from run.facts["sides"]


def _section(page: PageContext, verdict: Verdict, run: Run) -> Section:
    return Section(
        key=page.key,
        run=run,
        heading="Which is faster",
        tiles=[
            Tile("B is", number_markup(verdict.verdict), answer(verdict)),
            Tile("A", number_markup(number_text(verdict.rate_a)), f"{verdict.unit}/s"),
            Tile("B", number_markup(number_text(verdict.rate_b)), f"{verdict.unit}/s"),
        ],
        charts=looks_view(page, run, (ALPHA / 2, ALPHA / 2), (-verdict.margin, verdict.margin)),
        warnings=warnings_of(run),
    )


def looks_view(
    page: PageContext, run: Run, alphas: tuple[float, float], limits: Sequence[float]
) -> list[ChartView]:
    """The chart of the looks; none where too few launches were made for one.

    alphas: the probabilities that the lower and the upper end are wrong at any look.
    """
    record = record_of(run)
    looks = list(looks_of(record, *alphas))
    if not looks:
        return []
    ratios = np.expm1(launches_of(record).ratio).tolist()
    return [
        ChartView(
            "How it became known",
            "The slowdown of B and its interval after more and more launches of both, and that of "
            "each launch alone. The intervals allow for having been looked at again and again.",
            [
                looks_chart(looks, ratios, limits, width=width, name=f"{page.key}-looks-{width}")
                for width in (WIDE, NARROW)
            ],
        )
    ]


def number_text(rate: Any) -> str:
    """A rate, or a dash."""
    return number(rate) if isinstance(rate, float) else "–"


def _json(verdict: Verdict, _run: Run) -> Any:
    return verdict


def _metrics(verdict: Verdict, _run: Run) -> dict[str, Metric]:
    unit = f"{verdict.unit}/s"
    return known(
        {
            RATIO: (verdict.ratio, ""),
            RATE_A: (verdict.rate_a, unit),
            RATE_B: (verdict.rate_b, unit),
            SECONDS: (verdict.seconds, "s"),
        }
    )


COMPARE = Kind[Verdict](
    format=COMPARE_FORMAT,
    summarize=_verdict,
    print=print_compare,
    section=_section,
    json=_json,
    has_samples=lambda run: len(run.arrays["wall_ns"]) > 1,
    metrics=_metrics,
)
