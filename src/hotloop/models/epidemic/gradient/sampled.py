"""Estimators without bias whatever the network: single flips, and the score function.

Both look at the draws of a run: an agent under pressure is infected with probability p, and by
the rate dp follows. A flip replays the run with one draw decided the other way; the score function
weighs what came after with how likely the draws were.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from hotloop.errors import SettingError, expect_positive
from hotloop.models.epidemic.gradient.kernels import Pairs, send_infected, send_seeds
from hotloop.models.epidemic.gradient.message_passing import by_time, leaving, make_pairs
from hotloop.models.epidemic.gradient.problem import Simulator, SpreadProblem, infected_times
from hotloop.models.epidemic.spread import NEVER

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Flips:
    """Smoothed perturbation (stochastic automatic differentiation) by sampled single flips.

    As a rate rises, an agent that escaped with chance 1 - p is infected instead with weight
    dp / (1 - p). `count` of these events are drawn for each week in each run, in proportion to
    their weight, and each is replayed from its step on the same draws.

    Bias: none. Variance: that of what one infection leads to, over the number of flips.
    Source: Arya, Schauer, Schäfer and Rackauckas 2022.
    """

    count: int = 8
    seed: int = 0
    name: ClassVar[str] = "flips"

    def __post_init__(self) -> None:
        expect_positive("count", self.count)

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> tuple[Array, float]:
        """(weeks,) by rate and () by mortality."""
        infected, deaths = problem.cotangents(infected, deaths)
        times = infected_times(problem)
        by_rate, by_mortality = np.zeros(len(problem.rate)), 0.0
        for run, seed in enumerate(problem.seeds):
            daily = _daily(problem, times[run])
            by_mortality += float(deaths[run] @ leaving(problem, daily))
            worth = _worth(problem, infected[run], deaths[run])
            rng = np.random.default_rng([self.seed, seed % 2**64])
            replay = _Replay(problem, seed, times[run])
            events = _draws(problem, times[run])[1]
            entries = problem.entries[events.step]
            for entry in np.unique(entries):
                weight = np.where(entries == entry, events.weight, 0.0)
                total = float(weight.sum())
                chosen = rng.choice(len(weight), self.count, p=weight / total)
                gains = [replay.gain(events.step[n], events.agent[n], daily, worth) for n in chosen]
                by_rate[entry] += total * float(np.mean(gains))
        return by_rate, by_mortality


@dataclass(frozen=True)
class Score:
    """The score function with the other runs' mean of what is still to come as its baseline.

    Bias: none. Variance: grows with the number of agents that draw; needs two runs or more.
    Source: Williams 1992; leave-one-out baselines, Kool, van Hoof and Welling 2019.
    """

    name: ClassVar[str] = "score"

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> tuple[Array, float]:
        """(weeks,) by rate and () by mortality."""
        runs = len(problem.seeds)
        if runs < 2:
            raise SettingError("the score function needs two runs or more for its baseline; got 1")
        infected, deaths = problem.cotangents(infected, deaths)
        times = infected_times(problem)
        scores, rewards = np.zeros((runs, problem.steps)), np.zeros((runs, problem.steps))
        by_mortality = 0.0
        for run in range(runs):
            daily = _daily(problem, times[run])
            by_mortality += float(deaths[run] @ leaving(problem, daily))
            rewards[run] = daily * _worth(problem, infected[run], deaths[run])
            scores[run] = _draws(problem, times[run])[0]
        to_go = rewards[:, ::-1].cumsum(1)[:, ::-1]
        baseline = (to_go.sum(0) - to_go) / (runs - 1)
        by_step = (scores * (to_go - baseline)).sum(0)
        return np.bincount(problem.entries, by_step, minlength=len(problem.rate)), by_mortality


class _Events(NamedTuple):
    step: Array  # (n,) from the start
    agent: Array  # (n,)
    weight: Array  # (n,) dp / (1 - p)


def _daily(problem: SpreadProblem, infected_time: Array) -> Array:
    """(T,) infected at each step of a run."""
    step = infected_time[problem.start.layout.free].astype(np.int64) - problem.start.first_step
    step = step[(step >= 0) & (step < problem.steps)]
    return np.bincount(step, minlength=problem.steps).astype(np.float64)


def _worth(problem: SpreadProblem, infected: Array, deaths: Array) -> Array:
    """(T,) what an infection at each step counts by itself."""
    worth, span = infected.copy(), problem.start.layout.span
    if span < problem.steps:
        worth[:-span] += problem.mortality * deaths[span:]
    return worth


def _draws(problem: SpreadProblem, infected_time: Array) -> tuple[Array, _Events]:
    """The score of each step, (T,), and every escape of the run with its weight."""
    pairs, first = make_pairs(problem), problem.start.first_step
    order, order_ptr = by_time(infected_time, pairs.free, first, problem.steps)
    score, *events = _replayed_draws(
        np.ascontiguousarray(infected_time), first, order, order_ptr, pairs,
        problem.slopes, problem.rate[problem.entries], problem.start.group,
        problem.start.open_share,
    )  # fmt: skip
    return score, _Events(*events)


@njit(nogil=True, cache=True)
def _replayed_draws(
    infected_time: Array, first_step: int, order: Array, order_ptr: Array, pairs: Pairs,
    slopes: Array, rate: Array, group: Array, opened: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Visit every draw of a run: its share of the score; and the events of those who escaped."""
    steps, size = len(rate), len(group)
    score = np.zeros(steps)
    pressure, touched = np.zeros(size), np.empty(size, np.int32)
    at, who, weight, count = (
        np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024), 0
    )  # fmt: skip
    for step in range(steps):
        reached = send_seeds(step, pairs, pressure, touched, 0)
        reached = send_infected(step, order, order_ptr, pairs, pressure, touched, reached)
        for n in range(reached):
            agent = touched[n]
            hazard_slope = slopes[step, group[agent]] * pressure[agent]
            pressure[agent] = 0.0
            since = infected_time[agent] - first_step
            if 0 <= since < step:
                continue
            kept = math.exp(-rate[step] * hazard_slope)
            chance, by_rate = opened[agent] * (1.0 - kept), opened[agent] * kept * hazard_slope
            if since == step:
                score[step] += by_rate / chance
            elif chance < 1.0:
                score[step] -= by_rate / (1.0 - chance)
                if count == len(at):
                    at = np.concatenate((at, np.empty_like(at)))
                    who = np.concatenate((who, np.empty_like(who)))
                    weight = np.concatenate((weight, np.empty_like(weight)))
                at[count], who[count], weight[count] = step, agent, by_rate / (1.0 - chance)
                count += 1
    return score, at[:count].copy(), who[:count].copy(), weight[:count].copy()


class _Replay:
    """One run, replayed from any step with one more infection in it."""

    def __init__(self, problem: SpreadProblem, seed: int, infected_time: Array) -> None:
        self._problem = problem
        self._simulator = Simulator(problem, (seed,))
        start, layout = problem.start, problem.start.layout
        columns = self._simulator.columns
        self._begin = [c.clone() for c in (columns.stage, columns.infected_time, columns.next_time)]
        since = infected_time.astype(np.int64) - start.first_step
        self._agents = np.flatnonzero(layout.free & (since >= 0) & (since < problem.steps))
        self._since = since[self._agents]

    def gain(self, step: int, agent: int, daily: Array, worth: Array) -> float:
        """By how much worth-weighted infections grow if `agent` is infected at `step`, too."""
        problem, first = self._problem, self._problem.start.first_step
        following, left = step + 1, problem.steps - step - 1
        if not left:
            return float(worth[step])
        self._restore(step, int(agent))
        self._simulator.advance(first + following, left)
        infected = self._simulator.columns.infected[0, first + following :].numpy()
        return float(worth[step] + (infected - daily[following:]) @ worth[following:])

    def _restore(self, step: int, agent: int) -> None:
        """The columns as they are after a step counted from the start, `agent` infected in it."""
        columns = self._simulator.columns
        state = (columns.stage, columns.infected_time, columns.next_time)
        for column, begin in zip(state, self._begin, strict=True):
            column.copy_(begin)
        stage, infected_time, next_time = (column[0].numpy() for column in state)
        start, first = self._problem.start, self._problem.start.first_step
        by_then = self._since <= step
        who = np.append(self._agents[by_then], agent)
        stage[who] = 1
        infected_time[who] = np.append(self._since[by_then], step) + first
        next_time[who] = infected_time[who] + 1 + start.spread.durations[0]
        # Everybody active moves on as often as there was time for.
        moving = np.concatenate([who, start.layout.seed_agent])
        for _ in start.spread.durations:
            due = moving[next_time[moving] <= first + step]
            stage[due] += 1
            since = np.maximum(next_time[due], first)
            active = stage[due] <= start.spread.num_active
            durations = np.append(start.spread.durations, 0)[stage[due] - 1]
            next_time[due] = np.where(active, since + durations, NEVER)
            moving = due
        self._simulator.columns_changed()
