"""Forecasts of the fitted model: SPS, efficiency, what limits it, and which mode would lift it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.plan.fit import Draws, Fit, fit_points, parts_of, rate_interval
from hotloop.plan.lag import Learning, Staleness, staleness
from hotloop.plan.modes import (
    LEARNER,
    MODES,
    Array,
    Cell,
    Chain,
    chain_times,
    limit,
)
from hotloop.plan.points import Point
from hotloop.plan.settings import PlanSettings

DETERMINED = 2.0  # most times that the upper end of an interval may be the lower one
WORTH_GAIN = 1.05  # what another mode must bring, and what a later one of the table must add
SPREAD_QUANTILES = 2_000

Fits = Mapping[str, Fit]


@dataclass(frozen=True)
class Lift:
    """A mode that would bring more. gain: of its rate over the present one."""

    mode: str
    sps: Interval
    gain: Interval


@dataclass(frozen=True)
class Forecast:
    """What the model says of a cell. money: for a million env steps, in the unit of the price.
    staleness: of what a learner beside its actors learns from.
    """

    cell: Cell
    sps: Interval
    efficiency: float
    limited_by: str
    lift: Lift | None
    money: Interval | None
    staleness: Staleness | None

    @property
    def determined(self) -> bool:
        """Whether the points leave less than a factor of two open."""
        return self.sps.high <= DETERMINED * self.sps.low


def fit_modes(points: Sequence[Point]) -> dict[str, Fit]:
    """Fit the points of each mode by themselves, in the order of the table of modes.

    Raises: SettingError, RefusedError, as `fit_points` does.
    """
    found = {mode: [p for p in points if p.cell.mode == mode] for mode in MODES}
    return {mode: fit_points(of_mode) for mode, of_mode in found.items() if of_mode}


def forecast(fits: Fits, cell: Cell, settings: PlanSettings) -> Forecast:
    """Forecast a cell, and the mode that would lift it."""
    draws = draws_for(fits, cell.mode)
    times = step_times(draws, cell, settings)
    sps = rate_interval(draws, cell.cores, times)
    return Forecast(
        cell=cell,
        sps=sps,
        efficiency=sps.value / cell.ideal_sps,
        limited_by=limit(step_chains(draws, cell, settings)),
        lift=_lift(fits, cell, settings, times),
        money=_money(sps, cell.nodes, settings),
        staleness=_staleness(draws, cell, settings),
    )


def draws_for(fits: Fits, mode: str) -> Draws:
    """The parameters for a mode: its own, or of the nearest measured one before it in the table."""
    modes = list(MODES)
    place = modes.index(mode)
    nearest = [*reversed(modes[: place + 1]), *modes[place + 1 :]]
    return next(fits[name].draws for name in nearest if name in fits)


def step_chains(draws: Draws, cell: Cell, settings: PlanSettings) -> tuple[Chain, ...]:
    """The chains of a step of all envs, with the learner and the network."""
    mode = MODES[cell.mode]
    envs, spread = mode.waits_for(cell), settings.step_spread
    slowest = slowest_of(envs, spread)
    # Of two envs, a core is done after the sum of two durations, whose spread is √2 times less.
    core = slowest_of(envs, spread / math.sqrt(2))
    parts = parts_of(
        draws,
        cell,
        slowest=slowest,
        core=core,
        policy_s=settings.policy_s,
        carry_s=settings.carry_s,
    )
    chains = mode.chains(parts)
    if settings.learner_sps is None:
        return chains
    learner = {LEARNER: np.asarray(cell.cores / settings.learner_sps)}
    if mode.asynchronous:
        return (*chains, learner)
    return tuple({**chain, **learner} for chain in chains)


def step_times(draws: Draws, cell: Cell, settings: PlanSettings) -> Array:
    """Seconds of a step of all envs, (M,)."""
    times: Array = chain_times(step_chains(draws, cell, settings)).max(axis=0)
    return np.broadcast_to(times, draws.call_s.shape)


def slowest_of(count: int, spread: float) -> float:
    """The mean of the longest of `count` durations over the mean of one.

    Durations are log-normal with this standard deviation over their mean. The longest of n has the
    distribution Fⁿ, so its quantile q is F's quantile q^(1/n); the mean is taken over quantiles.
    """
    if spread == 0 or count == 1:
        return 1.0
    sigma = np.sqrt(np.log1p(spread**2))
    places = (np.arange(SPREAD_QUANTILES) + 0.5) / SPREAD_QUANTILES
    # 1 − q^(1/n), exact where q^(1/n) is next to 1.
    tails = -np.expm1(np.log(places) / count)
    normal = NormalDist()
    z = -np.array([normal.inv_cdf(float(tail)) for tail in tails])
    return float(np.exp(sigma * z - sigma**2 / 2).mean())


def smallest_cluster(
    fits: Fits, like: Cell, target_sps: float, settings: PlanSettings, *, most: int = 10**6
) -> tuple[int | None, int | None]:
    """The fewest nodes whose rate reaches a target: by the middle, and by the lower end of the
    interval; None where no number of nodes up to `most` does.
    """
    draws = draws_for(fits, like.mode)

    def reached(nodes: int, *, surely: bool) -> bool:
        cell = replace(like, nodes=nodes)
        sps = rate_interval(draws, cell.cores, step_times(draws, cell, settings))
        return (sps.low if surely else sps.value) >= target_sps

    def fewest(surely: bool) -> int | None:
        # Rates never fall with the nodes: twice as many until it is enough, then halves.
        high = 1
        while not reached(high, surely=surely):
            if high >= most:
                return None
            high = min(2 * high, most)
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle, surely=surely) else (middle, high)
        return high

    return fewest(False), fewest(True)


def _lift(fits: Fits, cell: Cell, settings: PlanSettings, now: Array) -> Lift | None:
    """The mode that brings most; the earlier one of the table where two bring about as much."""
    best: Lift | None = None
    for name in MODES:
        if name == cell.mode:
            continue
        draws, other = draws_for(fits, name), replace(cell, mode=name)
        times = step_times(draws, other, settings)
        low, gain, high = (float(x) for x in np.quantile(now / times, [0.025, 0.5, 0.975]))
        if gain > WORTH_GAIN * (best.gain.value if best else 1.0):
            sps = rate_interval(draws, cell.cores, times)
            best = Lift(name, sps, Interval(gain, low, high))
    return best


def _staleness(draws: Draws, cell: Cell, settings: PlanSettings) -> Staleness | None:
    """The lag and the waiting where nodes go on while the learner learns."""
    if settings.learner_sps is None or not MODES[cell.mode].asynchronous:
        return None
    alone = replace(settings, learner_sps=None, batch_fragments=1, queue_fragments=1)
    step_s = float(np.median(step_times(draws, cell, alone)))
    fragment = cell.cores_per_node * cell.steps_per_fragment
    return staleness(
        Learning(
            actors=cell.nodes,
            fragment_s=step_s * cell.steps_per_fragment,
            batch_fragments=settings.batch_fragments,
            update_s=settings.batch_fragments * fragment / settings.learner_sps,
            queue_fragments=settings.queue_fragments,
        )
    )


def _money(sps: Interval, nodes: int, settings: PlanSettings) -> Interval | None:
    """The price of a million env steps."""
    if settings.price_per_hour is None:
        return None
    price = nodes * settings.price_per_hour / 3600 * 1e6
    return Interval(price / sps.value, price / sps.high, price / sps.low)
