"""Experiments: what to fix, what to leave, the ladder of ceilings, share of time beside gain."""

from collections.abc import Mapping

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report import statements
from hotloop.report.charts.ladder import ladder_waterfall
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.charts.tornado import tornado
from hotloop.report.console import headed_table, marked, print_warnings
from hotloop.report.iteration import iteration_charts, simplify_window
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import Form, duration, interval, measured, number, percent, rate, times
from hotloop.report.ranks import print_ranks, rank_tables
from hotloop.report.section import (
    ChartView,
    Footnotes,
    Section,
    TableView,
    Tile,
    as_sentence,
    figure_markup,
    number_markup,
    sentence_markup,
    stage_name,
)
from hotloop.report.sentence import Sentence
from hotloop.report.simplify_format import SIMPLIFY_FORMAT
from hotloop.report.simplify_metrics import simplify_metrics
from hotloop.simplify.ceilings import Rung
from hotloop.simplify.record import Record
from hotloop.simplify.saved_run import judge_run
from hotloop.simplify.verdict import Verdict

Judged = tuple[Verdict, Record]

# --- in the terminal ----------------------------------------------------------------------------


def print_simplify(console: Console, verdict: Verdict, run: Run) -> None:
    """Print the rate, what to fix and what to leave, a line each; then the tables."""
    for line in headline(verdict):
        console.print(line, highlight=False)
    for word, sentence in _besides(verdict):
        console.print(f"[bold]{word}[/]  {marked(sentence)}", highlight=False)
    console.print()
    console.print(verdict_table(verdict))
    for line in statements.remarks(verdict):
        console.print(f"[dim]{escape(line)}[/]", highlight=False)
    _print_ladder(console, verdict)
    if verdict.ranks is not None:
        print_ranks(console, verdict.ranks)
    console.print(f"[dim]{statements.noise(verdict)}[/]", highlight=False)
    console.print(f"[dim]{describe(run.host)}[/]", highlight=False)
    print_warnings(console, verdict.warnings)


def _besides(verdict: Verdict) -> list[tuple[str, Sentence]]:
    """What the answer cannot speak of: stages without a gain, and the time between stages."""
    said = {"unknown": statements.unknown(verdict), "the rest": statements.rest(verdict)}
    return [(word, sentence) for word, sentence in said.items() if sentence is not None]


def headline(verdict: Verdict) -> list[str]:
    """The answer in three lines of markup: the rate, what to fix, what to leave."""
    answer = f"[bold]fix[/]    {marked(statements.fix(verdict))}"
    if verdict.refused is not None:
        answer = f"[bold red]no verdict[/]  {escape(verdict.refused)}"
    return [_state_line(verdict), answer, f"[bold]leave[/]  {marked(statements.leave(verdict))}"]


def verdict_table(verdict: Verdict) -> Table:
    """The share, gain and costs of each stage."""
    table = headed_table(
        [
            ("stage", "left"),
            ("share", "right"),
            ("gain if free", "left"),
            *((f"{k:g}x faster", "left") for k in verdict.faster),
            ("ceiling", "right"),
            ("waits", "right"),
            ("contends", "right"),
            ("slack", "right"),
            ("", "left"),
        ]
    )
    style = {"fix": "bold green", "leave": "dim", "unclear": "yellow", "not replaced": "dim"}
    for row in verdict.rows:
        # A stage that may be replaced has no gain where the experiment ended too early.
        gain, said = ("delayed only", row.verdict) if row.not_replaced else ("too few rounds", "")
        if isinstance(row.gain, Interval):
            gain, said = interval(row.gain, percent), row.verdict
        slack = row.slack
        table.add_row(
            ("  " if row.inside else "") + escape(row.name),
            percent(row.share),
            gain,
            *(_value(gain, percent) for gain in row.faster.values()),
            _value(row.ceiling_ns, duration),
            _value(row.latency_ns, duration),
            _value(row.interference_ns, duration),
            "-" if isinstance(slack, Unknown) else duration(slack.slack_ns.value),
            f"[{style[row.verdict]}]{said}[/]"
            + (f" [dim]({escape(row.not_replaced)})[/]" if row.not_replaced else ""),
        )
    if verdict.rest is not None:
        left = verdict.rest.left
        empty = [""] * (5 + len(verdict.faster))
        said = f"{percent(left.value)} left if all is free" if isinstance(left, Interval) else ""
        table.add_row("the rest", percent(verdict.rest.share), *empty, f"[dim]{said}[/]")
    return table


def _value(of: Figure, form: Form) -> str:
    return "-" if not isinstance(of, Interval) else form(of.value)


def _print_ladder(console: Console, verdict: Verdict) -> None:
    found = verdict.ladder
    if isinstance(found, Unknown):
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ladder", "iteration", f"{verdict.unit}/s", "set by", "the gap above closes by"):
        table.add_column(name)
    for rung in found.rungs:
        if isinstance(rung.ns, Unknown):
            table.add_row(rung.name, "unknown", "", f"[dim]{escape(rung.ns.why)}[/]", "")
            continue
        table.add_row(
            rung.name,
            measured(rung.ns, duration),
            number(verdict.units_per_iteration / rung.ns.value * 1e9)
            if rung.ns.value
            else "no limit",
            escape(rung.set_by),
            rung.to_gain,
        )
    console.print(table)
    console.print(f"[dim]{escape(statements.model(found))}[/]", highlight=False)


def _state_line(verdict: Verdict) -> str:
    target, now = f"[bold]{escape(verdict.target)}[/]", statements.state(verdict)
    if isinstance(now, Unknown):
        return f"{target}  its rate is not known: {escape(now.why)}"
    # The time of an iteration is in the ladder: this has to stay one line.
    line = f"{target}  {rate(verdict.units_per_iteration, now.now_ns)} {escape(verdict.unit)}/s"
    if isinstance(verdict.ladder, Unknown):
        return f"{line}; no ceilings: {escape(verdict.ladder.why)}"
    factors = [
        f"{escape(rung.name)} {times(now.base_ns, rung.ns, ends=False)}"
        for rung in now.ceilings
        if isinstance(rung.ns, Interval)
    ]
    return f"{line}; ceilings: {', '.join(factors)}"


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, judged: Judged, run: Run) -> Section:
    verdict, key, colours = judged[0], page.key, page.colours
    charts = [_ladder_charts(key, verdict)]
    if verdict.rows:
        charts.append(_tornado_charts(key, run, verdict, colours))
    # Recording the stages slows the loop: a benchmark's timeline of the same target is better.
    if not any(other.verb == "benchmark" and other.target == run.target for other in page.runs):
        charts += iteration_charts(key, run, colours, simplify_window)
    return Section(
        key=key,
        run=run,
        heading="What holds it back",
        refused=verdict.refused,
        answer=_answer(verdict),
        tiles=_tiles(verdict),
        charts=charts,
        tables=[
            *([_worth_table(verdict, colours), _cost_table(verdict, colours)] * bool(verdict.rows)),
            *rank_tables(verdict.ranks),
        ],
        warnings=verdict.warnings,
    )


def _ladder_charts(key: str, verdict: Verdict) -> ChartView:
    return ChartView(
        "How fast it could be",
        "The ladder from now to the machine’s roof, and what closes each gap.",
        [
            ladder_waterfall(
                statements.rungs(verdict),
                verdict.unit,
                verdict.units_per_iteration,
                width=width,
                name=f"{key}-ladder-{width}",
                refused=verdict.refused is not None,
            )
            for width in (WIDE, NARROW)
        ],
        notes=_ladder_notes(verdict),
    )


def _ladder_notes(verdict: Verdict) -> list[str]:
    if isinstance(verdict.ladder, Unknown):
        return [f"No ceilings: {verdict.ladder.why}."]
    return [
        "Bars are times of an iteration; the dashed part is what the rung saves. A factor’s "
        "interval runs from its worst to its best case. All rungs are from the rounds in which "
        "every arm of the ladder ran, so now may differ a little from the rate above.",
        as_sentence(statements.model(verdict.ladder)),
    ]


def _tornado_charts(key: str, run: Run, verdict: Verdict, colours: Mapping[str, int]) -> ChartView:
    worth = float(run.settings["worth"])
    return ChartView(
        "Share of time beside gain",
        "Left, the part of an iteration that a stage takes; right, what the loop gained when the "
        "stage cost nothing. One scale for both.",
        [
            tornado(
                verdict.rows,
                colours,
                worth=worth,
                width=width,
                name=f"{key}-tornado-{width}",
                refused=verdict.refused is not None,
            )
            for width in (WIDE, NARROW)
        ],
        notes=[
            f"Whiskers cover 95%; the dashed line is the smallest gain that counts, "
            f"{percent(worth)}.",
            *(f"{line}." for line in statements.remarks(verdict)),
            f"{statements.noise(verdict)}.",
        ],
    )


def _answer(verdict: Verdict) -> list[tuple[str, Markup]]:
    if verdict.refused is not None:
        return []
    return [
        ("fix", sentence_markup(statements.fix(verdict))),
        ("leave", sentence_markup(statements.leave(verdict))),
        *((word, sentence_markup(sentence)) for word, sentence in _besides(verdict)),
    ]


def _tiles(verdict: Verdict) -> list[Tile]:
    state = statements.state(verdict)
    if isinstance(state, Unknown):
        return [Tile("now", figure_markup(state))]
    now = number_markup(rate(verdict.units_per_iteration, state.now_ns))
    note = f"{verdict.unit}/s; {interval(state.now_ns, duration)} an iteration"
    return [Tile("now", now, note), *(_ceiling_tile(state, rung) for rung in state.ceilings)]


def _ceiling_tile(state: statements.State, rung: Rung) -> Tile:
    if isinstance(rung.ns, Unknown):
        return Tile(rung.name, Markup('<span class="unknown">unknown</span>'), rung.ns.why)
    return Tile(rung.name, number_markup(times(state.base_ns, rung.ns)), f"set by {rung.set_by}")


def _worth_table(verdict: Verdict, colours: Mapping[str, int]) -> TableView:
    refused, notes = verdict.refused is not None, Footnotes()
    rows: list[list[Markup | str]] = [
        [
            stage_name(row, colours),
            figure_markup(row.share, percent),
            notes.cell(row.gain, percent),
            *(notes.cell(gain, percent) for gain in row.faster.values()),
            notes.cell(row.ceiling_ns, duration),
            notes.chance(row.p_adjusted),
            "no verdict" if refused else row.verdict,
        ]
        for row in verdict.rows
    ]
    return TableView(
        "What each stage is worth",
        [
            "stage",
            "share",
            "gain if free",
            *(f"{k:g} times as fast" for k in verdict.faster),
            "ceiling",
            "p",
            "verdict",
        ],
        rows,
        notes.reasons,
        ["p: adjusted for the number of comparisons (Holm)."],
        refused,
    )


def _cost_table(verdict: Verdict, colours: Mapping[str, int]) -> TableView:
    notes = Footnotes()
    rows: list[list[Markup | str]] = [
        [
            stage_name(row, colours),
            figure_markup(row.ns_per_iteration, duration),
            figure_markup(row.calls_per_iteration),
            notes.cell(row.latency_ns, duration),
            notes.cell(row.interference_ns, duration),
            notes.cell(
                row.slack if isinstance(row.slack, Unknown) else row.slack.slack_ns, duration
            ),
            row.cost,
        ]
        for row in verdict.rows
    ]
    return TableView(
        "How each stage costs",
        ["stage", "an iteration", "calls", "waited for", "taken from others", "slack", "cost"],
        rows,
        notes.reasons,
        ["Slack: how long the stage can be held up in an iteration before the loop is slower."],
        verdict.refused is not None,
    )


SIMPLIFY = Kind[Judged](
    format=SIMPLIFY_FORMAT,
    summarize=judge_run,
    print=lambda console, judged, run: print_simplify(console, judged[0], run),
    section=_section,
    json=lambda judged, _run: judged[0],
    has_samples=lambda run: len(run.arrays["ns"]) > 0,
    metrics=lambda judged, run: simplify_metrics(judged[0], run),
)
