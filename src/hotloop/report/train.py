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
from hotloop.report.format import Count, Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import number, seconds
from hotloop.report.section import ChartView, Section, Tile, number_markup

_FORMAT = Format(
    facts={
        "env_id": str,
        "threshold": float | None,
        "solved": bool,
        "steps_to_solve": Count | None,
        "seconds_to_solve": float | None,
    },
    optional_facts={
        "unit": str,
        "ended": str,
        "seconds": float,
        "wall_s": float,
        "env_steps_done": Count,
        "updates": Count,
        "batches": Count,
        "episodes": Count,
        "training_return": float | None,
        "figures": dict[str, float | None],
        "checkpoint": str | None,
        "resumed_from": str | None,
        "price_per_hour": Positive | None,
    },
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
    else:
        wanted = "" if curve.threshold is None else f" (wanted: {curve.threshold:g})"
        best = f"best mean greedy return {max(returns):.1f}{wanted}" if returns else ""
        console.print(
            f"[yellow]not solved[/] in {_steps_done(curve, facts):,} env steps{_end(facts)}: "
            f"{best or 'nothing was evaluated'}",
            highlight=False,
        )
    for name, words in _figures(facts):
        console.print(f"[bold]{name:<8}[/] {escape(words)}", highlight=False)
    print_warnings(console, _warnings(run))


def _steps_done(curve: LearningCurve, facts: dict[str, Any]) -> int:
    """Env steps at the end; runs of earlier versions know those of the last evaluation."""
    return int(facts.get("env_steps_done", curve.env_steps[-1] if curve.env_steps else 0))


def _end(facts: dict[str, Any]) -> str:
    """Why a training that solved nothing ended, where that is not said otherwise."""
    at_limit = facts.get("ended") == "time"
    return f" and {seconds(facts['seconds'])}, its time limit" if at_limit else ""


def _figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures at the end of a training, each with its name; none of earlier versions' runs."""
    if not facts.get("seconds") or "figures" not in facts:
        return []
    rates = {"env steps/s": "env_steps_done", "updates/s": "updates", "batches/s": "batches"}
    figures = [
        (
            "rate",
            ", ".join(
                f"{number(facts.get(of, 0) / facts['seconds'])} {name}"
                for name, of in rates.items()
            ),
        )
    ]
    if facts.get("training_return") is not None:
        figures.append(
            (
                "return",
                f"{facts['training_return']:.1f} in training, mean of the last "
                f"{min(100, facts.get('episodes', 0))} of {facts.get('episodes', 0):,} episodes",
            )
        )
    figures += [
        (name, ", ".join(f"{shown} {_short(found)}" for shown, found in parts))
        for name, parts in (
            ("loss", _named(facts["figures"], _LOSSES)),
            ("lag", _named(facts["figures"], _LAG)),
            ("replay", _named(facts["figures"], _REPLAY)),
            ("server", _named(facts["figures"], _SERVER)),
        )
        if parts
    ]
    price = facts.get("price_per_hour")
    if price is not None and "wall_s" in facts:
        spent = number(facts["wall_s"] / 3600 * price)
        figures.append(("cost", f"{spent} for {seconds(facts['wall_s'])}, evaluations included"))
    return figures


# By the name of a figure, how the report calls it.
_LOSSES = {
    "policy_loss": "policy",
    "value_loss": "value",
    "entropy": "entropy",
    "approx_kl": "KL",
    "clipfrac": "clipped",
    "explained_variance": "explained variance",
    "td_loss": "temporal difference",
    "q_values": "Q",
}
_REPLAY = {
    "replay_size": "transitions",
    "weight_mean": "mean weight",
    "replay_shards": "shards",
    "transitions_lost": "lost with shards",
}
_SERVER = {
    "server_batch_rows": "rows of a batch",
    "server_wait_s": "seconds waited",
    "server_busy": "busy",
}
_LAG = {
    "lag_mean": "mean",
    "lag_max": "most",
    "queue_depth": "queue",
    "fragments_dropped": "dropped",
}


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _named(figures: dict[str, float | None], names: dict[str, str]) -> list[tuple[str, float]]:
    found = [(shown, figures.get(name)) for name, shown in names.items()]
    return [(shown, value) for shown, value in found if value is not None]


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
                notes=[
                    _passes(curve),
                    *(f"{name.capitalize()}: {words}." for name, words in _figures(run.facts)),
                ],
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
    done = f"in {_steps_done(curve, facts):,} {curve.unit}" if curve.env_steps else ""
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
    if run.complete:
        return []
    failed = run.facts.get("ended") == "failed"
    cause = "an error ended the training" if failed else "the run was interrupted"
    return [f"{cause}; this is what it had learned"]


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
    has_samples=lambda run: run.facts.get("env_steps_done", 1) > 0,
    metrics=_metrics,
)
