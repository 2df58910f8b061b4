"""Gates: whether a version is slower than its baseline, in the terminal and on the page."""

from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Interval
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE_A, RATE_B, RATIO, SECONDS, Metric, known
from hotloop.repeat.gate import (
    BLOCK_ALPHA,
    BLOCKED,
    CANNOT_SAY,
    PASS_ALPHA,
    PASSED,
    GateVerdict,
    judge_gate,
)
from hotloop.repeat.verdict import ratio_of
from hotloop.report.compare import (
    COMPARE_FORMAT,
    difference,
    how,
    looks_view,
    more_time,
    number_text,
    rates,
    record_of,
    warnings_of,
)
from hotloop.report.console import print_warnings
from hotloop.report.format import Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import figure
from hotloop.report.section import Section, Tile, number_markup

COLOURS = {BLOCKED: "red", PASSED: "green", CANNOT_SAY: "yellow"}


GATE_FORMAT = Format(
    settings={"budget": Positive, "worse": Positive},
    facts=COMPARE_FORMAT.facts,
    arrays=COMPARE_FORMAT.arrays,
    check=COMPARE_FORMAT.check,
)


def print_gate(console: Console, verdict: GateVerdict, run: Run) -> None:
    """Print the decision and what it stands on, in three lines."""
    word = f"[bold {COLOURS[verdict.verdict]}]{verdict.verdict}[/]"
    console.print(f"{word}  {escape(reason(verdict))}", highlight=False, soft_wrap=True)
    for line in (rates(verdict, run), how(verdict, run)):
        console.print(escape(line), highlight=False, soft_wrap=True)
    print_warnings(console, warnings_of(run))


def reason(verdict: GateVerdict) -> str:
    """The first line behind its word."""
    if not isinstance(verdict.slowdown, Interval):
        return f"{gap_text(verdict)}; {more_time(verdict)}"
    worse = f"{100 * verdict.worse:g}%"
    if verdict.verdict == BLOCKED:
        return difference(ratio_of(verdict.slowdown))
    gap = f"B's time differs by {gap_text(verdict)} from A's"
    if verdict.verdict == PASSED:
        return f"less than {worse} slower: {gap}"
    return f"{gap}: by more than 0, or less than {worse}? {more_time(verdict)}"


def gap_text(verdict: GateVerdict) -> str:
    """The slowdown with its interval, such as "+3.1% [+2.2, +4.0]", or why there is none."""
    gap = verdict.slowdown
    if not isinstance(gap, Interval):
        return figure(gap)
    return f"{100 * gap.value:+.1f}% [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"


def decision_text(verdict: GateVerdict) -> str:
    """The decision with its reason, in one line."""
    return f"{verdict.verdict}: {reason(verdict)}"


def gate_lines(verdict: GateVerdict, run: Run) -> list[str]:
    """The three lines of the report, and its warnings, as plain text."""
    notes = [f"note: {warning}" for warning in warnings_of(run)]
    return [decision_text(verdict), rates(verdict, run), how(verdict, run), *notes]


def _section(page: PageContext, verdict: GateVerdict, run: Run) -> Section:
    return Section(
        key=page.key,
        run=run,
        heading="Is it slower than its baseline",
        tiles=[
            Tile("the gate says", number_markup(verdict.verdict), reason(verdict)),
            Tile("A, the baseline", number_markup(number_text(verdict.rate_a)), _about(run, 0)),
            Tile("B", number_markup(number_text(verdict.rate_b)), _about(run, 1)),
        ],
        charts=looks_view(page, run, (BLOCK_ALPHA, PASS_ALPHA), (verdict.worse,)),
        warnings=warnings_of(run),
    )


def _metrics(verdict: GateVerdict, _run: Run) -> dict[str, Metric]:
    """The same names as of a comparison, so that both can be read together."""
    unit = f"{verdict.unit}/s"
    slowdown = verdict.slowdown
    ratio = ratio_of(slowdown) if isinstance(slowdown, Interval) else slowdown
    return known(
        {
            RATIO: (ratio, ""),
            RATE_A: (verdict.rate_a, unit),
            RATE_B: (verdict.rate_b, unit),
            SECONDS: (verdict.seconds, "s"),
        }
    )


def _about(run: Run, side: int) -> str:
    return f"{run.facts['unit']}/s, {run.facts['sides'][side]}"


GATE = Kind[GateVerdict](
    format=GATE_FORMAT,
    summarize=lambda run: judge_gate(record_of(run), run.settings["worse"]),
    print=print_gate,
    section=_section,
    json=lambda verdict, _run: verdict,
    has_samples=lambda run: len(run.arrays["wall_ns"]) > 1,
    metrics=_metrics,
)
