"""A training as a run: what is shown of it while it lasts, and what is saved of it at its end."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console

from hotloop.benchmark.meters import GpuGauge, ProcessTree
from hotloop.learn.tensorboard import EventLog
from hotloop.learn.training import Standing, Trainer
from hotloop.loop.lever import Options
from hotloop.loop.run import Run
from hotloop.loop.sinks import open_sinks
from hotloop.optimize.libraries import levers_for
from hotloop.report.live_panel import LivePanel, Row
from hotloop.report.numbers import number, percent


def train(
    make_trainer: Callable[[], Trainer],
    target: str,
    console: Console,
    *,
    levers: Options | None = None,
    resumed_from: Path | None = None,
    tensorboard: Path | None = None,
    wandb: str | None = None,
    price_per_hour: float | None = None,
) -> tuple[Run, BaseException | None]:
    """Train to the end behind a live view; returns the run, and what cut it short.

    make_trainer: called once everything else is known to be in order. console: of the view.
    levers: options that are set before the first iteration. tensorboard: the folder of events,
    wandb: the project of Weights & Biases, None for none. price_per_hour: of the machine.

    Raises: SettingError for a folder of events that cannot be, and for a lever or an option that
    there is not; what `make_trainer` raises.
    """
    sinks = open_sinks(tensorboard, wandb, name=target)
    events = None if sinks is None else EventLog(sinks)
    try:
        with (
            levers_for(levers or {}) as set_levers,
            make_trainer() as trainer,
            TrainView(console, target, trainer, price_per_hour) as view,
        ):
            set_levers(trainer.learner.loop())
            if events is not None:
                events.begin(trainer)

            def watch(_point: object) -> None:
                view.update(trainer)
                if events is not None:
                    events.note(trainer)

            error: BaseException | None = None
            try:
                trainer.run(watch)
            except (Exception, KeyboardInterrupt) as raised:
                error = raised
            if events is not None:
                events.end(trainer)
            return _run(target, trainer, resumed_from, price_per_hour, error), error
    finally:
        if events is not None:
            events.close()


class TrainView:
    """The figures of a training, shown while the context is entered."""

    def __init__(
        self, console: Console, target: str, trainer: Trainer, price_per_hour: float | None
    ) -> None:
        self._panel = LivePanel(console, target)
        self._price_per_hour = price_per_hour
        self._before = trainer.standing()
        self._tree, self._gpu = ProcessTree(), GpuGauge()
        self._cpu_s = self._tree.sample()[0]

    def __enter__(self) -> Self:
        self._panel.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._panel.__exit__(kind, error, trace)
        self._gpu.close()
        self._tree.close()

    def update(self, trainer: Trainer) -> None:
        """Show where training stands, if it is time to."""
        if not self._panel.due():
            return
        now, before = trainer.standing(), self._before
        total = trainer.settings.total_steps
        rows = [
            _progress(now, total),
            _rates(before, now),
            _returns(now, trainer.target_return),
            _shown(now, LAG),
            _shown(now, SERVER),
            self._machine(before, now),
        ]
        self._before = now
        self._panel.show(now.env_steps / total, [row for row in rows if row])

    def _machine(self, before: Standing, now: Standing) -> Row:
        cpu_s, elapsed = self._tree.sample()[0], now.wall_s - before.wall_s
        used, self._cpu_s = (cpu_s - self._cpu_s) / elapsed, cpu_s
        row = [("CPU", percent(used))]  # of one core
        duty = self._gpu.sample().duty
        if not math.isnan(duty):
            row.append(("GPU", percent(duty)))
        if self._price_per_hour is not None:
            row.append(("cost", number(now.wall_s / 3600 * self._price_per_hour)))
        return row


def _progress(now: Standing, total: int) -> Row:
    return [("env steps", f"{now.env_steps:,} of {total:,}"), ("episodes", f"{now.episodes:,}")]


def _rates(before: Standing, now: Standing) -> Row:
    elapsed = now.seconds - before.seconds
    if elapsed <= 0:
        return []
    counts = (("SPS", "env_steps"), ("updates/s", "updates"), ("BPS", "batches"))
    return [
        (name, number((getattr(now, of) - getattr(before, of)) / elapsed)) for name, of in counts
    ]


def _returns(now: Standing, target_return: float) -> Row:
    wanted = "" if math.isnan(target_return) else f" (wanted {target_return:g})"
    return [
        ("return in training", _return(now.training_return)),
        ("greedy", f"{_return(now.greedy_return)}{wanted}"),
    ]


def _return(value: float) -> str:
    return "…" if math.isnan(value) else f"{value:.1f}"


# Figures by their names, and how they are shown: how far acting policies are behind, where they can
# be, and what an inference server does, where there is one.
LAG = {
    "lag_mean": "lag",
    "lag_max": "most",
    "queue_depth": "queue",
    "fragments_dropped": "dropped",
}
SERVER = {
    "server_batch_rows": "server batch",
    "server_wait_s": "seconds waited",
    "server_busy": "busy",
}


def _shown(now: Standing, names: dict[str, str]) -> Row:
    return [(shown, number(now.figures[n])) for n, shown in names.items() if n in now.figures]


def _run(
    target: str,
    trainer: Trainer,
    resumed_from: Path | None,
    price_per_hour: float | None,
    error: BaseException | None,
) -> Run:
    training = trainer.training()
    standing, settings = training.standing, trainer.settings
    threshold = None if math.isnan(training.target_return) else training.target_return
    checkpoint = training.checkpoint or resumed_from
    return Run(
        verb="train",
        target=target,
        settings=dataclasses.asdict(settings) | {"price_per_hour": price_per_hour},
        facts={
            "env_id": settings.env_id,
            "unit": "env steps",
            "threshold": threshold,
            "solved": training.solved,
            "steps_to_solve": training.steps_to_solve,
            "seconds_to_solve": training.seconds_to_solve,
            "ended": training.ended,
            "seconds": standing.seconds,
            "wall_s": standing.wall_s,
            "env_steps_done": standing.env_steps,
            "updates": standing.updates,
            "batches": standing.batches,
            "episodes": standing.episodes,
            "training_return": _known(standing.training_return),
            "figures": {name: _known(value) for name, value in standing.figures.items()},
            "checkpoint": None if checkpoint is None else str(checkpoint),
            "resumed_from": None if resumed_from is None else str(resumed_from),
            "price_per_hour": price_per_hour,
        },
        arrays={
            "env_steps": training.env_steps,
            "seconds": training.seconds,
            "mean_return": training.mean_return,
            "passed": np.asarray(training.mean_return >= training.target_return, np.bool_),
        },
        complete=error is None,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
