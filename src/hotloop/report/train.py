"""Training runs: whether the env was solved, and the learning curve."""

from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Figure
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import SECONDS, Metric, known
from hotloop.report.charts.learning import LearningCurve, learning_curve
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.console import print_warnings
from hotloop.report.format import Count, Format
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import seconds
from hotloop.report.section import ChartView, Section, Tile, number_markup

_FORMAT = Format(
    facts={
        "env_id": str,
        "threshold": float | None,
        "solved": bool,
        "steps_to_solve": Count | None,
        "seconds_to_solve": float | None,
    },
    optional_facts={"unit": str},
    arrays={
        "env_steps": "count n",
        "seconds": "real n",
        "mean_return": "any n",
        "passed": "bool n",
    },
)


def _curve(run: Run) -> LearningCurve:
    facts = run.facts
    return LearningCurve(
        env_steps=run.arrays["env_steps"].tolist(),
        seconds=run.arrays["seconds"].tolist(),
        mean_return=run.arrays["mean_return"].tolist(),
        passed=run.arrays["passed"].tolist(),
        threshold=facts["threshold"],
        solved=bool(facts["solved"]),
        unit=str(facts.get("unit", "env steps")),
    )


def print_train(console: Console, curve: LearningCurve, run: Run) -> None:
    """Print whether the env was solved, after how long, and with what return."""
    facts, returns = run.facts, curve.mean_return
    console.print(f"[bold]{escape(run.target)}[/]  {describe(run.host)}", highlight=False)
    if curve.solved:
        console.print(
            f"[green]solved[/] after {facts['steps_to_solve']:,} env steps in "
            f"{facts['seconds_to_solve']:.2f} s of training: mean greedy return "
            f"{returns[-1]:.1f} over 20 fixed-seed episodes, at least {curve.threshold:g} twice "
            "in a row",
            highlight=False,
        )
    elif returns:
        wanted = "" if curve.threshold is None else f" (wanted: {curve.threshold:g})"
        console.print(
            f"[yellow]not solved[/] in {int(curve.env_steps[-1]):,} env steps: best mean greedy "
            f"return {max(returns):.1f}{wanted}",
            highlight=False,
        )
    else:
        console.print("[yellow]not solved[/]: nothing was evaluated")
    print_warnings(console, _warnings(run))


def _section(page: PageContext, curve: LearningCurve, run: Run) -> Section:
    return Section(
        key=page.key,
        run=run,
        heading=f"How it learned {run.facts['env_id']}",
        tiles=_tiles(curve, run.facts),
        charts=[
            ChartView(
                "Learning curve",
                "Mean return of the greedy policy over the same fixed-seed episodes each time; "
                "the time of evaluation is not counted.",
                [
                    learning_curve(curve, width=width, name=f"{page.key}-learning-{width}")
                    for width in (WIDE, NARROW)
                ],
                notes=[_passes(curve)],
            )
        ],
        warnings=_warnings(run),
    )


def _tiles(curve: LearningCurve, facts: dict[str, Any]) -> list[Tile]:
    wanted = "no threshold is set" if curve.threshold is None else f"wanted: {curve.threshold:g}"
    if curve.solved:
        return [
            Tile("solved after", number_markup(f"{facts['steps_to_solve']:,}"), curve.unit),
            Tile(
                "training time",
                number_markup(seconds(facts["seconds_to_solve"])),
                "to the second pass",
            ),
            Tile("mean greedy return", number_markup(f"{curve.mean_return[-1]:.1f}"), wanted),
        ]
    best = (
        number_markup(f"{max(curve.mean_return):.1f}") if curve.mean_return else Markup("unknown")
    )
    done = f"in {int(curve.env_steps[-1]):,} {curve.unit}" if curve.env_steps else ""
    return [
        Tile("not solved", number_markup("–"), done),
        Tile("best mean greedy return", best, wanted if curve.mean_return else "nothing evaluated"),
    ]


def _passes(curve: LearningCurve) -> str:
    if curve.threshold is None:
        return "The env names no threshold, so nothing can pass."
    if curve.solved:
        return (
            f"The two large points are the passes, two in a row at {curve.threshold:g} or more, "
            "that count as solved."
        )
    return f"{sum(curve.passed)} evaluations reached {curve.threshold:g}; two in a row are wanted."


def _warnings(run: Run) -> list[str]:
    return [] if run.complete else ["the run was interrupted; this is what it had learned"]


def _json(_curve: LearningCurve, run: Run) -> dict[str, Any]:
    """The facts and arrays of the run: nothing more is computed."""
    return run.facts | {name: array.tolist() for name, array in run.arrays.items()}


def _metrics(curve: LearningCurve, run: Run) -> dict[str, Metric]:
    found: dict[str, tuple[Figure, str]] = {}
    if curve.solved:
        found["steps to solve"] = (float(run.facts["steps_to_solve"]), curve.unit)
        found["seconds to solve"] = (float(run.facts["seconds_to_solve"]), "s")
    if curve.seconds:
        found[SECONDS] = (curve.seconds[-1], "s")
    return known(found)


TRAIN = Kind[LearningCurve](
    format=_FORMAT,
    summarize=_curve,
    print=print_train,
    section=_section,
    json=_json,
    has_samples=lambda _run: True,  # also an interrupted training has its settings and its time
    metrics=_metrics,
)
