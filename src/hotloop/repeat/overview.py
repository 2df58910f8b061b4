"""What the journal says about a target: where it stands, what is next, whether to stop.

Pure functions of the journal's contents. How it is shown is for `hotloop.report.staircase`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.errors import JournalError, SettingError, nearest
from hotloop.repeat.entries import GAIN, Metric, RunEntry
from hotloop.repeat.journal import Contents
from hotloop.repeat.stop import Decision, Lever, Limits, decide, levers_of, overlap_of
from hotloop.repeat.tries import (
    Calibration,
    Spent,
    Staircase,
    calibration,
    newest_rate,
    runs_of,
    spent,
    staircase,
)

# The metrics of a run, as this version reads them.
MetricsOf = Callable[[RunEntry], Mapping[str, Metric]]


@dataclass(frozen=True)
class Experiment:
    """The newest experiment on a target that found gains.

    number, at: of its run. levers: the stages, the largest gain first. before_change: whether a
    change was kept after it, so that its gains are those of an older version.
    """

    number: int
    at: str
    levers: list[Lever]
    overlap: Lever | None
    worth: float | None
    before_change: bool


@dataclass(frozen=True)
class Overview:
    """What the journal says about a target.

    limits: as they were used: an unknown price is that of the newest run which knows one, and then
    price_noted is true. host: the facts of the machine of the newest run.
    """

    target: str
    other_targets: list[str]
    runs: int
    staircase: Staircase
    calibration: Calibration
    experiment: Experiment | None
    spent: Spent
    limits: Limits
    price_noted: bool
    decision: Decision
    at: str
    host: Mapping[str, Any]

    @property
    def next_try(self) -> Lever | None:
        """The stage with the largest gain, None if no gain is known."""
        return self.experiment.levers[0] if self.experiment and self.experiment.levers else None


def overview(
    contents: Contents, target: str | None, limits: Limits, metrics_of: MetricsOf
) -> Overview:
    """What the journal says about a target, or about that of the newest try.

    metrics_of: the metrics of an experiment's run.
    Raises: JournalError if nothing was noted; SettingError for a target of which nothing was.
    """
    targets = targets_of(contents)
    if not targets:
        raise JournalError(
            "no benchmark, experiment or try is noted here yet: `hotloop simplify TARGET` finds "
            'what to change, and `hotloop repeat try "WHAT" --before A --after B` '
            "measures a change and notes it"
        )
    if target is None:
        target = targets[0]
    if target not in targets:
        raise SettingError(f"--target: nothing is noted of {target!r}{nearest(target, targets)}")
    tries = [each for each in contents.tries if each.target == target]
    runs = runs_of(target, contents.runs, tries)
    found = newest_experiment(target, contents, metrics_of)
    limits, price_noted = _with_noted(limits, runs, found)
    rate = newest_rate(target, runs, tries)
    return Overview(
        target=target,
        other_targets=[each for each in targets if each != target],
        runs=len(runs),
        staircase=staircase(tries, runs, limits.price_per_hour),
        calibration=calibration(tries),
        experiment=found,
        spent=spent(runs, tries, limits.price_per_hour, limits.effort_price_per_hour),
        limits=limits,
        price_noted=price_noted,
        decision=decide(
            limits, rate, found.levers if found else [], found.overlap if found else None
        ),
        at=runs[-1].at,
        host=runs[-1].host,
    )


def targets_of(contents: Contents) -> list[str]:
    """The targets of tries, then of runs; the newest first, each once."""
    tried = [each.target for each in reversed(contents.tries)]
    measured = [
        run.target
        for run in reversed(contents.runs)
        if run.verb in ("benchmark", "simplify")
        # The parts of a stage are called by the target and the stage.
        and not any(run.target.startswith(f"{other.target} ") for other in contents.runs)
    ]
    return list(dict.fromkeys([*tried, *measured]))


def newest_experiment(target: str, contents: Contents, metrics_of: MetricsOf) -> Experiment | None:
    """The newest experiment on a target that found gains; None if there is none."""
    changed = max(
        (each.run for each in contents.tries if each.kept and each.target == target), default=0
    )
    for run in reversed(contents.runs):
        if run.verb == "simplify" and run.target == target and _has_gains(run.metrics):
            metrics = metrics_of(run)
            return Experiment(
                number=run.number,
                at=run.at,
                levers=levers_of(metrics),
                overlap=overlap_of(metrics),
                worth=run.settings.get("worth"),
                before_change=run.number < changed,
            )
    return None


def _has_gains(metrics: Mapping[str, Metric]) -> bool:
    return any(name.startswith(GAIN) for name in metrics)


def _with_noted(
    limits: Limits, runs: Sequence[RunEntry], found: Experiment | None
) -> tuple[Limits, bool]:
    """The limits with what the runs know of them; whether the price is the runs'."""
    if found is not None and found.worth is not None:
        limits = dataclasses.replace(limits, worth=found.worth)
    prices = [run.price_per_hour for run in runs if run.price_per_hour is not None]
    if limits.price_per_hour is not None or not prices:
        return limits, False
    return dataclasses.replace(limits, price_per_hour=prices[-1]), True
