"""Estimators without bias on any network: single flips, and the score function.

Both use the draws of a run: an agent under pressure is infected with probability p, of which the
derivative by the rate is dp. A flip replays the run with one draw decided the other way; the score
function weights what came after with the derivative of the draws' log-probabilities.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numba import njit

from hotloop.errors import SettingError, expect_positive
from hotloop.models.epidemic.gradient.kernels import Senders, send_infected, send_initial
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem
from hotloop.models.epidemic.gradient.simulate import Runs, Simulator, infected_times, simulate
from hotloop.models.epidemic.gradient.tables import by_time, leaving, make_senders
from hotloop.models.epidemic.spread import NEVER

Array = np.ndarray[Any, Any]
Loss = Callable[[torch.Tensor, torch.Tensor], Any]
"""Of one run: daily infected and deaths, (T,) float64 each, to a number."""


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

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`."""
        infected, deaths = problem.cotangents(infected, deaths)
        times = infected_times(problem)
        sums, by_mortality = _Sums(problem), 0.0
        for run, seed in enumerate(problem.seeds):
            daily = _daily(problem, times[run])
            by_mortality += float(deaths[run] @ leaving(problem, daily))
            worth = _worth(problem, infected[run], deaths[run])
            gain = partial(_gain, _Replay(problem, seed, times[run]), daily, worth)
            self._add(sums, problem, seed, times[run], gain)
        return problem.gradient(sums.factor, sums.isolating, by_mortality)

    def of_loss(
        self, problem: SpreadProblem, loss: Loss, runs: Runs | None = None
    ) -> tuple[float, Gradient]:
        """Compute the mean over the runs of any loss of a run's counts, and the gradient of it.

        The loss is evaluated on every flipped run, so that it need not be linear in the counts;
        deaths are flipped one by one, which needs no replay. runs: those of the problem, if the
        caller has them.
        """
        runs = simulate(problem) if runs is None else runs
        sums, by_mortality, total = _Sums(problem), 0.0, 0.0
        for run, seed in enumerate(problem.seeds):
            times = runs.infected_time[run]
            infected = runs.infected[run].astype(np.float64)
            deaths = runs.deaths[run].astype(np.float64)
            own = _evaluated(loss, infected, deaths)
            replay = _Replay(problem, seed, times)
            gain = partial(_loss_gain, replay, loss, infected, deaths, own)
            self._add(sums, problem, seed, times, gain)
            by_mortality += _by_one_death(problem, loss, infected, deaths, own)
            total += own
        count = len(problem.seeds)
        gradient = problem.gradient(
            sums.factor / count, sums.isolating / count, by_mortality / count
        )
        return total / count, gradient

    def _add(
        self, sums: "_Sums", problem: SpreadProblem, seed: int, infected_time: Array,
        gain: Callable[[int, int], float],
    ) -> None:  # fmt: skip
        """Add one run's derivatives, with what each of the flips drawn here gains."""
        rng = np.random.default_rng([self.seed, seed % 2**64])
        events = _draws(problem, infected_time)[2]
        shares = events.shares(problem)
        weeks = (problem.start.first_step + events.step) // problem.start.spread.steps_per_rate
        for week in np.unique(weeks):
            share = np.where(weeks == week, shares, 0.0)
            total = float(share.sum())
            if total == 0.0:
                continue
            for n in rng.choice(len(share), self.count, p=share / total):
                step, agent = int(events.step[n]), int(events.agent[n])
                worth = total / (self.count * share[n]) * gain(step, agent)
                sums.factor[step, problem.start.group[agent]] += worth * events.by_factor[n]
                sums.isolating[step] += worth * events.by_isolating[n]


@dataclass(frozen=True)
class Score:
    """The score function with the other runs' mean of what is still to come as its baseline.

    Bias: none. Variance: grows with the number of agents that draw; needs two runs or more.
    Source: Williams 1992; leave-one-out baselines, Kool, van Hoof and Welling 2019.
    """

    name: ClassVar[str] = "score"

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`."""
        runs = len(problem.seeds)
        if runs < 2:
            raise SettingError("the score function needs two runs or more for its baseline; got 1")
        if problem.start.by_controls and not problem.factor.all():
            raise SettingError(
                "the score function knows no derivative by the contact of a group that has none: "
                "where nobody can be infected, no draw says what more contact would do; use "
                "gradient='flips'"
            )
        infected, deaths = problem.cotangents(infected, deaths)
        times = infected_times(problem)
        scores, rewards = [_Sums(problem) for _ in range(runs)], np.zeros((runs, problem.steps))
        sums, by_mortality = _Sums(problem), 0.0
        for run in range(runs):
            daily = _daily(problem, times[run])
            by_mortality += float(deaths[run] @ leaving(problem, daily))
            rewards[run] = daily * _worth(problem, infected[run], deaths[run])
            scores[run].factor, scores[run].isolating, _ = _draws(problem, times[run])
        to_go = rewards[:, ::-1].cumsum(1)[:, ::-1]
        baseline = (to_go.sum(0) - to_go) / (runs - 1)
        for score, gain in zip(scores, to_go - baseline, strict=True):
            sums.factor += score.factor * gain[:, None]
            sums.isolating += score.isolating * gain
        return problem.gradient(sums.factor, sums.isolating, by_mortality)


class _Sums:
    """Derivatives by the factor of each step and group, (T, groups), and by isolating, (T,)."""

    def __init__(self, problem: SpreadProblem) -> None:
        self.factor = np.zeros_like(problem.factor)
        self.isolating = np.zeros(problem.steps)


class _Events(NamedTuple):
    """The escapes of a run: (n,) each, with p the chance of infection."""

    step: Array  # from the start
    agent: Array
    by_factor: Array  # dp / (1 - p), by the factor of its step and group
    by_isolating: Array  # dp / (1 - p), by how much is isolated in its step

    def shares(self, problem: SpreadProblem) -> Array:
        """Weight the events for drawing, by their share of the derivatives that are wanted."""
        start, group = problem.start, problem.start.group[self.agent]
        if not start.by_controls:
            return np.asarray(self.by_factor * problem.slopes[self.step, group])
        # By contact and rate alike, of which one may be 0 now.
        by_either = problem.slopes[self.step, group] + start.spread.susceptibility[group]
        return np.asarray(self.by_factor * by_either + np.abs(self.by_isolating))


def _gain(replay: "_Replay", daily: Array, worth: Array, step: int, agent: int) -> float:
    """Compute how much the weighted infections grow if `agent` is infected at `step`, too."""
    return float((replay.infected(step, agent) - daily[step:]) @ worth[step:])


def _loss_gain(
    replay: "_Replay", loss: Loss, infected: Array, deaths: Array, own: float, step: int, agent: int
) -> float:
    """Compute how much the loss grows if `agent` is infected at `step`, too."""
    other, dead = infected.copy(), deaths.copy()
    other[step:] = replay.infected(step, agent)
    dead[step + 1 :] = replay.deaths(step)
    return _evaluated(loss, other, dead) - own


def _evaluated(loss: Loss, infected: Array, deaths: Array) -> float:
    with torch.no_grad():
        value = float(loss(torch.from_numpy(infected), torch.from_numpy(deaths)))
    if not math.isfinite(value):
        raise SettingError(f"the loss of a run: expected a finite number, got {value}")
    return value


def _by_one_death(
    problem: SpreadProblem, loss: Loss, infected: Array, deaths: Array, own: float
) -> float:
    """Differentiate by the mortality: of those who leave, one more dies, or one fewer."""
    mortality = problem.mortality
    left, sign = leaving(problem, infected), 1 if mortality < 0.5 else -1
    by_mortality = 0.0
    for step in np.flatnonzero(left):
        could = left[step] - deaths[step] if sign > 0 else deaths[step]
        if could > 0:
            other = deaths.copy()
            other[step] += sign
            change = sign * (_evaluated(loss, infected, other) - own)
            by_mortality += could / (1 - mortality if sign > 0 else mortality) * change
    return float(by_mortality)


def _daily(problem: SpreadProblem, infected_time: Array) -> Array:
    """Count (T,) the infected at each step of a run."""
    step = (
        infected_time[problem.start.structure.susceptible].astype(np.int64)
        - problem.start.first_step
    )
    step = step[(step >= 0) & (step < problem.steps)]
    return np.bincount(step, minlength=problem.steps).astype(np.float64)


def _worth(problem: SpreadProblem, infected: Array, deaths: Array) -> Array:
    """Compute (T,) what an infection at each step counts by itself."""
    worth, active_steps = infected.copy(), problem.start.structure.active_steps
    if active_steps < problem.steps:
        worth[:-active_steps] += problem.mortality * deaths[active_steps:]
    return worth


def _draws(problem: SpreadProblem, infected_time: Array) -> tuple[Array, Array, _Events]:
    """Compute the run's score by factor (T, groups) and isolating (T,), and list its escapes."""
    senders, first = make_senders(problem), problem.start.first_step
    order, order_ptr = by_time(infected_time, senders.susceptible, first, problem.steps)
    by_factor, by_isolating, *events = _replayed_draws(
        np.ascontiguousarray(infected_time), first, order, order_ptr, senders,
        problem.factor, problem.isolating, problem.start.group, problem.start.willingness,
    )  # fmt: skip
    return by_factor, by_isolating, _Events(*events)


@njit(nogil=True, cache=True)
def _replayed_draws(
    infected_time: Array, first_step: int, order: Array, order_ptr: Array, senders: Senders,
    factor: Array, isolating: Array, group: Array, willing: Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """Visit every draw of a run; returns the score, and the events of agents that escaped."""
    steps, size = len(factor), len(group)
    score, iso_score = np.zeros(factor.shape), np.zeros(steps)
    pressure, touched = np.zeros(size), np.empty(size, np.int32)
    at, who, count = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    weight, iso_weight = np.empty(1024), np.empty(1024)
    for step in range(steps):
        reached = send_initial(step, senders, pressure, touched, 0)
        reached = send_infected(step, order, order_ptr, senders, pressure, touched, reached)
        for n in range(reached):
            agent = touched[n]
            felt = pressure[agent]
            pressure[agent] = 0.0
            since = infected_time[agent] - first_step
            if 0 <= since < step:
                continue
            kept = math.exp(-factor[step, group[agent]] * felt)
            opened = 1.0 - isolating[step] * willing[agent]
            chance, by_factor = opened * (1.0 - kept), opened * kept * felt
            by_isolating = -willing[agent] * (1.0 - kept)
            if since == step:
                score[step, group[agent]] += by_factor / chance
                iso_score[step] += by_isolating / chance
            elif chance < 1.0:
                by_factor, by_isolating = by_factor / (1.0 - chance), by_isolating / (1.0 - chance)
                score[step, group[agent]] -= by_factor
                iso_score[step] -= by_isolating
                if count == len(at):
                    at = np.concatenate((at, np.empty_like(at)))
                    who = np.concatenate((who, np.empty_like(who)))
                    weight = np.concatenate((weight, np.empty_like(weight)))
                    iso_weight = np.concatenate((iso_weight, np.empty_like(iso_weight)))
                at[count], who[count] = step, agent
                weight[count], iso_weight[count] = by_factor, by_isolating
                count += 1
    return score, iso_score, at[:count], who[:count], weight[:count], iso_weight[:count]


class _Replay:
    """One run, replayed from any step with one more infection in it."""

    def __init__(self, problem: SpreadProblem, seed: int, infected_time: Array) -> None:
        self._problem = problem
        self._simulator = Simulator(problem, (seed,))
        start, structure = problem.start, problem.start.structure
        columns = self._simulator.columns
        self._begin = [
            c.clone() for c in (columns.compartment, columns.infected_time, columns.next_time)
        ]
        since = infected_time.astype(np.int64) - start.first_step
        self._agents = np.flatnonzero(
            structure.susceptible & (since >= 0) & (since < problem.steps)
        )
        self._since = since[self._agents]

    def infected(self, step: int, agent: int) -> Array:
        """Replay from `step` with `agent` infected at it, too; returns (T - step,) infections."""
        problem, first = self._problem, self._problem.start.first_step
        following, left = step + 1, problem.steps - step - 1
        if left:
            self._restore(step, agent)
            self._simulator.advance(first + following, left)
        later = self._simulator.columns.infected[0, first + following :].numpy()
        return np.append(np.count_nonzero(self._since == step) + 1.0, later)

    def deaths(self, step: int) -> Array:
        """Return (T - step - 1,) deaths after `step` of the last replay."""
        after = self._problem.start.first_step + step + 1
        found: Array = self._simulator.columns.deaths[0, after:].numpy()
        return found

    def _restore(self, step: int, agent: int) -> None:
        """Restore the columns after a step counted from the start, `agent` infected in it."""
        columns = self._simulator.columns
        state = (columns.compartment, columns.infected_time, columns.next_time)
        for column, begin in zip(state, self._begin, strict=True):
            column.copy_(begin)
        compartment, infected_time, next_time = (column[0].numpy() for column in state)
        start, first = self._problem.start, self._problem.start.first_step
        by_then = self._since <= step
        who = np.append(self._agents[by_then], agent)
        compartment[who] = 1
        infected_time[who] = np.append(self._since[by_then], step) + first
        next_time[who] = infected_time[who] + 1 + start.spread.durations[0]
        # Every active agent moves on as often as it was due.
        moving = np.concatenate([who, start.structure.initial_agent])
        for _ in start.spread.durations:
            due = moving[next_time[moving] <= first + step]
            compartment[due] += 1
            since = np.maximum(next_time[due], first)
            active = compartment[due] <= start.spread.num_active
            durations = np.append(start.spread.durations, 0)[compartment[due] - 1]
            next_time[due] = np.where(active, since + durations, NEVER)
            moving = due
        self._simulator.columns_changed()
