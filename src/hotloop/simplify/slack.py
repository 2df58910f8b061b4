"""The slack of a stage: how long it can be delayed before the loop takes longer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.simplify.means import Means


@dataclass(frozen=True)
class Slack:
    """The slack s in T(d) = T0 + max(0, d − s), where d is the delay of the stage."""

    slack_ns: Interval
    slope: float  # the share of the longest delay by which the loop took longer


def fit_slack(means: Means, base: str, delayed: Sequence[tuple[str, float]]) -> Slack:
    """Fit the slack from arms with known delays.

    delayed: (arm, delay in ns that really happened in an iteration), at least one.
    Least squares in s; with one delay that is s = d − (T(d) − T0), not below 0.
    """
    at = [means.arms.index(arm) for arm, _ in delayed]
    base_at = means.arms.index(base)
    delays = np.array([delay for _, delay in delayed])
    felt = means.draws[:, at] - means.draws[:, [base_at]]
    felt_value = means.values[at] - means.values[base_at]
    draws = _best_slack(delays, felt)
    value = float(_best_slack(delays, felt_value[None])[0])
    longest = int(delays.argmax())
    return Slack(means.interval(value, draws), float(felt_value[longest] / delays[longest]))


def _best_slack(delays: np.ndarray, felt: np.ndarray) -> np.ndarray:
    """The s that fits best, for each row of felt delays (rows, delays)."""
    grid = np.linspace(0, float(delays.max()), 201)
    model = np.maximum(0, delays[None, :] - grid[:, None])
    error = ((felt[:, None, :] - model[None]) ** 2).sum(axis=2)
    best: np.ndarray = grid[error.argmin(axis=1)]
    return best
