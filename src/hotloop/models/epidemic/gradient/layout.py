"""What gradients know of a start before any parameter: kinds of agents, and who sends when.

A sender's chance of not having reached a receiver depends on the receiver only through its factor,
and there are few of those (four in the covid model): its *kind*.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from hotloop.models.epidemic.spread import NEVER, Spread

if TYPE_CHECKING:
    from hotloop.models.epidemic.gradient.problem import SpreadStart

Array = np.ndarray[Any, Any]

# Levels of willingness to isolate that are told apart; others are rounded to the mean of theirs.
ISOLATION_LEVELS = 8


@dataclass(frozen=True, eq=False)
class Layout:
    """Kinds of agents, and what is sent by those who are infected and were active at the start.

    kind: (N,) uint8, K kinds; kind_group, kind_willing: (K,) a group of each, and how much of its
    contacts it gives up where isolation is asked for.
    free: (N,) bool, susceptible at the start; reached: (N,) bool, those of them at the end of a
    chain of infections from who is active at the start: nobody else can be infected.
    sends: (L + 1,) float64, what an agent sends d steps after its infection; at L it leaves.
    seed_agent, seed_row: who is active at the start, and which row of seed_sends (rows, D) tells
    what it sends by step; in order of rows, which begin at seed_ptr (rows + 1,); seed_leaves: (S,)
    the step, counted from the start, at which it leaves.
    """

    kind: Array
    kind_group: Array
    kind_willing: Array
    free: Array
    reached: Array
    sends: Array
    seed_agent: Array
    seed_row: Array
    seed_ptr: Array
    seed_sends: Array
    seed_leaves: Array

    @property
    def span(self) -> int:
        """L: steps from an infection to leaving the last active stage."""
        return len(self.sends) - 1


def build_layout(start: "SpreadStart") -> Layout:
    """The layout of a start; O(E)."""
    kind, kind_group, kind_willing = _kinds(start)
    free = np.asarray(start.stage) == 0
    seeds = np.flatnonzero((start.stage > 0) & (start.stage <= start.spread.num_active))
    reached = _reached(seeds, free, start.network.out_ptr, start.network.out_dst)
    leaves = 1 + sum(start.spread.durations)
    sends = np.zeros(leaves + 1)
    sent, _ = _schedule(start.spread, 1, 0, 1 + start.spread.durations[0], 1)
    sends[1 : len(sent) + 1] = sent[:leaves]
    rows, row = np.unique(
        np.stack([start.stage, start.infected_time, start.next_time], axis=1)[seeds].astype(
            np.int64
        ),
        axis=0,
        return_inverse=True,
    )
    by_row = np.argsort(row.ravel(), kind="stable")
    seeds, row = seeds[by_row], row.ravel()[by_row]
    schedules = [
        _schedule(start.spread, int(r[0]), int(r[1]), int(r[2]), start.first_step) for r in rows
    ]
    days = start.spread.weights.shape[1]
    return Layout(
        kind, kind_group, kind_willing, free, reached, sends,
        seeds.astype(np.int32),
        row.astype(np.int32),
        np.searchsorted(row, np.arange(len(rows) + 1)),
        np.array([sent for sent, _ in schedules]).reshape(len(rows), days),
        np.array([left for _, left in schedules], np.int64)[row],
    )  # fmt: skip


@njit(cache=True)
def _reached(seeds: Array, free: Array, out_ptr: Array, out_dst: Array) -> Array:
    """(N,) bool: free, and at the end of a chain of free agents from one of the seeds."""
    reached = np.zeros(len(free), np.bool_)
    waiting = np.empty(len(free), np.int64)
    count = len(seeds)
    waiting[:count] = seeds
    while count:
        count -= 1
        agent = waiting[count]
        for e in range(out_ptr[agent], out_ptr[agent + 1]):
            receiver = out_dst[e]
            if free[receiver] and not reached[receiver]:
                reached[receiver] = True
                waiting[count] = receiver
                count += 1
    return reached


def _kinds(start: "SpreadStart") -> tuple[Array, Array, Array]:
    """Kind of each agent; a group and the willingness of each kind."""
    own = start.spread.susceptibility
    given = np.ones_like(own) if start.contact is None else start.contact
    table = np.atleast_2d(own * given)
    if start.by_controls:  # agents that are alike now, but not by what is asked
        same_as = np.arange(len(own))
    else:
        same_as = np.unique(table, axis=1, return_inverse=True)[1].ravel()
    matters = start.by_controls or np.any(start.isolating)
    willing = start.willingness if matters else np.zeros(len(start.group))
    levels, level = np.unique(willing, return_inverse=True)
    if len(levels) > ISOLATION_LEVELS:
        edges = np.quantile(willing, np.linspace(0, 1, ISOLATION_LEVELS + 1)[1:-1])
        level = np.searchsorted(edges, willing, side="right")
    found, kind = np.unique(
        same_as[start.group].astype(np.int64) * ISOLATION_LEVELS + level, return_inverse=True
    )
    kind = kind.ravel()
    counts = np.bincount(kind, minlength=len(found))
    group = np.array([np.flatnonzero(same_as == k)[0] for k in found // ISOLATION_LEVELS])
    return kind.astype(np.uint8), group, np.bincount(kind, weights=willing) / counts


def _schedule(
    spread: Spread, stage: int, infected_time: int, next_time: int, first_step: int
) -> tuple[Array, int]:
    """What an active agent sends by step, (D,), and the step at which it leaves; from first_step.

    The order within a step is the engine's: send first, then move on where next_time has come.
    """
    days = spread.weights.shape[1]
    sent, step = np.zeros(days), first_step
    while stage <= spread.num_active and step < NEVER:
        day = step - infected_time
        if step - first_step < days and 0 <= day < days:
            sent[step - first_step] = spread.weights[stage, day]
        if next_time <= step:
            stage += 1
            if stage <= spread.num_active:
                next_time = step + spread.durations[stage - 1]
        step += 1
    return sent, step - 1 - first_step if stage > spread.num_active else NEVER
