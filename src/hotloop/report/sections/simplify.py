"""The section of an experiment: the answer, the ladder, share beside gain, and the two tables."""

from collections.abc import Mapping

from markupsafe import Markup

from hotloop.benchmark.summary import Unknown
from hotloop.loop.run import Run
from hotloop.report import statements
from hotloop.report.charts.ladder import ladder_waterfall
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.charts.tornado import tornado
from hotloop.report.numbers import duration, interval, percent, rate, times
from hotloop.report.sections.iteration import iteration_charts
from hotloop.report.sections.section import (
    Charts,
    Footnotes,
    Section,
    TableView,
    Tile,
    apart,
    capital,
    measure,
    sentence,
    stage_name,
)
from hotloop.simplify.ceilings import Rung
from hotloop.simplify.verdict import Verdict, judge_run


def simplify_section(
    key: str, run: Run, colours: Mapping[str, int], *, with_timeline: bool
) -> Section:
    """What the page says about one experiment. key: unique on the page."""
    verdict, _ = judge_run(run)
    charts = [_ladder_charts(key, verdict)]
    if verdict.rows:
        charts.append(_tornado_charts(key, run, verdict, colours))
    if with_timeline:
        charts += iteration_charts(key, run, colours)
    return Section(
        key=key,
        run=run,
        heading="What holds it back",
        refused=verdict.refused,
        answer=_answer(verdict),
        tiles=_tiles(verdict),
        figures=charts,
        tables=[_worth_table(verdict, colours), _cost_table(verdict, colours)]
        if verdict.rows
        else [],
        warnings=verdict.warnings,
    )


def _ladder_charts(key: str, verdict: Verdict) -> Charts:
    return Charts(
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
        capital(statements.model(verdict.ladder)),
    ]


def _tornado_charts(key: str, run: Run, verdict: Verdict, colours: Mapping[str, int]) -> Charts:
    worth = float(run.settings["worth"])
    return Charts(
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
            *(f"{pair}." for pair in statements.pairs(verdict)),
            f"{statements.restlessness(verdict)}.",
        ],
    )


def _answer(verdict: Verdict) -> list[tuple[str, Markup]]:
    if verdict.refused is not None:
        return []
    unknown = statements.unknown(verdict)
    return [
        ("fix", sentence(statements.fix(verdict))),
        ("leave", sentence(statements.leave(verdict))),
        *([("unknown", sentence(unknown))] if unknown else []),
    ]


def _tiles(verdict: Verdict) -> list[Tile]:
    state = statements.state(verdict)
    if isinstance(state, Unknown):
        return [Tile("now", measure(state))]
    now = apart(rate(verdict.units_per_iteration, state.now_ns))
    note = f"{verdict.unit}/s; {interval(state.now_ns, duration)} an iteration"
    return [Tile("now", now, note), *(_ceiling_tile(state, rung) for rung in state.ceilings)]


def _ceiling_tile(state: statements.State, rung: Rung) -> Tile:
    if isinstance(rung.ns, Unknown):
        return Tile(rung.name, Markup('<span class="unknown">unknown</span>'), rung.ns.why)
    return Tile(rung.name, apart(times(state.base_ns, rung.ns)), f"set by {rung.set_by}")


def _worth_table(verdict: Verdict, colours: Mapping[str, int]) -> TableView:
    refused, notes = verdict.refused is not None, Footnotes()
    rows: list[list[Markup | str]] = [
        [
            stage_name(row, colours),
            measure(row.share, percent),
            notes.cell(row.gain, percent),
            *(notes.cell(gain, percent) for gain in row.faster.values()),
            notes.cell(row.ceiling_ns, duration),
            notes.cell(Unknown("no test ran") if row.p_adjusted is None else row.p_adjusted),
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
            measure(row.ns_per_iteration, duration),
            measure(row.calls_per_iteration),
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
