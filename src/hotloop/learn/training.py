"""Train until a policy is good enough: the same rule and the same clock for every learner."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.envs.ids import env_spec
from hotloop.learn.evaluate import Evaluation, Greedy

# A single pass may be chance: the returns of a policy that learns go up and down.
PASSES = 2


class Point(NamedTuple):
    """Where training stands after an iteration."""

    env_steps: int
    seconds: float  # of iterations; evaluation is not in it
    mean_return: float  # of the last greedy evaluation; not a number before the first


@dataclass(frozen=True)
class Training:
    """A training that has ended: its curve has one entry for each greedy evaluation."""

    target_return: float  # not a number where the env names none
    env_steps: NDArray[np.int64]
    seconds: NDArray[np.float64]  # of iterations; evaluation is not in it
    mean_return: NDArray[np.float64]  # over the fixed episodes of the evaluation
    solved: bool  # whether the last evaluations, two in a row, reached the target

    @property
    def steps_to_solve(self) -> int | None:
        """Env steps at the second of the two, or None."""
        return int(self.env_steps[-1]) if self.solved else None

    @property
    def seconds_to_solve(self) -> float | None:
        """Seconds of training at the second of the two, or None."""
        return float(self.seconds[-1]) if self.solved else None


def train_until_solved(
    iterate: Callable[[], int],
    policy: Greedy,
    *,
    env_id: str,
    total_steps: int,
    evaluate_every: int,
    target_return: float,
    on_iteration: Callable[[Point], None] | None,
) -> Training:
    """Iterate until two greedy evaluations in a row reach the target, or `total_steps` are used.

    iterate: one iteration of the learner; returns its env steps.
    evaluate_every: env steps between two evaluations, which are in no reported time.
    target_return: not a number stands for the env's own threshold; if it has none, nothing solves.
    """
    if math.isnan(target_return):
        threshold = env_spec(env_id).reward_threshold
        target_return = math.nan if threshold is None else threshold
    evaluation = Evaluation.of(env_id)
    curve: list[Point] = []
    env_steps, seconds, mean_return, passed = 0, 0.0, math.nan, 0
    try:
        while passed < PASSES and env_steps < total_steps:
            start = time.perf_counter()
            env_steps += iterate()
            seconds += time.perf_counter() - start
            if (
                env_steps // evaluate_every
                > (curve[-1].env_steps if curve else 0) // evaluate_every
            ):
                mean_return = float(evaluation(policy).mean())
                passed = passed + 1 if mean_return >= target_return else 0
                curve.append(Point(env_steps, seconds, mean_return))
            if on_iteration is not None:
                on_iteration(Point(env_steps, seconds, mean_return))
    finally:
        evaluation.close()
    return Training(
        target_return=target_return,
        env_steps=np.array([point.env_steps for point in curve], np.int64),
        seconds=np.array([point.seconds for point in curve]),
        mean_return=np.array([point.mean_return for point in curve]),
        solved=passed == PASSES,
    )
