"""`hotloop train ppo:ENV`: train until two greedy evaluations pass, or the env steps are used."""

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import tyro
from rich.progress import BarColumn, Progress, TextColumn

from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, show_run
from hotloop.errors import TargetError
from hotloop.learn.ppo import PPOSettings, train
from hotloop.learn.training import Point, Training
from hotloop.loop.run import Run


@dataclasses.dataclass(frozen=True)
class Options(PPOSettings):
    """Train PPO until 20 greedy fixed-seed episodes reach the env's threshold twice in a row."""

    target: tyro.conf.Positional[str] = "ppo:CartPole-v1"
    """ppo:ENV, with the id of any Gymnasium env, also "module:id"."""
    env_id: tyro.conf.Suppress[str] = ""
    json: bool = False
    """Print the learning curve as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code.

    Raises: TargetError and SettingError for what does not fit; what the env raises. The envs are
    closed then, and after an interrupt.
    """
    options = parse(Options, arguments, "train")
    console, errors = consoles(options.json)
    learner, colon, env_id = options.target.partition(":")
    if learner != "ppo" or not colon:
        raise TargetError(f"{options.target!r} is no learner's target; one is ppo:CartPole-v1")
    names = [field.name for field in dataclasses.fields(PPOSettings)]
    settings = PPOSettings(
        **{name: getattr(options, name) for name in names if name != "env_id"}, env_id=env_id
    )
    # As for `module:function`: "module:id" finds modules of the folder that the user is in.
    sys.path.insert(0, str(Path.cwd()))
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
            result = _partial_training(points)
    saved = _run(options.target, settings, result, complete=interrupted is None)

    def show() -> None:
        show_run(console, saved, json=options.json)

    return finish(errors, saved, interrupted, options.save, show)


def _partial_training(points: list[Point]) -> Training:
    """Return an interrupted training: a greedy return that changed was a new evaluation."""
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
