"""Spreads to test gradients on: drawn networks, an exact expectation, and a plain twin."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch

from hotloop.models.epidemic.gradient import Estimator, SpreadProblem, SpreadStart, simulate
from hotloop.models.epidemic.spread import Spread
from hotloop.sim.network import Network

FAR = 500  # as files of compartments write "not yet"


def town_spread() -> Spread:
    """Exposed and infected for five steps each; a bump of infectiousness around step five."""
    day = np.arange(40.0)
    bump = np.where(day > 1, (day / 5.0) ** 4 * np.exp(4 - 0.8 * day), 0.0)
    weights = np.zeros((5, 40))
    weights[1], weights[2] = 0.33 * bump / bump.sum(), 0.72 * bump / bump.sum()
    return Spread(weights, (5, 5), np.array([0.175, 0.23, 0.34, 0.34, 0.34, 0.26]))


def town(size: int, edges: int, seeds: int, seed: int = 0) -> SpreadStart:
    """Directed contacts with heavy-tailed degrees, no pair of agents both ways; some exposed."""
    rng = np.random.default_rng(seed)
    out, into = rng.gamma(0.4, size=size), rng.gamma(1.5, size=size)
    src = rng.choice(size, edges, p=out / out.sum())
    dst = rng.choice(size, edges, p=into / into.sum())
    pairs = np.unique(np.stack([src, dst], axis=1)[src != dst], axis=0)
    both = np.isin(pairs[:, 0] * size + pairs[:, 1], pairs[:, 1] * size + pairs[:, 0])
    pairs = pairs[~both]
    compartment = np.zeros(size, np.uint8)
    compartment[rng.choice(size, seeds, replace=False)] = 1
    return SpreadStart(
        town_spread(),
        Network.from_edges(size, pairs),
        rng.integers(0, 6, size).astype(np.uint8),
        compartment,
        np.where(compartment == 1, -1, FAR).astype(np.int16),
        np.where(compartment == 1, 3, FAR).astype(np.int16),
    )


def quick_spread() -> Spread:
    """One step in each of two compartments, sending at once: long stories in few steps."""
    weights = np.zeros((5, 4))
    weights[1], weights[2] = [0.0, 0.5, 0.7, 0.0], [0.0, 0.0, 0.6, 0.9]
    return Spread(weights, (1, 1), np.array([0.5, 1.0]), steps_per_rate=2)


def few(edges: list[tuple[int, int]], size: int) -> SpreadStart:
    """A few agents of alternating groups; agent 0 is exposed."""
    compartment = np.zeros(size, np.uint8)
    compartment[0] = 1
    return SpreadStart(
        quick_spread(),
        Network.from_edges(size, np.array(edges, np.int32).reshape(-1, 2)),
        (np.arange(size) % 2).astype(np.uint8),
        compartment,
        np.where(compartment == 1, -1, FAR).astype(np.int16),
        np.where(compartment == 1, 1, FAR).astype(np.int16),
    )


def exact_courses(problem: SpreadProblem, rate: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Every course that a few agents can take: how likely it is, and its infections by step."""
    start, structure = problem.start, problem.start.structure
    slopes, entries = problem.slopes, problem.entries
    initial_sends = dict(
        zip(
            structure.initial_agent.tolist(),
            structure.initial_sends[structure.initial_row],
            strict=True,
        )
    )
    size = start.network.num_agents
    courses = {tuple([None] * size): 1.0}  # infected at which step, for each agent
    for step in range(problem.steps):
        following: dict[tuple, float] = {}
        for course, weight in courses.items():
            chance = np.zeros(size)
            for agent in range(size):
                if not structure.susceptible[agent] or course[agent] is not None:
                    continue
                row = slice(start.network.in_ptr[agent], start.network.in_ptr[agent + 1])
                pressure = 0.0
                for sender in start.network.in_src[row].tolist():
                    since = course[sender]
                    if sender in initial_sends:
                        sent = initial_sends[sender]
                        pressure += sent[step] if step < len(sent) else 0.0
                    elif since is not None and step - since <= structure.active_steps:
                        pressure += structure.sends[step - since]
                hazard = rate[entries[step]] * slopes[step, start.group[agent]] * pressure
                opened = 1 - problem.isolating[step] * start.willingness[agent]
                chance[agent] = (1 - np.exp(-hazard)) * opened
            open_to = np.flatnonzero(chance)
            for fates in product((False, True), repeat=len(open_to)):
                share, then = weight, list(course)
                for agent, falls in zip(open_to, fates, strict=True):
                    share *= chance[agent] if falls else 1 - chance[agent]
                    then[agent] = step if falls else None
                key = tuple(then)
                following[key] = following.get(key, 0.0) + share
        courses = following
    return [
        (weight, np.bincount([s for s in course if s is not None], minlength=problem.steps))
        for course, weight in courses.items()
    ]


def exact_infections(problem: SpreadProblem, rate: np.ndarray) -> np.ndarray:
    """(T,) the expected infections of each step."""
    return np.sum([weight * daily for weight, daily in exact_courses(problem, rate)], axis=0)


def exact_controls(problem: SpreadProblem) -> tuple[np.ndarray, np.ndarray]:
    """By contact (T, groups) and isolating (T,) of each step: of all infections."""
    start, steps = problem.start, problem.steps
    contact = np.ones((steps, len(start.spread.susceptibility))) * (
        1.0 if start.contact is None else start.contact
    )

    def total(contact: np.ndarray, isolating: np.ndarray) -> float:
        moved = replace(problem, start=replace(start, contact=contact, isolating=isolating))
        return float(exact_infections(moved, problem.rate).sum())

    found = [np.zeros_like(contact), np.zeros(steps)]
    for which, by in enumerate(found):
        for place in np.ndindex(by.shape):
            step = np.zeros_like(by)
            step[place] = 1e-5
            up, down = (
                total(contact + s, problem.isolating)
                if which == 0
                else total(contact, problem.isolating + s)
                for s in (step, -step)
            )
            by[place] = (up - down) / 2e-5
    return found[0], found[1]


def exact_gradient(problem: SpreadProblem, infected: np.ndarray) -> np.ndarray:
    """(weeks,) the derivative of infected @ exact_infections."""
    gradient = np.zeros(len(problem.rate))
    for week in range(len(gradient)):
        step = np.zeros(len(gradient))
        step[week] = 1e-5
        up, down = (exact_infections(problem, problem.rate + s) for s in (step, -step))
        gradient[week] = infected @ (up - down) / 2e-5
    return gradient


def plain_infections(
    problem: SpreadProblem, rate: torch.Tensor, infected_time: np.ndarray | None = None
) -> torch.Tensor:
    """(T,) the equations of message passing as they are written, edge by edge, in float64.

    With the infection times of a run, what happened stands in for each probability, and the
    gradient goes on to the probability.
    """
    start, structure, steps = problem.start, problem.start.structure, problem.steps
    size, free = start.network.num_agents, torch.from_numpy(structure.susceptible)
    dst = torch.from_numpy(np.repeat(np.arange(size), np.diff(start.network.in_ptr)))
    src = torch.from_numpy(start.network.in_src.astype(np.int64))
    moving = free[src] & (src != dst)
    opened = 1 - problem.isolating[:, None] * start.willingness
    slopes = torch.from_numpy(problem.slopes[:, start.group] * opened)
    factor = rate[torch.from_numpy(problem.entries)][:, None] * slopes  # (T, N)
    sends = torch.from_numpy(structure.sends)
    initial_sends = torch.zeros(size, steps, dtype=torch.float64)
    shown = min(steps, structure.initial_sends.shape[1])
    for agent, row in zip(structure.initial_agent, structure.initial_row, strict=True):
        initial_sends[agent, :shown] = torch.from_numpy(structure.initial_sends[row, :shown])
    x: list[torch.Tensor] = []
    daily, escape = [], free.double()
    for step in range(steps):
        theta = torch.ones(len(src), dtype=torch.float64)
        for at in range(step):
            days = range(at + 1, min(step, at + structure.active_steps) + 1)
            hazard = sum((factor[s, dst] * sends[s - at] for s in days), start=torch.zeros(1))
            theta = theta - torch.where(moving, x[at][src] * -torch.expm1(-hazard), 0.0)
        from_seeds = (factor[: step + 1, dst] * initial_sends[src, : step + 1].T).sum(0)
        log_escape = torch.zeros(size, dtype=torch.float64).index_add(
            0, dst, torch.log(theta) - from_seeds
        )
        left = free * torch.exp(log_escape)
        now = escape - left
        daily.append(now.sum())
        if infected_time is not None:
            hard = torch.from_numpy(infected_time == start.first_step + step) & free
            now = now + (hard.double() - now).detach()
        x.append(now)
        escape = left
    return torch.stack(daily)


def central_differences(
    problem: SpreadProblem, seeds: int, share: float, deaths: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of total infections, or deaths, on common random numbers: (parameters,) and
    their standard errors. The parameters are the weeks' rates, and with deaths the mortality.
    """
    found = []
    for moved, width in _moved(problem, share, deaths):
        up, down = (_totals(p, seeds, deaths) for p in moved)
        found.append((up - down) / width)
    differences = np.array(found)
    return differences.mean(1), differences.std(1, ddof=1) / np.sqrt(seeds)


def _moved(problem: SpreadProblem, share: float, deaths: bool) -> Iterator[tuple[Any, float]]:
    for week in range(len(problem.rate)):
        step = np.zeros(len(problem.rate))
        step[week] = share * problem.rate[week]
        yield [problem.at(problem.rate + s) for s in (step, -step)], 2 * step[week]
    if deaths:
        step = share * problem.mortality
        both = [problem.at(mortality=problem.mortality + s) for s in (step, -step)]
        yield both, 2 * step


def _totals(problem: SpreadProblem, seeds: int, deaths: bool) -> np.ndarray:
    totals = []
    for begin in range(0, seeds, 50):
        runs = simulate(problem.at(seeds=tuple(range(begin, min(begin + 50, seeds)))))
        totals.append((runs.deaths if deaths else runs.infected).sum(1))
    return np.concatenate(totals).astype(np.float64)


def mean_gradient(
    estimator: Estimator, problem: SpreadProblem, seeds: int, deaths: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The estimator's mean over runs of what central_differences finds, and its standard error."""
    count, found = np.ones(problem.steps), []
    weights = (0 * count, count) if deaths else (count, 0 * count)
    for seed in range(seeds):
        by_rate, by_mortality, *_ = estimator.vjp(problem.at(seeds=(seed,)), *weights)
        found.append([*by_rate, by_mortality] if deaths else by_rate)
    gradients = np.array(found)
    return gradients.mean(0), gradients.std(0, ddof=1) / np.sqrt(seeds)
