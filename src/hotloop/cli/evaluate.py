"""`hotloop evaluate CHECKPOINT`: how good is its policy, played greedily?"""

import dataclasses
import sys
from pathlib import Path

import tyro

from hotloop.cli.output import consoles, parse, print_json, quiet
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.report.evaluate import evaluation_figures, print_evaluation


@dataclasses.dataclass(frozen=True)
class Options:
    """Play episodes with the likeliest actions of the policy of a checkpoint."""

    checkpoint: tyro.conf.Positional[Path]
    """A checkpoint that `hotloop train` has written."""
    episodes: int = 20
    """Episodes to play."""
    seed: int = 1_000_000
    """Of the first episode; the next one has the next number. The default is that of training's
    evaluations."""
    json: bool = False
    """Print every return and length as JSON instead of the report."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code.

    Raises: CheckpointError, SettingError and TargetError for what does not fit.
    """
    options = parse(Options, arguments, "evaluate")
    checkpoint = load_checkpoint(options.checkpoint)
    # Here, as it loads torch: a file that is no checkpoint is refused without it.
    from hotloop.learn.policies.saved_policy import evaluate

    console, _ = consoles(options.json)
    sys.path.insert(0, str(Path.cwd()))  # for envs such as "module:id", as in training
    with quiet(options.json):
        played = evaluate(checkpoint, episodes=options.episodes, seed=options.seed)
    figures = evaluation_figures(played.returns, played.lengths)
    if options.json:
        print_json({"target": checkpoint.target, **figures})
    else:
        print_evaluation(console, checkpoint.target, checkpoint.env_steps, figures)
    return 0
