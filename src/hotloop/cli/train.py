"""`hotloop train ppo:ENV`: train a learner until a greedy evaluation proves it, or time is up."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import tyro
from rich.progress import BarColumn, Progress, TextColumn

from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, content, parse, print_json
from hotloop.errors import TargetError
from hotloop.learn.ppo import PPOSettings, train
from hotloop.learn.training import Point, Training
from hotloop.loop.run import Run
from hotloop.report.console import print_train


@dataclasses.dataclass(frozen=True)
class Options(PPOSettings):
    """Train PPO until 20 greedy fixed-seed episodes reach the env's threshold twice in a row."""

    target: tyro.conf.Positional[str] = "ppo:CartPole-v1"
    """ppo:ENV, with the id of any Gymnasium environment."""
    env_id: tyro.conf.Suppress[str] = ""
    json: bool = False
    """Print the learning curve as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "train")
    console, errors = consoles(options.json)
    learner, colon, env_id = options.target.partition(":")
    if learner != "ppo" or not colon:
        raise TargetError(f"{options.target!r} is no learner's target; one is ppo:CartPole-v1")
    names = [field.name for field in dataclasses.fields(PPOSettings)]
    settings = PPOSettings(
        **{name: getattr(options, name) for name in names if name != "env_id"}, env_id=env_id
    )
    points: list[Point] = []
    interrupted: KeyboardInterrupt | None = None
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} env steps, greedy return {task.fields[shown]}"),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(options.target, total=settings.total_steps, shown="…")

        def on_iteration(point: Point) -> None:
            points.append(point)
            shown = "…" if math.isnan(point.mean_return) else f"{point.mean_return:.0f}"
            bar.update(task, completed=point.env_steps, shown=shown)

        try:
            result = train(settings, on_iteration=on_iteration)
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
            result = _curve_so_far(points)
    saved = _run(options.target, settings, result, complete=interrupted is None)

    def show() -> None:
        if options.json:
            print_json(content(saved))
        else:
            print_train(console, saved)

    return finish(errors, saved, interrupted, options.save, show)


def _curve_so_far(points: list[Point]) -> Training:
    """What an interrupted training had shown: the iterations at which the greedy return changed."""
    evaluated = [
        point
        for before, point in zip([None, *points], points, strict=False)
        if not math.isnan(point.mean_return)
        and (before is None or point.mean_return != before.mean_return)
    ]
    return Training(
        target_return=math.nan,
        env_steps=np.array([point.env_steps for point in evaluated], np.int64),
        seconds=np.array([point.seconds for point in evaluated]),
        mean_return=np.array([point.mean_return for point in evaluated]),
        solved=False,
    )


def _run(target: str, settings: PPOSettings, result: Training, complete: bool) -> Run:
    threshold = None if math.isnan(result.target_return) else result.target_return
    passed = np.zeros(len(result.mean_return), np.bool_)
    if threshold is not None:
        passed = result.mean_return >= threshold
    return Run(
        verb="train",
        target=target,
        settings=dataclasses.asdict(settings),
        facts={
            "env_id": settings.env_id,
            "unit": "env steps",
            "threshold": threshold,
            "solved": result.solved,
            "steps_to_solve": result.steps_to_solve,
            "seconds_to_solve": result.seconds_to_solve,
        },
        arrays={
            "env_steps": result.env_steps,
            "seconds": result.seconds,
            "mean_return": result.mean_return,
            "passed": passed,
        },
        complete=complete,
    )
