"""What does not depend on the parameters of a spread: kinds of agents, and who sends when.

A sender's chance of not having reached a receiver depends on the receiver only through its factor,
and there are few different factors (four in the covid model): the receiver's *kind*.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hotloop.models.epidemic.kernels import copy_row
from hotloop.models.epidemic.spread import NEVER, Spread
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]

# So many levels of willingness to isolate are distinguished; others are rounded to their mean.
ISOLATION_LEVELS = 8


class Kinds(NamedTuple):
    """Agents whose receiving differs in nothing, K kinds.

    of_agent: (N,) uint8. group: (K,) a group of each. willing: (K,) the share of its contacts that
    each gives up where isolation is asked for.
    """

    of_agent: Array
    group: Array
    willing: Array


@dataclass(frozen=True, eq=False)
class SpreadStructure:
    """Kinds of agents, and what the agents send that are active at the start or infected later.

    kind: (N,) uint8; kind_group, kind_willing: (K,), see `Kinds`.
    susceptible: (N,) bool, at the start.
    reached: (N,) bool, those of them that a chain of infections can reach from an active agent.
    sends: (L + 1,) float64, what an agent sends d steps after its infection.
    initial_agent: (S,) int32, the agents active at the start, ordered by their row.
    initial_row: (S,) int32, which row of initial_sends (rows, D) says what each sends by step.
    initial_ptr: (rows + 1,) where the agents of each row begin.
    initial_leaves: (S,) the step after the start at which each leaves the active compartments.
    """

    kind: Array
    kind_group: Array
    kind_willing: Array
    susceptible: Array
    reached: Array
    sends: Array
    initial_agent: Array
    initial_row: Array
    initial_ptr: Array
    initial_sends: Array
    initial_leaves: Array

    @property
    def active_steps(self) -> int:
        """L: steps from an infection to leaving the last active compartment."""
        return len(self.sends) - 1


def build_structure(
    spread: Spread, network: Network, columns: Array, first_step: int, kinds: Kinds
) -> SpreadStructure:
    """Build the structure of a start; O(E).

    columns: (3, N) compartment, infected_time and next_time of each agent before `first_step`.
    """
    susceptible = columns[0] == 0
    initial = np.flatnonzero((columns[0] > 0) & (columns[0] <= spread.num_active))
    reached = _reached(initial, susceptible, network.out_ptr, network.out_dst)
    leaves = 1 + sum(spread.durations)
    sends = np.zeros(leaves + 1)
    sent, _ = _schedule(spread, 1, 0, 1 + spread.durations[0], 1)
    sends[1 : len(sent) + 1] = sent[:leaves]
    rows, row = np.unique(columns.T[initial].astype(np.int64), axis=0, return_inverse=True)
    by_row = np.argsort(row.ravel(), kind="stable")
    initial, row = initial[by_row], row.ravel()[by_row]
    schedules = [_schedule(spread, int(r[0]), int(r[1]), int(r[2]), first_step) for r in rows]
    days = spread.weights.shape[1]
    return SpreadStructure(
        *kinds, susceptible, reached, sends,
        initial.astype(np.int32),
        row.astype(np.int32),
        np.searchsorted(row, np.arange(len(rows) + 1)),
        np.array([sent for sent, _ in schedules]).reshape(len(rows), days),
        np.array([left for _, left in schedules], np.int64)[row],
    )  # fmt: skip


def kinds_of_agents(
    factors: Array, group: Array, willing: Array | None, *, by_controls: bool
) -> Kinds:
    """Find agents that are alike for a sender.

    factors: (groups,) or (steps, groups), susceptibility times contact.
    group: (N,). willing: (N,), or None where nobody is asked to isolate.
    by_controls: distinguish groups of equal factors, too, because what is asked of them may differ.
    """
    table = np.atleast_2d(factors)
    if by_controls:
        same_as = np.arange(table.shape[1])
    else:
        same_as = np.unique(table, axis=1, return_inverse=True)[1].ravel()
    willing = np.zeros(len(group)) if willing is None else willing
    levels, level = np.unique(willing, return_inverse=True)
    if len(levels) > ISOLATION_LEVELS:
        edges = np.quantile(willing, np.linspace(0, 1, ISOLATION_LEVELS + 1)[1:-1])
        level = np.searchsorted(edges, willing, side="right")
    found, kind = np.unique(
        same_as[group].astype(np.int64) * ISOLATION_LEVELS + level, return_inverse=True
    )
    kind = kind.ravel()
    counts = np.bincount(kind, minlength=len(found))
    a_group = np.array([np.flatnonzero(same_as == k)[0] for k in found // ISOLATION_LEVELS])
    return Kinds(kind.astype(np.uint8), a_group, np.bincount(kind, weights=willing) / counts)


@njit(cache=True)
def _reached(initial: Array, susceptible: Array, out_ptr: Array, out_dst: Array) -> Array:
    """Mark (N,) the agents that a chain of susceptible agents joins to an initial one."""
    reached = np.zeros(len(susceptible), np.bool_)
    waiting = np.empty(len(susceptible), np.int64)
    count = len(initial)
    copy_row(waiting[:count], initial)
    while count:
        count -= 1
        agent = waiting[count]
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            if susceptible[receiver] and not reached[receiver]:
                reached[receiver] = True
                waiting[count] = receiver
                count += 1
    return reached


def _schedule(
    spread: Spread, compartment: int, infected_time: int, next_time: int, first_step: int
) -> tuple[Array, int]:
    """Tabulate what an active agent sends by step, (D,), and when it leaves; from `first_step`.

    The order within a step is the engine's: send first, then move on where next_time has come.
    """
    days = spread.weights.shape[1]
    sent, step = np.zeros(days), first_step
    while compartment <= spread.num_active and step < NEVER:
        day = step - infected_time
        if step - first_step < days and 0 <= day < days:
            sent[step - first_step] = spread.weights[compartment, day]
        if next_time <= step:
            compartment += 1
            if compartment <= spread.num_active:
                next_time = step + spread.durations[compartment - 1]
        step += 1
    return sent, step - 1 - first_step if compartment > spread.num_active else NEVER
