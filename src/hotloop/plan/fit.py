"""The fit of the cost model: every set of parameters that the points allow, each with its weight.

A step of N envs takes max(c₁N, d + a + c₂N) seconds where it waits for all of them (other modes:
`hotloop.plan.modes`). A few points rarely determine all of it. So no single best set is taken: the
weights of a grid of parameters are computed (Bayes' rule), and a forecast is the median over the
grid, its interval the range that holds 95% of it. What the points leave open stays wide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotloop.errors import RefusedError, SettingError
from hotloop.loop.figures import Interval
from hotloop.plan.modes import MODES, Array, Cell, Chain, Parts, chain_times
from hotloop.plan.points import Point, distinct
from hotloop.plan.weights import DRAWS, drawn, error_scale, log_weights, measured_interval

LEAST_POINTS = 2
CALL_STEPS, CALL_DECADES = 160, 3.0  # of the grid of c₁, downwards from the largest possible
MOST_NOISE = 2.0  # factor by which a point may seem faster than it is
OVERLAPS = 11
LATENCIES, LEAST_LATENCY_S = 24, 1e-5
# κ: 0.25 to 0.7 µs for an env step of 64 bytes against 205 µs for a message were measured; larger
# observations cost more.
LEAST_DATA_SHARE, MOST_DATA_SHARE, DATA_SHARES = 5e-4, 0.1, 7
NEGLIGIBLE = 1e-5  # weight, relative to the largest one
LISTED = 8  # points of a refusal
MOST_RMS, MOST_RESIDUAL = 0.2, 0.4  # of the log of a rate: beyond, the model does not fit


@dataclass(frozen=True)
class Draws:
    """Parameters, (M,) each, equally probable.

    call_s: head's time for one env step, where a message carries `env_steps` of them. overlap,
    latency_s: of `Parts`. data_share: κ, the time of one more env step in a message over that of
    the message. error: the scale of what a further measurement is off. count: of the points.
    """

    call_s: Array
    overlap: Array
    latency_s: Array
    data_share: Array
    error: Array
    count: int
    env_steps: float
    mode: str

    def call_of(self, env_steps: Array | float) -> Array:
        """Seconds of the head for one env step if a message carries so many.

        A message of x env steps costs (1 + κx)·const., so an env step costs (1 + κx)/x of it.
        """
        k, known = self.data_share, self.env_steps
        return self.call_s * (known / env_steps) * (1 + k * env_steps) / (1 + k * known)


@dataclass(frozen=True)
class Fit:
    """What points of one mode say: the draws, and what each point is off, log(SPS / model's)."""

    points: list[Point]
    draws: Draws
    residuals: list[float]


def fit_points(points: Sequence[Point]) -> Fit:
    """Fit the model to points of one mode.

    Raises: SettingError for too few points; RefusedError where no parameters fit, with what each
    point is off.
    """
    points = distinct(points)
    if len({point.cell for point in points}) < LEAST_POINTS:
        raise SettingError(
            f"the cost model needs at least {LEAST_POINTS} different points, got "
            f"{len({point.cell for point in points})}: measure one where a step is long and one "
            "where it is short"
        )
    mode = points[0].cell.mode
    env_steps = [MODES[mode].env_steps(point.cell) for point in points]
    known = float(np.exp(np.mean(np.log(env_steps))))
    draws = _draw(points, known, varies=len(set(env_steps)) > 1)
    residuals = [float(np.median(_log_time(draws, p.cell)) - _measured(p)) for p in points]
    _expect_fit(points, residuals)
    return Fit(points, draws, residuals)


def parts_of(
    draws: Draws,
    cell: Cell,
    *,
    slowest: float = 1.0,
    core: float = 1.0,
    policy_s: float = 0.0,
    carry_s: float = 0.0,
) -> Parts:
    """The parts of a step in a cell, for all draws. slowest, core: `slowest_s` and `core_s` of
    `Parts`, as multiples of step_s. carry_s: of the network for one env step.
    """
    mode = MODES[cell.mode]
    env_steps = mode.env_steps(cell)
    latency = draws.latency_s
    if mode.asynchronous and not MODES[draws.mode].asynchronous:
        latency = latency / cell.steps_per_fragment  # once in a fragment
    return Parts(
        env_s=np.asarray(cell.step_s),
        slowest_s=np.asarray(cell.step_s * slowest),
        core_s=np.asarray(cell.step_s * core),
        calls_s=draws.call_of(env_steps) * cell.cores,
        overlap=draws.overlap,
        latency_s=latency,
        carried_s=np.asarray(carry_s * cell.cores),
        policy_s=np.asarray(policy_s),
        messages=np.asarray(max(1.0, cell.cores / env_steps)),
    )


def rate_interval(draws: Draws, cores: int, times_s: Array) -> Interval:
    """Env steps/s of `cores` envs that take these times (M,), as a measurement would show them."""
    return measured_interval(cores / times_s, draws.error, draws.count)


def cell_chains(draws: Draws, cell: Cell) -> tuple[Chain, ...]:
    """The chains of a step in a cell, for all draws."""
    return MODES[cell.mode].chains(parts_of(draws, cell))


def _log_time(draws: Draws, cell: Cell) -> Array:
    found: Array = np.log(chain_times(cell_chains(draws, cell)).max(axis=0))
    return found


def _measured(point: Point) -> float:
    return float(np.log(point.cell.cores / point.sps))


@dataclass(frozen=True)
class _Axis:
    """The values of one parameter on the grid: from low to high, evenly by value or by logarithm.

    share: of the prior's range that lies between its ends.
    """

    low: float
    high: float
    count: int
    by_logarithm: bool = False
    share: float = 1.0

    def values(self) -> Array:
        if self.by_logarithm:
            return np.geomspace(self.low, self.high, self.count)
        return np.linspace(self.low, self.high, self.count)

    def narrowed(self, weights: Array) -> "_Axis":
        """The axis around its values that have weight, (count,) relative to the largest one."""
        kept = np.flatnonzero(weights > NEGLIGIBLE)
        first, last = max(0, kept[0] - 1), min(self.count - 1, kept[-1] + 1)
        if self.count == 1 or last - first == self.count - 1:
            return self
        ends = self.values()[[first, last]]
        share = self.share * (last - first) / (self.count - 1)
        return replace(self, low=float(ends[0]), high=float(ends[1]), share=share)


@dataclass(frozen=True)
class _Branch:
    """A box of the parameters: c₁, overlap, latency, κ. prior: its weight before any point."""

    prior: float
    axes: tuple[_Axis, _Axis, _Axis, _Axis]

    def columns(self) -> list[Array]:
        mesh = np.meshgrid(*(axis.values() for axis in self.axes), indexing="ij")
        return [column.ravel() for column in mesh]

    def narrowed(self, weights: Array) -> "_Branch":
        """The box around what has weight, (values of the grid,) relative to the largest one."""
        grid = weights.reshape([axis.count for axis in self.axes])
        every = range(grid.ndim)
        axes = tuple(
            axis.narrowed(grid.max(axis=tuple(k for k in every if k != place)))
            for place, axis in enumerate(self.axes)
        )
        return replace(self, axes=axes)  # type: ignore[arg-type]  # as many as before


def _branches(points: Sequence[Point], *, varies: bool) -> list[_Branch]:
    """What is possible before any point: either the latency counts for nothing and the overlap is
    one half or more, or there is a latency and any overlap. Within both, everything is as probable
    (of times and κ: their logarithm). varies: whether messages have several sizes; without that
    the points say nothing about κ.
    """
    slowest = max(p.cell.cores / p.sps for p in points)
    most_call = MOST_NOISE * min(1 / p.sps for p in points)  # no point is faster than 1/c₁
    call = _Axis(most_call * 10**-CALL_DECADES, most_call, CALL_STEPS, by_logarithm=True)
    data = _Axis(LEAST_DATA_SHARE, MOST_DATA_SHARE, DATA_SHARES if varies else 1, by_logarithm=True)
    latency = _Axis(LEAST_LATENCY_S, max(slowest, 2 * LEAST_LATENCY_S), LATENCIES, True)
    share = MODES[points[0].cell.mode].latency_share
    return [
        _Branch(1 - share, (call, _Axis(0.5, 1.0, OVERLAPS), _Axis(0.0, 0.0, 1), data)),
        _Branch(share, (call, _Axis(0.0, 1.0, OVERLAPS), latency, data)),
    ]


def _weighed(
    branches: Sequence[_Branch], points: Sequence[Point], env_steps: float
) -> tuple[list[Draws], list[Array]]:
    """The grid of each branch, and the log of the weight of each set of parameters on it."""
    grids, weights = [], []
    for branch in branches:
        calls, overlaps, latencies, shares = branch.columns()
        mode, none = points[0].cell.mode, np.zeros(len(calls))
        grid = Draws(calls, overlaps, latencies, shares, none, len(points), env_steps, mode)
        squares = np.zeros(len(calls))
        for point in points:
            squares += (_log_time(grid, point.cell) - _measured(point)) ** 2
        inside = branch.prior * math.prod(axis.share for axis in branch.axes) / len(calls)
        grids.append(replace(grid, error=error_scale(squares, len(points))))
        weights.append(math.log(inside) + log_weights(squares, len(points)))
    return grids, weights


def _draw(points: Sequence[Point], env_steps: float, *, varies: bool) -> Draws:
    """Draw sets of parameters in proportion to their weights, evenly and always the same ones.

    A coarse grid says where there is weight; a second one has all its values there.
    """
    branches = _branches(points, varies=varies)
    _, weights = _weighed(branches, points, env_steps)
    most = max(float(each.max()) for each in weights)
    kept = [
        branch.narrowed(np.exp(each - most))
        for branch, each in zip(branches, weights, strict=True)
        if np.exp(each.max() - most) > NEGLIGIBLE
    ]
    grids, weights = _weighed(kept, points, env_steps)
    taken = drawn(np.concatenate(weights))

    def column(name: str) -> Array:
        values: Array = np.concatenate([getattr(grid, name) for grid in grids])[taken]
        return values

    return replace(
        grids[0],
        call_s=column("call_s"),
        overlap=column("overlap"),
        latency_s=column("latency_s"),
        data_share=column("data_share") if varies else _any_data_share(),
        error=column("error"),
    )


def _any_data_share() -> Array:
    """κ as it is before any point says something about it."""
    shares = np.geomspace(LEAST_DATA_SHARE, MOST_DATA_SHARE, DRAWS)
    return np.random.default_rng(0).permutation(shares)


def _expect_fit(points: Sequence[Point], residuals: Sequence[float]) -> None:
    """Refuse a fit that leaves too much unexplained."""
    away = np.abs(residuals)
    if np.sqrt((away**2).mean()) <= MOST_RMS and away.max() <= MOST_RESIDUAL:
        return
    worst = sorted(zip(points, residuals, strict=True), key=lambda pair: -abs(pair[1]))
    listed = "; ".join(
        f"{p.cell}: measured {p.sps:g} SPS, model {p.sps * np.exp(-r):.4g} ({np.expm1(-r):+.0%})"
        for p, r in worst[:LISTED]
    )
    more = f"; and {len(worst) - LISTED} that are off by less" if len(worst) > LISTED else ""
    raise RefusedError(
        f"no cost model fits these {len(points)} points: expected each within "
        f"{np.expm1(MOST_RESIDUAL):.0%} and {MOST_RMS:.0%} in the root mean square, got {listed}"
        f"{more}. Measure the worst of them again, or leave out what was measured in another way"
    )
