"""The section of a training run: whether it is solved, and its learning curve."""

from typing import Any

from markupsafe import Markup

from hotloop.loop.run import Run
from hotloop.report import statements
from hotloop.report.charts.learning import Curve, learning_curve
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.numbers import seconds
from hotloop.report.sections.section import Charts, Section, Tile, apart


def train_section(key: str, run: Run) -> Section:
    """What the page says about one training run. key: unique on the page."""
    facts: dict[str, Any] = run.facts
    curve = Curve(
        env_steps=run.arrays["env_steps"].tolist(),
        seconds=run.arrays["seconds"].tolist(),
        mean_return=run.arrays["mean_return"].tolist(),
        passed=run.arrays["passed"].tolist(),
        threshold=facts["threshold"],
        solved=bool(facts["solved"]),
        unit=str(facts.get("unit", "env steps")),
    )
    return Section(
        key=key,
        run=run,
        heading=f"How it learned {facts['env_id']}",
        tiles=_tiles(curve, facts),
        figures=[
            Charts(
                "Learning curve",
                "Mean return of the greedy policy over the same fixed-seed episodes each time; "
                "the time of evaluation is not counted.",
                [
                    learning_curve(curve, width=width, name=f"{key}-learning-{width}")
                    for width in (WIDE, NARROW)
                ],
                notes=[_passes(curve)],
            )
        ],
        warnings=statements.train_warnings(run),
    )


def _tiles(curve: Curve, facts: dict[str, Any]) -> list[Tile]:
    wanted = "no threshold is set" if curve.threshold is None else f"wanted: {curve.threshold:g}"
    if curve.solved:
        return [
            Tile("solved after", apart(f"{facts['steps_to_solve']:,}"), curve.unit),
            Tile("training time", apart(seconds(facts["seconds_to_solve"])), "to the second pass"),
            Tile("mean greedy return", apart(f"{curve.mean_return[-1]:.1f}"), wanted),
        ]
    best = apart(f"{max(curve.mean_return):.1f}") if curve.mean_return else Markup("unknown")
    done = f"in {int(curve.env_steps[-1]):,} {curve.unit}" if curve.env_steps else ""
    return [
        Tile("not solved", apart("–"), done),
        Tile("best mean greedy return", best, wanted if curve.mean_return else "nothing evaluated"),
    ]


def _passes(curve: Curve) -> str:
    if curve.threshold is None:
        return "The env names no threshold, so nothing can pass."
    if curve.solved:
        return (
            f"The two large points are the passes, two in a row at {curve.threshold:g} or more, "
            "that count as solved."
        )
    return f"{sum(curve.passed)} evaluations reached {curve.threshold:g}; two in a row are wanted."
