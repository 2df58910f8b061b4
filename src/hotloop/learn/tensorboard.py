"""The course of a training as live metrics, with the names that CleanRL has."""

import dataclasses
import math
import time
from collections.abc import Callable

from hotloop.learn.training import Standing, Trainer
from hotloop.loop.sinks import Sinks

PERIOD_S = 0.5  # between two sets of events
# Tags of figures that are no loss; every other one is `losses/NAME`.
_CHARTS = (
    *("learning_rate", "lag_mean", "lag_max", "queue_depth", "fragments_dropped"),
    *("replay_size", "replay_shards", "transitions_lost", "weight_mean"),
    *("server_batch_rows", "server_wait_s", "server_busy"),
)


class EventLog:
    """Write the metrics of a training: at most twice a second, and each evaluation.

    clock: returns seconds, as `time.perf_counter` does.
    """

    def __init__(self, sinks: Sinks, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._sinks = sinks
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
        self._sinks.text("hyperparameters", table)

    def note(self, trainer: Trainer) -> None:
        """Write what is due; cheap enough to be called every millisecond."""
        if self._sinks.stopped:
            return
        if len(trainer.curve) > self._evaluations:
            self._add_evaluations(trainer)
        if self._clock() >= self._next:
            self._next = self._clock() + PERIOD_S
            self._add(trainer.standing())

    def end(self, trainer: Trainer) -> None:
        """Write where training stands at its end, and what came of it."""
        self._next = -math.inf
        self.note(trainer)
        standing = trainer.standing()
        best = max((point.mean_return for point in trainer.curve), default=math.nan)
        last = trainer.curve[-1].mean_return if trainer.curve else math.nan
        self._sinks.final(
            {
                "env_steps": standing.env_steps,
                "updates": standing.updates,
                "seconds": standing.seconds,
                "greedy_return": last,
                "best_greedy_return": best,
            },
            standing.env_steps,
        )

    def close(self) -> None:
        """Close what they went to. Idempotent."""
        self._sinks.close()

    def _add_evaluations(self, trainer: Trainer) -> None:
        for point in trainer.curve[self._evaluations :]:
            self._sinks.scalars({"charts/greedy_return": point.mean_return}, point.env_steps)
        self._evaluations = len(trainer.curve)

    def _add(self, standing: Standing) -> None:
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
        self._sinks.scalars(scalars, standing.env_steps)
