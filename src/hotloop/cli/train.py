"""`hotloop train ALGORITHM:ENV`: train until two greedy evaluations pass, or to the last step."""

import dataclasses
import itertools
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from hotloop.cli.chosen import chosen_for, chosen_in, made_with
from hotloop.cli.files import check_place
from hotloop.cli.finish import finish
from hotloop.cli.options import option_value, target_in, with_defaults, with_settings
from hotloop.cli.output import consoles, given, parse, quiet, show_run
from hotloop.errors import SettingError, expect_positive
from hotloop.learn.algorithms import ALGORITHMS, learner_type, split_target
from hotloop.learn.checkpoint import Checkpoint, load_checkpoint
from hotloop.learn.settings import LearnerSettings
from hotloop.loop.run import FOLDER, Run

NOT_SOLVED = 1
DEFAULT_TARGET = "ppo:CartPole-v1"


@dataclasses.dataclass(frozen=True)
class Options:
    """Train until 20 greedy fixed-seed episodes reach the env's threshold twice in a row. Exits
    with 0 if that solved the env, with 1 if not. The options of another algorithm are shown by
    `hotloop train ALGORITHM:ENV --help`.
    """

    target: tyro.conf.Positional[str] = DEFAULT_TARGET
    """ALGORITHM:ENV, such as ppo:CartPole-v1: the id of any Gymnasium env, also "module:id"."""
    settings_from: Path | None = None
    """Settings that `hotloop optimize` has written, in place of the defaults."""
    resume: Path | None = None
    """Go on from a checkpoint, with its target and its settings."""
    checkpoint: Path | None = None
    """Where to write checkpoints; default: under .hotloop/, or the one that is resumed."""
    checkpoint_every: int = 100_000
    """Env steps between two checkpoints, which with ppo begin new episodes in all envs; 0: only at
    the end and after Ctrl-C."""
    time_limit: float | None = None
    """End after so many seconds of training, over all resumes."""
    tensorboard: Path | None = None
    """Write TensorBoard events into this folder."""
    wandb: str | None = None
    """Log into this project of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""
    price_per_hour: float | None = None
    """What the machine costs, in any currency, to show what was spent."""
    json: bool = False
    """Print the learning curve as JSON instead of the report."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code.

    Raises: TargetError, SettingError and CheckpointError for what does not fit; what the env
    raises. The envs are closed then, and after an interrupt.
    """
    path = option_value("resume", arguments)
    resume = load_checkpoint(Path(path)) if path else None
    algorithm, env_id = split_target(_target_in(arguments, resume))
    options = _parse(arguments, algorithm, env_id, resume)
    # Here, as they load torch: an unknown target is refused without it.
    from hotloop.learn.training import Trainer
    from hotloop.results.train import train

    console, errors = consoles(options.json)
    expect_positive("--price-per-hour", options.price_per_hour)
    checkpoint = _checkpoint_path(options)
    # As for `module:function`: "module:id" finds modules of the folder that the user is in.
    sys.path.insert(0, str(Path.cwd()))
    with quiet(options.json):
        result, error = train(
            lambda: Trainer(
                _settings_of(options, algorithm),
                checkpoint=checkpoint,
                checkpoint_every=options.checkpoint_every,
                resume=resume,
                time_limit_s=options.time_limit,
            ),
            f"{algorithm}:{env_id}",
            errors,
            levers=chosen_for(f"{algorithm}:{env_id}", options.settings_from).levers,
            resumed_from=options.resume,
            tensorboard=options.tensorboard,
            wandb=options.wandb,
            price_per_hour=options.price_per_hour,
        )

    def show() -> None:
        show_run(console, result, json=options.json)
        _say_checkpoint(errors, result)

    code = finish(errors, result, error, options.save, show)
    return code or (0 if result.facts["solved"] else NOT_SOLVED)


def _target_in(arguments: Sequence[str], resume: Checkpoint | None) -> str:
    """The target among the arguments: the first word that names an algorithm, else the first."""
    taken = {f"--{field.name}" for field in dataclasses.fields(Options)}
    for before, word in itertools.pairwise(["", *arguments]):
        if word.partition(":")[0] in ALGORITHMS and before.replace("-", "_")[2:] not in taken:
            return word
    return target_in(arguments, Options, DEFAULT_TARGET if resume is None else resume.target)


def _parse(arguments: list[str], algorithm: str, env_id: str, resume: Checkpoint | None) -> Any:
    """Read the options: those of the verb, and the settings of the algorithm.

    What a resumed training does not name stays as it is in its checkpoint.
    """
    kind = learner_type(algorithm).settings_type
    own: dict[str, Any] = {"target": f"{algorithm}:{env_id}"}
    defaults = made_with(chosen_in(arguments, own["target"]), [kind])
    if resume is not None:
        own["checkpoint_every"] = resume.every
        if type(resume.settings) is kind:
            defaults |= {f.name: getattr(resume.settings, f.name) for f in dataclasses.fields(kind)}
        if given("backend", arguments):
            defaults["num_workers"] = None  # those of another backend
    settings = with_defaults(kind, defaults | {"env_id": env_id}, hidden=("env_id",))
    settings.__doc__ = f"Settings of {algorithm}."
    options = with_settings(with_defaults(Options, own), {"settings": settings})
    parsed: Any = parse(options, arguments, "train")
    if (algorithm, env_id) != split_target(parsed.target):
        raise SettingError(
            f"{parsed.target}: expected the target before the options, got it behind one that "
            "takes no value"
        )
    return parsed


def _settings_of(options: Any, algorithm: str) -> LearnerSettings:
    kind = learner_type(algorithm).settings_type
    return kind(**{f.name: getattr(options.settings, f.name) for f in dataclasses.fields(kind)})


def _checkpoint_path(options: Any) -> Path:
    """Where the checkpoints go. Raises: SettingError for a place where none can be written."""
    path: Path = options.checkpoint or options.resume or _default_path(options.target)
    check_place("--checkpoint", path)
    if path.exists() and path != options.resume:
        raise SettingError(
            f"--checkpoint: {path}: expected the name of a new file, got one that exists; go on "
            f"from it with --resume {path}, or name another"
        )
    return path


def _default_path(target: str) -> Path:
    """By date and target, as runs are named."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]+", "-", target).strip("-")[-100:]
    stem, number = f"{stamp}-train-{name}", 1
    path = FOLDER / f"{stem}.checkpoint"
    while path.exists():
        number += 1
        path = FOLDER / f"{stem}-{number}.checkpoint"
    return path


def _say_checkpoint(errors: Console, run: Run) -> None:
    """Print the command that uses the newest checkpoint."""
    path = run.facts["checkpoint"]
    if path is not None:
        verb = "evaluate" if run.facts["solved"] else "train --resume"
        command = f"hotloop {verb} {shlex.quote(path)}"
        errors.print(
            f"checkpoint: {command}", style="dim", markup=False, highlight=False, soft_wrap=True
        )
