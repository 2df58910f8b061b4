"""Train until a policy is good enough: the same rule, clock and files for every learner.

A learner learns; what stands here evaluates it, saves it, goes on from what was saved, and ends it.
"""

import io
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hotloop.envs.ids import env_spec
from hotloop.errors import SettingError, expect_positive, expect_whole
from hotloop.learn.algorithms import learner_type
from hotloop.learn.checkpoint import Checkpoint, package_versions, save_checkpoint
from hotloop.learn.evaluate import Evaluation
from hotloop.learn.interrupts import Interrupts
from hotloop.learn.learner import Learner, LossError
from hotloop.learn.settings import LearnerSettings
from hotloop.loop.files import atomic_path

# A single pass may be chance: the returns of a policy that learns go up and down.
PASSES = 2
# Settings that may differ in a resumed training: what is learned from, and how, stays the same.
MAY_CHANGE = (
    *("total_steps", "target_return", "evaluate_every"),
    *("backend", "num_workers", "torch_threads", "device"),
    *("precision", "compiled", "transfer", "copy"),
    *("policy_at", "server_batch", "server_deadline_s", "server_timeout_s", "server_device"),
    *("replay_shards", "prefetch"),
    *("restarts", "num_cpus", "num_gpus", "placement"),
)
SOLVED, STEPS, TIME, INTERRUPTED, FAILED = "solved", "steps", "time", "interrupted", "failed"
_LOG = logging.getLogger("hotloop")


class Point(NamedTuple):
    """Where training stands after an iteration."""

    env_steps: int
    seconds: float  # of training; evaluation is not in it
    mean_return: float  # of the last greedy evaluation; not a number before the first


@dataclass(frozen=True)
class Standing:
    """How far a training is and how fast it came there: everything that is shown of it."""

    env_steps: int
    seconds: float  # of training, over all resumes; evaluation is not in it
    wall_s: float  # with evaluations and the writing of checkpoints, over all resumes
    updates: int
    batches: int  # that the updates were made of: optimiser steps
    episodes: int
    training_return: float  # mean of the last 100 episodes of training; not a number before
    greedy_return: float  # of the last greedy evaluation; not a number before the first
    figures: Mapping[str, float]  # of the last update, by the names that CleanRL logs them with


@dataclass(frozen=True)
class Training:
    """A training that has ended: its curve has one entry for each greedy evaluation."""

    target_return: float  # not a number where the env names none
    env_steps: NDArray[np.int64]
    seconds: NDArray[np.float64]  # of training; evaluation is not in it
    mean_return: NDArray[np.float64]  # over the fixed episodes of the evaluation
    solved: bool  # whether the last evaluations, two in a row, reached the target
    ended: str  # why: solved, steps (all used), time (the limit), interrupted, failed
    standing: Standing
    checkpoint: Path | None  # the newest one that was written or resumed from

    @property
    def steps_to_solve(self) -> int | None:
        """Env steps at the second of the two, or None."""
        return int(self.env_steps[-1]) if self.solved else None

    @property
    def seconds_to_solve(self) -> float | None:
        """Seconds of training at the second of the two, or None."""
        return float(self.seconds[-1]) if self.solved else None


def train(
    settings: LearnerSettings,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 0,
    resume: Checkpoint | None = None,
    time_limit_s: float | None = None,
    on_iteration: Callable[[Point], None] | None = None,
) -> Training:
    """Train until two greedy evaluations in a row reach the target, or steps or time are used.

    The arguments are those of `Trainer`; on_iteration is called after each iteration.

    Raises: as `Trainer` and `Trainer.run`; envs and workers are closed in any case.
    """
    with Trainer(
        settings,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        resume=resume,
        time_limit_s=time_limit_s,
    ) as trainer:
        trainer.run(on_iteration)
        return trainer.training()


class Trainer:
    """A learner that is trained; as a context it closes the learner.

    checkpoint: the file to write at the end, after an interrupt, and every `checkpoint_every` env
    steps, 0 for not in between; None writes none. Where the learner is synchronous, a checkpoint
    begins new episodes in all envs, so that a training that is resumed from it meets the same ones.
    resume: goes on from there. time_limit_s: of training, over all resumes.

    Raises: SettingError for settings that do not fit, or that differ from those of `resume` in
    more than `MAY_CHANGE`; CheckpointError for a state of another network; what making the learner
    raises.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        *,
        checkpoint: Path | None = None,
        checkpoint_every: int = 0,
        resume: Checkpoint | None = None,
        time_limit_s: float | None = None,
    ) -> None:
        expect_whole("checkpoint_every", checkpoint_every, 0)
        expect_positive("time_limit", time_limit_s)
        if resume is not None:
            _expect_same_course(resume, settings, checkpoint_every)
        self.settings, self.checkpoint = settings, checkpoint
        self.target_return = settings.target_return
        if math.isnan(self.target_return):
            threshold = env_spec(settings.env_id).reward_threshold
            self.target_return = math.nan if threshold is None else threshold
        self.curve: list[Point] = []
        self.ended = ""  # why, once it has
        self._every, self._time_limit_s = checkpoint_every, time_limit_s
        self._seconds = self._wall_before_s = 0.0
        self._saved: Path | None = None
        self.learner: Learner = learner_type(settings.algorithm)(settings)  # type: ignore[call-arg]
        self.settings = self.learner.settings  # which say where the policy acts, for a resume
        try:
            if resume is not None:
                self._go_on(resume)
            self._saved_at = self.learner.progress.env_steps
            self._evaluation = Evaluation.of(settings.env_id)
            self.learner.wait_until_started()
        except BaseException:
            self.learner.close()
            raise
        self._began = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._evaluation.close()
        finally:
            self.learner.close()

    # --- training --------------------------------------------------------------------------------

    def run(self, on_iteration: Callable[[Point], None] | None = None) -> None:
        """Train to the end, and write the last checkpoint.

        The first SIGINT or SIGTERM ends it after the iteration, a second one at once.

        Raises: KeyboardInterrupt after an interrupt; LossError for a loss that is no number, with
        the batch saved beside the checkpoint; CheckpointError if one cannot be written; what the
        env raises.
        """
        self.ended = FAILED
        with Interrupts() as interrupts:
            while not (end := self._end()) and not interrupts.requested:
                self._iterate()
                env_steps = self.learner.progress.env_steps
                evaluated_at = self.curve[-1].env_steps if self.curve else 0
                if _is_due(self.settings.evaluate_every, evaluated_at, env_steps):
                    self._evaluate()
                if self._every and _is_due(self._every, self._saved_at, env_steps):
                    self._save_and_restart()
                if on_iteration is not None:
                    on_iteration(self.point)
            self.save()
        self.ended = end or INTERRUPTED
        if not end:
            raise KeyboardInterrupt

    def save(self) -> None:
        """Write a checkpoint, if there is to be one. Raises: CheckpointError."""
        already = self._saved is not None and self._saved_at == self.learner.progress.env_steps
        if self.checkpoint is None or already:
            return
        state = Checkpoint(
            settings=self.settings,
            state=self.learner.state_dict(),
            curve=self._curve(),
            seconds=self._seconds,
            wall_s=self._wall_s,
            every=self._every,
            versions=package_versions(),
        )
        save_checkpoint(state, self.checkpoint)
        self._saved, self._saved_at = self.checkpoint, self.learner.progress.env_steps

    def _end(self) -> str:
        """Why training ends here; empty where it goes on."""
        if self._passes() >= PASSES:
            return SOLVED
        if self.learner.progress.env_steps >= self.settings.total_steps:
            return STEPS
        if self._time_limit_s is not None and self._seconds >= self._time_limit_s:
            return TIME
        return ""

    def _passes(self) -> int:
        """How many of the last evaluations, in a row, reached the target."""
        passed = 0
        for point in reversed(self.curve[-PASSES:]):
            if not point.mean_return >= self.target_return:
                break
            passed += 1
        return passed

    def _iterate(self) -> None:
        start = time.perf_counter()
        try:
            self.learner.iterate()
        except LossError as error:
            raise LossError(f"{error}; {self._save_batch(error)}", error.batch) from error
        self._seconds += time.perf_counter() - start

    def _evaluate(self) -> None:
        with self.learner.paused():
            mean_return = float(self._evaluation(self.learner.policy).mean())
        self.curve.append(Point(self.learner.progress.env_steps, self._seconds, mean_return))

    def _save_and_restart(self) -> None:
        """Write a checkpoint in the middle of training, whose time counts as training."""
        start = time.perf_counter()
        self.save()
        if self.learner.synchronous:  # the others promise no bits, and may restart processes
            self.learner.restart_envs()
        self._seconds += time.perf_counter() - start

    def _save_batch(self, error: LossError) -> str:
        """Save the arrays that led to a loss which is no number; say where."""
        if self.checkpoint is None:
            return "the error's `batch` holds the arrays that led to it"
        path = self.checkpoint.with_name(f"{self.checkpoint.stem}.batch.npz")
        plain: dict[str, Any] = {n: a for n, a in error.batch.items() if not a.dtype.hasobject}
        try:
            with atomic_path(path) as scratch:
                buffer = io.BytesIO()
                np.savez(buffer, **plain)
                scratch.write_bytes(buffer.getvalue())
        except OSError as unsaved:
            return f"its batch could not be saved as {path}: {unsaved.strerror or unsaved}"
        return f"its batch is saved as {path}: numpy.load shows {', '.join(plain)}"

    # --- resuming --------------------------------------------------------------------------------

    def _go_on(self, resume: Checkpoint) -> None:
        """Take over the state of a checkpoint."""
        self.learner.load_state_dict(resume.state)
        self.learner.restart_envs()
        rows = zip(*(resume.curve[name].tolist() for name in Point._fields), strict=True)
        self.curve = [Point(*row) for row in rows]
        self._seconds, self._wall_before_s = resume.seconds, resume.wall_s
        changed = {
            name: (version, here)
            for name, version in resume.versions.items()
            if (here := package_versions().get(name, "none")) != version
        }
        if changed:
            said = ", ".join(f"{name} {was}, now {now}" for name, (was, now) in changed.items())
            _LOG.warning("saved with %s: training goes on, but not to the same bits", said)

    # --- what there is to show -------------------------------------------------------------------

    @property
    def point(self) -> Point:
        """Where training stands, in brief."""
        mean_return = self.curve[-1].mean_return if self.curve else math.nan
        return Point(self.learner.progress.env_steps, self._seconds, mean_return)

    def standing(self) -> Standing:
        """Where training stands, in full."""
        progress = self.learner.progress
        return Standing(
            env_steps=progress.env_steps,
            seconds=self._seconds,
            wall_s=self._wall_s,
            updates=progress.updates,
            batches=progress.updates * self.learner.batches,
            episodes=progress.episodes,
            training_return=progress.mean_return,
            greedy_return=self.point.mean_return,
            figures=self.learner.figures(),
        )

    def training(self) -> Training:
        """What training has come to: at its end, or where an error cut it short."""
        curve = self._curve()
        return Training(
            target_return=self.target_return,
            env_steps=curve["env_steps"],
            seconds=curve["seconds"],
            mean_return=curve["mean_return"],
            solved=self._passes() >= PASSES,
            ended=self.ended,
            standing=self.standing(),
            checkpoint=self._saved,
        )

    @property
    def _wall_s(self) -> float:
        return self._wall_before_s + time.perf_counter() - self._began

    def _curve(self) -> dict[str, NDArray[Any]]:
        return {
            "env_steps": np.array([point.env_steps for point in self.curve], np.int64),
            "seconds": np.array([point.seconds for point in self.curve], np.float64),
            "mean_return": np.array([point.mean_return for point in self.curve], np.float64),
        }


def _is_due(every: int, last: int, now: int) -> bool:
    """Whether a multiple of `every` env steps was passed since the last time."""
    return now // every > last // every


def _expect_same_course(
    resume: Checkpoint, settings: LearnerSettings, checkpoint_every: int
) -> None:
    """Refuse settings that would change what a resumed training learns."""
    saved = resume.settings
    if (saved.algorithm, saved.env_id) != (settings.algorithm, settings.env_id):
        raise SettingError(
            f"target: expected {resume.target}, as in the checkpoint, got "
            f"{settings.algorithm}:{settings.env_id}; a checkpoint goes on with its own"
        )
    pairs = {f.name: (getattr(saved, f.name), getattr(settings, f.name)) for f in fields(saved)}
    pairs["checkpoint_every"] = (resume.every, checkpoint_every)
    for name, (was, now) in pairs.items():
        if name not in MAY_CHANGE and was != now:
            raise SettingError(
                f"{name}: expected {was}, as in the checkpoint, got {now}; it changes what is "
                "learned: leave it out, or begin a new training"
            )
