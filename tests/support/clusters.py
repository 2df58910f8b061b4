"""Tables of clusters for tests: the published one, and such with planted parameters."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hotloop.plan.fit import Fit, rate_interval
from hotloop.plan.forecast import step_times
from hotloop.plan.modes import Cell
from hotloop.plan.points import Point, read_points
from hotloop.plan.settings import PlanSettings

PUBLISHED_CSV = Path(__file__).parents[2] / "docs" / "benchmarks" / "cluster_published.csv"


def published() -> dict[tuple[int, float], Point]:
    """The table of Tianshou's RayVectorEnv by nodes and seconds of a step."""
    return {(p.cell.nodes, p.cell.step_s): p for p in read_points(PUBLISHED_CSV)}


def planted(
    step_time: Callable[[Cell], float],
    *,
    noise: float = 0.0,
    seed: int = 0,
    nodes: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    cores: tuple[int, ...] = (8, 48),
    steps_s: tuple[float, ...] = (1.0, 0.1, 0.03, 0.01, 0.001),
) -> list[Point]:
    """Points of a cluster whose step of all envs takes what `step_time` says, with noise of this
    standard deviation in the logarithm of the rate.
    """
    rng = np.random.default_rng(seed)
    cells = [Cell(n, c, s) for n in nodes for c in cores for s in steps_s]
    return [Point(c, c.cores / step_time(c) * float(np.exp(noise * rng.normal()))) for c in cells]


def misses(fit: Fit, points: list[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Of points that were not fitted: the size of the forecast's error, and whether its interval
    holds the point. Both (points,).
    """
    rest = [point for point in points if point not in fit.points]
    draws = fit.draws
    times = [step_times(draws, point.cell, PlanSettings()) for point in rest]
    found = [
        rate_interval(draws, p.cell.cores, seconds) for p, seconds in zip(rest, times, strict=True)
    ]
    errors = [abs(f.value / p.sps - 1) for f, p in zip(found, rest, strict=True)]
    return np.array(errors), np.array([p.sps in f for f, p in zip(found, rest, strict=True)])
