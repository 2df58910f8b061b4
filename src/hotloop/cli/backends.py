"""`hotloop benchmark ENV_ID --backends all`: which backend steps an env fastest, and how fast.

Apart from `benchmark`, which measures loops: here the target is an env, and no loop runs.
"""

import dataclasses
import logging
import sys
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn

from hotloop.built_in import BUILT_IN
from hotloop.cli.finish import finish
from hotloop.cli.guard import show_log
from hotloop.cli.output import consoles, quiet, show_run
from hotloop.envs.sweep import Sweep, SweepSettings
from hotloop.errors import SettingError, TargetError
from hotloop.loop.run import Run


def measure_backends(target: str, settings: SweepSettings, *, json: bool, save: Path | None) -> int:
    """Measure, show and save; returns the exit code.

    Raises: SettingError for a target that is a loop; TargetError for an env that does not exist,
    or that no backend could step; what making or stepping the env raises.
    """
    expect_env_id("--backends", target)
    show_log(logging.WARNING)  # what `auto` chose stands below the table
    console, errors = consoles(json)
    # As for `module:function`: "package:id" finds packages of the folder that the user is in.
    sys.path.insert(0, str(Path.cwd()))
    sweep = Sweep(target, settings)
    error: BaseException | None = None
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with (
        quiet(json),
        Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar,
    ):
        task = bar.add_task(target, total=1.0, what="")
        try:
            sweep.run(lambda share, what: bar.update(task, completed=share, what=what))
        except (Exception, KeyboardInterrupt) as raised:
            error = raised
    run = Run(
        verb="backends",
        target=target,
        settings=dataclasses.asdict(settings),
        facts=sweep.facts(),
        arrays=sweep.arrays(),
        complete=error is None,
    )
    if error is None and not np.isfinite(run.arrays["sps"]).any():
        error = _nothing_ran(sweep)

    def show() -> None:
        show_run(console, run, json=json)

    return finish(errors, run, error, save, show)


def expect_env_id(option: str, target: str) -> None:
    """Refuse a target that is a loop. Raises: SettingError, naming the option."""
    place, colon, name = target.partition(":")
    if ".py" in (Path(target).suffix, Path(place).suffix) or (colon and place in BUILT_IN):
        near = f"; did you mean {name!r}?" if place == "ppo" else ""
        raise SettingError(
            f"{option}: expected the id of a Gymnasium env as the target, such as CartPole-v1, "
            f"got {target!r}, which names a loop{near}"
        )


def _nothing_ran(sweep: Sweep) -> TargetError:
    reasons = dict.fromkeys(f"{e.variant}: {e.problem}" for e in sweep.entries)
    return TargetError(f"{sweep.env_id}: no backend could step it; {'; '.join(reasons)}")
