"""Splits of a machine between acting and learning: the best one, and every other."""

from typing import Any, TypedDict

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from hotloop.errors import HotloopError
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.plan.split import Split, SplitPlan, plan_split
from hotloop.report.console import headed_table, print_answer, print_warnings
from hotloop.report.format import Format
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import figure, measured, number, percent
from hotloop.report.section import Section, TableView, Tile, number_markup, sentence_markup
from hotloop.report.sentence import Amount, Name, Sentence


class _Split(TypedDict):
    """A measured split."""

    act_cores: int
    learn_cores: int
    sps: float


def _splits_problem(run: Run) -> str | None:
    """Say what cannot be forecast: a number, or splits that no model fits."""
    for saved in run.facts["splits"]:
        if not 0 < saved["sps"] < float("inf"):
            return f"sps: expected a number above 0, got {saved['sps']}"
    try:
        summarize_split(run)
    except HotloopError as error:
        return str(error)
    return None


def summarize_split(run: Run) -> SplitPlan:
    """The plan of a saved run."""
    splits = [Split(s["act_cores"], s["learn_cores"], s["sps"]) for s in run.facts["splits"]]
    return plan_split(splits, run.settings["cores"])


def _answer(plan: SplitPlan) -> list[tuple[str, Sentence]]:
    best = plan.forecasts[plan.best]
    lines: list[tuple[str, Sentence]] = [
        ("best", [Name(str(best.split)), ": ", Amount(best.sps, number), " SPS"]),
        ("in turn", ["all cores act, then all learn: ", Amount(plan.in_turn, number), " SPS"]),
        (
            "model",
            [
                "a core acts ",
                Amount(plan.act_per_core, number),
                " SPS, one learns ",
                Amount(plan.learn_of_one, number),
                ", and ",
                Amount(plan.serial_share, percent),
                " of learning gains nothing from more cores",
            ],
        ),
    ]
    return lines


COLUMNS = (("acting", "right"), ("learning", "right"), ("SPS", "right"), ("limited by", "left"))
_MEASURED = ("measured", "right")


def _rows(plan: SplitPlan, run: Run) -> list[list[str]]:
    known = {(s["act_cores"], s["learn_cores"]): s["sps"] for s in run.facts["splits"]}
    rows = []
    for each in plan.forecasts:
        at = (each.split.act_cores, each.split.learn_cores)
        rows.append(
            [
                str(at[0]),
                str(at[1]),
                figure(each.sps),
                each.limited_by,
                number(known[at]) if at in known else "",
            ]
        )
    return rows


def print_split(console: Console, plan: SplitPlan, run: Run) -> None:
    """Print the best split, then all of them."""
    title = f"[bold]{plan.cores} cores, from {escape(run.target)}[/]  {describe(run.host)}"
    console.print(title, highlight=False)
    print_answer(console, _answer(plan))
    console.print()
    table = headed_table((*COLUMNS, _MEASURED))
    for place, row in enumerate(_rows(plan, run)):
        table.add_row(*row, style="bold green" if place == plan.best else "")
    console.print(table)
    print_warnings(console, plan.gaps)


def _section(page: PageContext, plan: SplitPlan, run: Run) -> Section:
    rows: list[list[Markup | str]] = [list(row) for row in _rows(plan, run)]
    best = plan.forecasts[plan.best]
    return Section(
        key=page.key,
        run=run,
        heading=f"How to share {plan.cores} cores between acting and learning",
        tiles=[Tile("env steps per second", number_markup(measured(best.sps)), str(best.split))],
        charts=[],
        warnings=plan.gaps,
        answer=[(word, sentence_markup(words)) for word, words in _answer(plan)],
        tables=[
            TableView("Every split", [name for name, _ in (*COLUMNS, _MEASURED)], rows, []),
        ],
    )


def split_json(plan: SplitPlan, _run: Run) -> dict[str, Any]:
    """What `--json` prints."""
    predictions = [
        {
            "act_cores": each.split.act_cores,
            "learn_cores": each.split.learn_cores,
            "sps": each.sps.value,
            "interval": [each.sps.low, each.sps.high],
            "limited_by": each.limited_by,
        }
        for each in plan.forecasts
    ]
    return {
        "cores": plan.cores,
        "best": predictions[plan.best],
        "in_turn": plan.in_turn,
        "predictions": predictions,
        "undetermined": plan.gaps,
    }


SPLIT = Kind[SplitPlan](
    format=Format(settings={"cores": int}, facts={"splits": list[_Split]}, check=_splits_problem),
    summarize=summarize_split,
    print=print_split,
    section=_section,
    json=split_json,
    has_samples=lambda run: bool(run.facts["splits"]),
)
