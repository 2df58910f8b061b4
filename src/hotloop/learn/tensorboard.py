"""The course of a training as TensorBoard events, with the tags that CleanRL has."""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotloop.learn.training import Standing, Trainer
from hotloop.loop.event_file import EventFile

PERIOD_S = 0.5  # between two sets of events
# Tags of figures that are no loss; every other one is `losses/NAME`.
_CHARTS = (
    *("learning_rate", "lag_mean", "lag_max", "queue_depth", "fragments_dropped"),
    *("replay_size", "replay_shards", "transitions_lost", "weight_mean"),
    *("server_batch_rows", "server_wait_s", "server_busy"),
)


class EventLog:
    """Write events of a training into a folder: at most twice a second, and each evaluation.

    clock: returns seconds, as `time.perf_counter` does.

    Raises: SettingError if TensorBoard is not installed, or the folder cannot be written to.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._file = EventFile(folder)
        self._clock = clock
        self._next = -math.inf
        self._before: Standing | None = None
        self._evaluations = 0  # that were written

    def begin(self, trainer: Trainer) -> None:
        """Write the settings, and leave out the evaluations before a resume."""
        rows = "\n".join(
            f"|{name}|{value}|" for name, value in dataclasses.asdict(trainer.settings).items()
        )
        self._evaluations = len(trainer.curve)
        self._before = trainer.standing()
        table = f"|setting|value|\n|-|-|\n{rows}"
        self._file.write(lambda writer: writer.add_text("hyperparameters", table))

    def note(self, trainer: Trainer) -> None:
        """Write what is due; cheap enough to be called every millisecond."""
        if self._file.stopped:
            return
        if len(trainer.curve) > self._evaluations:
            self._file.write(lambda writer: self._add_evaluations(writer, trainer))
        if self._clock() >= self._next:
            self._next = self._clock() + PERIOD_S
            self._file.write(lambda writer: self._add(writer, trainer.standing()))

    def end(self, trainer: Trainer) -> None:
        """Write where training stands at its end."""
        self._next = -math.inf
        self.note(trainer)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _add_evaluations(self, writer: Any, trainer: Trainer) -> None:
        for point in trainer.curve[self._evaluations :]:
            writer.add_scalar("charts/greedy_return", point.mean_return, point.env_steps)
        self._evaluations = len(trainer.curve)

    def _add(self, writer: Any, standing: Standing) -> None:
        scalars = {
            f"{'charts' if name in _CHARTS else 'losses'}/{name}": value
            for name, value in standing.figures.items()
        }
        scalars["charts/episodic_return"] = standing.training_return
        before, self._before = self._before, standing
        if before is not None and standing.seconds > before.seconds:
            elapsed = standing.seconds - before.seconds
            scalars["charts/SPS"] = (standing.env_steps - before.env_steps) / elapsed
            scalars["charts/updates_per_s"] = (standing.updates - before.updates) / elapsed
        for tag, value in scalars.items():
            if not math.isnan(value):
                writer.add_scalar(tag, value, standing.env_steps)
