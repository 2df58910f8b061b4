"""Searches for the fastest settings: what was tried, what is best, and how much it gains."""

from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.loop.run import Run
from hotloop.optimize.outcome import (
    NOT_KNOWN,
    TIME_TO_TARGET,
    Outcome,
    TrialFound,
    outcome_of,
)
from hotloop.optimize.space import written
from hotloop.repeat.entries import SECONDS, Metric, known
from hotloop.report.advice import print_advice
from hotloop.report.console import print_warnings
from hotloop.report.format import Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import seconds
from hotloop.report.section import Section, TableView, Tile, number_markup

SHOWN = 12  # choices, the fastest first
GAINED = "times faster"


def summary_of(run: Run) -> Outcome:
    """The outcome that a run holds."""
    return outcome_of(run.facts)


def optimize_problem(run: Run) -> str | None:
    """Say what does not fit in a saved search; None if it fits."""
    try:
        outcome = outcome_of(run.facts)
        # What can be drawn fits: reports need no checks of their own.
        _headline(outcome, run), _standing(outcome), _views(outcome), warnings_of(outcome, run)
        print_advice(Console(quiet=True), outcome.advice)
        known({GAINED: (outcome.gain, ""), SECONDS: (outcome.seconds, "s")})
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = " ".join(str(error).split())
        return f"facts: expected those of a search: {type(error).__name__} {what}"
    return None


def print_optimize(console: Console, outcome: Outcome, run: Run) -> None:
    """Print the answer, the levers, and what was tried."""
    console.print(_headline(outcome, run), highlight=False, soft_wrap=True)
    for line in _standing(outcome):
        console.print(escape(line), highlight=False, soft_wrap=True)
    for view in (levers_view(outcome), trials_view(outcome)):
        table = Table(*view.head, title=view.title, title_justify="left")
        for row in view.rows:
            table.add_row(*(escape(str(cell)) for cell in row))
        if view.rows:
            console.print(table)
    if outcome.advice:
        print_advice(console, outcome.advice)
    print_warnings(console, warnings_of(outcome, run))


def _headline(outcome: Outcome, run: Run) -> str:
    if not outcome.best:
        why = "nothing that was tried is faster" if outcome.trials else "nothing could be tried"
        word, text = "[bold green]keep it as it is[/]", why
        if not run.complete:
            word, text = "[bold yellow]cut short[/]", "no choice was proved to be faster yet"
        return f"{word}  {escape(text)}"
    changes = written(outcome.best, "  ")
    if isinstance(outcome.gain, Unknown):
        return (
            f"[bold yellow]best so far[/]  {escape(changes)}  (not measured against the start yet)"
        )
    return f"[bold green]{escape(_times(outcome.gain))} faster[/]  {escape(changes)}"


def _standing(outcome: Outcome) -> list[str]:
    """What the answer stands on."""
    lines = []
    if outcome.best:
        lines.append(
            f"{_predicted(outcome.predicted)}; achieved: {_share(outcome.saved)} of the "
            + ("time to the target" if outcome.judged_by == TIME_TO_TARGET else "time")
        )
    failed = sum(each.problem is not None for each in outcome.trials)
    choices = "choice" if len(outcome.trials) == 1 else "choices"
    lines.append(
        f"{len(outcome.trials)} {choices} tried in {seconds(outcome.seconds)}"
        + (f", {failed} of them refused or failed" if failed else "")
        + (f"; it ended as {outcome.over}" if outcome.over else "")
    )
    for why in dict.fromkeys(each.left_out for each in outcome.levers if each.left_out):
        names = ", ".join(each.name for each in outcome.levers if each.left_out == why)
        lines.append(f"not tried: {names}: {why}")
    if outcome.experiment.startswith(NOT_KNOWN):
        lines.append(f"what holds it back is not known: {outcome.experiment[len(NOT_KNOWN) :]}")
    elif outcome.experiment:
        lines.append(f"what holds it back is known from: {outcome.experiment}")
    return lines


def levers_view(outcome: Outcome) -> TableView:
    """The levers that could be tried, with what each could save."""
    return TableView(
        title="Levers",
        head=["lever", "area", "before", "after", "saves at most", "what it changes", "risk"],
        footnotes=[],
        rows=[
            [
                each.name,
                each.area,
                str(each.before),
                str(each.after),
                _share(each.expected),
                each.about,
                each.risk or "–",
            ]
            for each in outcome.levers
            if not each.left_out
        ],
    )


def trials_view(outcome: Outcome) -> TableView:
    """What was tried, the fastest first; what failed last, with the reason."""

    def standing(trial: TrialFound) -> tuple[bool, float]:
        return trial.problem is None, trial.ratio if isinstance(trial.ratio, float) else 0.0

    known_first = sorted(outcome.trials, key=standing, reverse=True)
    rows: list[list[Markup | str]] = [
        [
            written(each.changes, "  "),
            # The lines after the first say where in the loop it was; the run has them.
            each.problem.partition("\n")[0] if each.problem else _ratio(each.ratio),
            str(each.rounds),
        ]
        for each in known_first[:SHOWN]
    ]
    left = len(outcome.trials) - len(rows)
    title = f"Tried, the fastest {len(rows)} of {len(outcome.trials)}" if left else "Tried"
    return TableView(title, ["change", "times as fast", "rounds"], rows, footnotes=[])


def _views(outcome: Outcome) -> list[TableView]:
    return [levers_view(outcome), trials_view(outcome), advice_view(outcome)]


def advice_view(outcome: Outcome) -> TableView:
    """Advice on the loop's own code."""
    return TableView(
        title="Advice on the code",
        head=["what", "where", "at most", "do"],
        rows=[
            [
                each.sentence,
                f"{each.file}:{each.line} {each.function}",
                _share(each.at_most),
                each.action,
            ]
            for each in outcome.advice
        ],
        footnotes=[],
    )


def warnings_of(outcome: Outcome, run: Run) -> list[str]:
    """What a reader must know besides."""
    found = [] if run.complete else ["it was interrupted; this is the best that was found so far"]
    if outcome.unchecked:
        found.append(
            "it was not checked whether the changes keep what the loop computes: "
            f"{outcome.unchecked}"
        )
    return found


def _times(gain: Figure) -> str:
    if isinstance(gain, Interval):
        return f"{gain.value:.2f} times [{gain.low:.2f}, {gain.high:.2f}]"
    return f"({gain.why})" if isinstance(gain, Unknown) else f"{gain:.2f} times"


def _predicted(figure: Figure) -> str:
    if isinstance(figure, Unknown):
        return f"nothing was predicted ({figure.why})"
    return f"predicted: at most {_share(figure)}"


def _share(figure: Figure) -> str:
    if isinstance(figure, Unknown):
        return "not known"
    if isinstance(figure, Interval):
        value, low, high = (100 * each for each in (figure.value, figure.low, figure.high))
        return f"{value:.0f}% [{low:.0f}, {high:.0f}]"
    return f"{100 * figure:.0f}%"


def _ratio(figure: Figure) -> str:
    return figure.why if isinstance(figure, Unknown) else f"{figure:.2f}"


def _section(page: PageContext, outcome: Outcome, run: Run) -> Section:
    return Section(
        key=page.key,
        run=run,
        heading="The fastest settings",
        tiles=[
            Tile("It is", number_markup(_times(outcome.gain)), "as fast as before"),
            Tile("Best", number_markup(written(outcome.best, ", ")), outcome.over),
            Tile("Tried", number_markup(str(len(outcome.trials))), "choices"),
        ],
        charts=[],
        tables=[view for view in _views(outcome) if view.rows],
        warnings=warnings_of(outcome, run),
    )


def _json(outcome: Outcome, _run: Run) -> Any:
    return outcome


def _metrics(outcome: Outcome, _run: Run) -> dict[str, Metric]:
    return known({GAINED: (outcome.gain, ""), SECONDS: (outcome.seconds, "s")})


OPTIMIZE = Kind[Outcome](
    format=Format(
        settings={"budget": Positive},
        facts={
            "unit": str,
            "levers": list[dict[str, Any]],
            "gains": dict[str, list[float]],
            "trials": list[dict[str, Any]],
            "best": dict[str, Any],
            "over": str,
            "unchecked": str,
            "experiment": str,
            "seconds": float,
            "advice": list[dict[str, Any]],
        },
        arrays={},
        check=optimize_problem,
    ),
    summarize=summary_of,
    print=print_optimize,
    section=_section,
    json=_json,
    has_samples=lambda run: bool(run.facts["trials"] or run.facts["advice"]),
    metrics=_metrics,
)
