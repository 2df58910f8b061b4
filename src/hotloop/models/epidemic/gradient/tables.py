"""What all estimators make of a problem: tables for kernels, and a gradient from their results."""

from typing import Any

import numpy as np
from numba import njit

from hotloop.models.epidemic.gradient.kernels import Senders, Tables, theta_table
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem

Array = np.ndarray[Any, Any]


def make_senders(problem: SpreadProblem) -> Senders:
    """Collect the arrays of the problem's start that kernels read."""
    structure, network = problem.start.structure, problem.start.network
    return Senders(
        structure.kind,
        structure.susceptible,
        structure.sends,
        structure.initial_agent,
        structure.initial_row,
        structure.initial_ptr,
        structure.initial_sends,
        network.out_ptr,
        network.out_dst,
    )


def make_tables(problem: SpreadProblem, infected: Array, deaths: Array) -> Tables:
    """Make the tables of the parameters, and what one infection at each step counts by itself."""
    structure = problem.start.structure
    factor = problem.factor[:, structure.kind_group] * _open_share(problem)
    value = infected.copy()
    if structure.active_steps < problem.steps:
        value[: -structure.active_steps] += problem.mortality * deaths[structure.active_steps :]
    return Tables(factor, *theta_table(factor, structure.sends), value.astype(np.float32))


def _open_share(problem: SpreadProblem) -> Array:
    """Compute the share (T, K) of the chance of each kind that isolation leaves."""
    willing: Array = problem.start.structure.kind_willing
    return 1.0 - problem.isolating[:, None] * willing


def from_kinds(problem: SpreadProblem, by_kind: Array, by_mortality: float) -> Gradient:
    """Make the gradient from the derivative by each kind's factor in each step, (T, K)."""
    structure = problem.start.structure
    by_factor = np.zeros_like(problem.factor)
    open_share = _open_share(problem)
    for kind, group in enumerate(structure.kind_group):
        by_factor[:, group] += by_kind[:, kind] * open_share[:, kind]
    taken = problem.factor[:, structure.kind_group] * structure.kind_willing
    return problem.gradient(by_factor, -(by_kind * taken).sum(1), by_mortality)


def leaving(problem: SpreadProblem, infected: Array) -> Array:
    """Count who leaves the last active compartment at each step, (T,).

    infected: (T,), infected at each step; those active at the start leave, too.
    """
    structure = problem.start.structure
    left = np.zeros(problem.steps)
    if structure.active_steps < problem.steps:
        left[structure.active_steps :] = infected[: -structure.active_steps]
    early = structure.initial_leaves[structure.initial_leaves < problem.steps]
    return left + np.bincount(early, minlength=problem.steps)


@njit(nogil=True, cache=True)
def by_time(
    infected_time: Array, susceptible: Array, first_step: int, steps: int
) -> tuple[Array, Array]:
    """List the agents infected in the run by step, and where each step begins."""
    pointers = np.zeros(steps + 2, np.int64)
    for agent in range(len(susceptible)):
        step = infected_time[agent] - first_step
        if susceptible[agent] and 0 <= step < steps:
            pointers[step + 2] += 1
    for step in range(steps + 1):
        pointers[step + 1] += pointers[step]
    order = np.empty(pointers[steps + 1], np.int32)
    for agent in range(len(susceptible)):
        step = infected_time[agent] - first_step
        if susceptible[agent] and 0 <= step < steps:
            order[pointers[step + 1]] = agent
            pointers[step + 1] += 1
    return order, pointers[: steps + 1].copy()
