"""The figures of a saved run for programs that show metrics: those that the journal notes."""

from pathlib import Path

from hotloop.loop.run import Run
from hotloop.loop.sinks import open_sinks
from hotloop.report.kinds import kind_of


def send(run: Run, name: str, tensorboard: Path | None, wandb: str | None) -> None:
    """Write the figures of a run as final metrics. name: how the run is called there.

    tensorboard: a folder, in which the run has one of its own. wandb: a project.
    Raises: SettingError where they cannot be written.
    """
    folder = None if tensorboard is None else tensorboard / name
    sinks = open_sinks(folder, wandb, name=name)
    if sinks is None:
        return
    kind = kind_of(run)
    metrics = kind.metrics(kind.summarize(run), run)
    sinks.text("target", f"{run.verb} of {run.target}")
    sinks.final({of: metric.value for of, metric in metrics.items()}, 0)
    sinks.close()
