"""The expected model: message passing forwards, its curves, and its own gradient.

The equations of message_passing.py with probabilities throughout, solved on the actual network,
for every agent: exact on directed trees, and without noise. On a real network it misses what a
whole epidemic has in common, such as an early start: once the epidemic saturates, the derivative by
the first weeks' rates is too small, by a few percent where it starts from many agents and by a
quarter where few infections decide when the wave comes. It is used as a smooth approximation: for
sensitivities and intervals of a calibration.

The gradient steps back through the model. What a step needs is kept for one segment of steps at a
time, and recomputed from checkpoints at the segments' starts: memory grows with the square root of
the number of steps.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from hotloop.errors import expect_positive
from hotloop.models.epidemic.gradient.kernels import (
    BLOCK,
    Senders,
    Tables,
    send_initial,
    weighted_sum,
)
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem
from hotloop.models.epidemic.gradient.sender_pairs import SenderPairs
from hotloop.models.epidemic.gradient.tables import from_kinds, leaving, make_senders, make_tables
from hotloop.models.epidemic.kernels import copy_row

Array = np.ndarray[Any, Any]


class Curves(NamedTuple):
    """Expected counts of each step, (T,) float64."""

    infected: Array
    deaths: Array


class _State(NamedTuple):
    """The variables of the model between steps, float32."""

    theta: Array  # (P,) that a pair's sender has not sent
    escape: Array  # (N,) P_i
    alone: Array  # (N,) the part of P_i that is due to those active at the start
    recent: Array  # (L + 1, P) x of each pair's sender, step t in row t mod (L + 1)

    def copy(self) -> "_State":
        return _State(*(array.copy() for array in self))


class _Kept(NamedTuple):
    """What a segment keeps of each of its steps: values after the step."""

    theta: Array  # (steps of the segment, P)
    escape: Array  # (steps of the segment, N)
    infected: Array  # (L + steps of the segment, P): x from L steps before the segment


@dataclass(frozen=True)
class ExpectedModel:
    """Gradient of the expected model; it does not depend on the seeds.

    checkpoint_every: steps of a segment; None takes about the number that needs least memory, T
    means no recomputation. The gradient is the same to the last bit.
    """

    checkpoint_every: int | None = None
    name: ClassVar[str] = "expected"

    def __post_init__(self) -> None:
        expect_positive(
            "checkpoint_every", 1 if self.checkpoint_every is None else self.checkpoint_every
        )

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`; cotangents of several runs are summed."""
        weight, death_weight = (given.sum(0) for given in problem.cotangents(infected, deaths))
        senders, pairs = make_senders(problem), problem.start.sender_pairs
        tables = make_tables(problem, weight, death_weight)
        active_steps, steps = problem.start.structure.active_steps, problem.steps
        every = self.checkpoint_every or max(1, round(math.sqrt(steps * active_steps / 2)))
        daily, state = np.zeros(steps), _begin(senders, pairs, active_steps)
        checkpoints = []
        for begin in range(0, steps, every):
            checkpoints.append(state.copy())
            _forward(
                begin,
                min(begin + every, steps),
                senders,
                pairs,
                tables,
                state,
                _kept(0, senders, pairs, active_steps),
                daily,
            )
        adjoints = _adjoint(senders, pairs, active_steps)
        by_initial, by_drop = np.zeros(tables.factor.shape), np.zeros(tables.drop.shape)
        kept = _kept(min(every, steps), senders, pairs, active_steps)
        for begin in reversed(range(0, steps, every)):
            end = min(begin + every, steps)
            _forward(begin, end, senders, pairs, tables, checkpoints.pop(), kept, daily)
            _backward(begin, end, senders, pairs, tables, kept, *adjoints, by_initial, by_drop)
        by_kind = by_initial + _by_factor(tables, senders.sends, by_drop)
        return from_kinds(problem, by_kind, float(death_weight @ leaving(problem, daily)))


def expected_curves(problem: SpreadProblem) -> Curves:
    """Compute the expected model's counts of each step."""
    nothing = np.zeros(problem.steps)
    senders, pairs = make_senders(problem), problem.start.sender_pairs
    active_steps = problem.start.structure.active_steps
    daily, tables = np.zeros(problem.steps), make_tables(problem, nothing, nothing)
    _forward(
        0,
        problem.steps,
        senders,
        pairs,
        tables,
        _begin(senders, pairs, active_steps),
        _kept(0, senders, pairs, active_steps),
        daily,
    )
    return Curves(daily, problem.mortality * leaving(problem, daily))


def _begin(senders: Senders, pairs: SenderPairs, active_steps: int) -> _State:
    count = len(pairs.pair_agent)
    return _State(
        np.ones(count, np.float32),
        senders.susceptible.astype(np.float32),
        senders.susceptible.astype(np.float32),
        np.zeros((active_steps + 1, count), np.float32),
    )


def _kept(steps: int, senders: Senders, pairs: SenderPairs, active_steps: int) -> _Kept:
    size, count = len(senders.kind), len(pairs.pair_agent)
    return _Kept(
        np.empty((steps, count), np.float32),
        np.empty((steps, size), np.float32),
        np.zeros((steps + active_steps, count), np.float32),
    )


def _adjoint(senders: Senders, pairs: SenderPairs, active_steps: int) -> tuple[Array, Array, Array]:
    """Allocate the adjoints: of thetas and of hazards from a step on, of x one step later."""
    size, count = len(senders.kind), len(pairs.pair_agent)
    later = np.zeros((active_steps + 1, count), np.float32)
    return later, np.zeros(size, np.float32), np.zeros(size, np.float32)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _forward(
    begin: int,
    end: int,
    senders: Senders,
    pairs: SenderPairs,
    tables: Tables,
    state: _State,
    kept: _Kept,
    daily: Array,
) -> None:
    """Do steps begin to end of the model, in place; keep them if there is room."""
    # One function: the order within a step (initial agents, thetas, escapes, infections) is the
    # model, and each part reads what the one before has just written.
    active_steps, size = tables.drop.shape[2] - 1, len(senders.kind)
    pressure, touched = np.zeros(size), np.empty(size, np.int32)
    keep = len(kept.theta) > 0
    if keep:
        for row in range(active_steps):
            if begin - active_steps + row >= 0:
                recent = state.recent[(begin - active_steps + row) % (active_steps + 1)]
                copy_row(kept.infected[row], recent)
    fresh, block = np.empty(size, np.float32), np.empty(BLOCK, np.float32)
    weights = np.zeros(active_steps + 1, np.float32)
    for step in range(begin, end):
        reached = send_initial(step, senders, pressure, touched, 0)
        for n in range(reached):
            agent = touched[n]
            hazard = tables.factor[step, senders.kind[agent]] * pressure[agent]
            state.alone[agent] *= np.float32(math.exp(-hazard))
            pressure[agent] = 0.0
        days = min(active_steps, step)
        for kind in range(len(pairs.kind_ptr) - 1):
            for day in range(1, days + 1):
                weights[day] = tables.drop[kind, step - day, day]
            end_pair = pairs.kind_ptr[kind + 1]
            for first in range(pairs.kind_ptr[kind], end_pair, BLOCK):
                last = min(first + BLOCK, end_pair)
                sent, theta = block[: last - first], state.theta[first:last]
                weighted_sum(weights, days, step, -1, state.recent[:, first:last], sent)
                for n in range(len(theta)):
                    theta[n] -= sent[n]
        total = 0.0
        for agent in range(size):
            escape = state.alone[agent]
            for e in range(pairs.in_ptr[agent], pairs.in_ptr[agent + 1]):
                escape *= state.theta[pairs.in_pair[e]]
            fresh[agent] = state.escape[agent] - escape
            total += fresh[agent]
            state.escape[agent] = escape
        daily[step] = total
        row = state.recent[step % (active_steps + 1)]
        for pair in range(len(row)):
            row[pair] = fresh[pairs.pair_agent[pair]]
        if keep:
            copy_row(kept.theta[step - begin], state.theta)
            copy_row(kept.escape[step - begin], state.escape)
            copy_row(kept.infected[active_steps + step - begin], row)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _backward(
    begin: int, end: int, senders: Senders, pairs: SenderPairs, tables: Tables, kept: _Kept,
    later: Array, worth: Array, after: Array, by_initial: Array, by_drop: Array,
) -> None:  # fmt: skip
    """Do steps end to begin of the adjoint, in place."""
    active_steps, size = tables.drop.shape[2] - 1, len(senders.kind)
    pressure, touched = np.zeros(size), np.empty(size, np.int32)
    now, wanted = np.empty(size, np.float32), np.empty(size, np.float32)
    block = np.empty(BLOCK, np.float32)
    for step in range(end - 1, begin - 1, -1):
        _values(step, pairs, tables, later, block, now)
        escape, theta = kept.escape[step - begin], kept.theta[step - begin]
        for agent in range(size):
            wanted[agent] = (after[agent] - now[agent]) * escape[agent]
            worth[agent] -= wanted[agent]
            after[agent] = now[agent]
        reached = send_initial(step, senders, pressure, touched, 0)
        for n in range(reached):
            agent = touched[n]
            by_initial[step, senders.kind[agent]] += pressure[agent] * worth[agent]
            pressure[agent] = 0.0
        row, following = (
            later[(step + 1) % (active_steps + 1)],
            later[(step + 2) % (active_steps + 1)],
        )
        for pair in range(len(row)):
            total = np.float32(0.0)
            for e in range(pairs.pair_ptr[pair], pairs.pair_ptr[pair + 1]):
                total += wanted[pairs.pair_dst[e]]
            row[pair] = following[pair] + total / theta[pair]
        for kind in range(len(pairs.kind_ptr) - 1):
            first, last = pairs.kind_ptr[kind], pairs.kind_ptr[kind + 1]
            for day in range(1, min(active_steps, step) + 1):
                if senders.sends[day] > 0.0:
                    sent = kept.infected[active_steps + step - day - begin]
                    by_drop[kind, step - day, day] -= _dot(row, sent, first, last)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _values(
    step: int, pairs: SenderPairs, tables: Tables, later: Array, block: Array, out: Array
) -> None:
    """Compute the worth of an infection of each agent at `step`, into out (N,) float32.

    value(t) - sum over pairs and d of (theta(d - 1) - theta(d)) * later(t + d + 1), where later(s)
    is the adjoint of all thetas from s on, in row s mod (L + 1).
    """
    steps, active_steps = tables.drop.shape[1], tables.drop.shape[2] - 1
    out[:] = tables.value[step]
    days, pair_agent = min(active_steps, steps - 1 - step), pairs.pair_agent
    if days < 1:
        return
    for kind in range(len(pairs.kind_ptr) - 1):
        drop = tables.drop[kind, step]
        for begin in range(pairs.kind_ptr[kind], pairs.kind_ptr[kind + 1], BLOCK):
            end = min(begin + BLOCK, pairs.kind_ptr[kind + 1])
            weighted_sum(drop, days, step + 1, 1, later[:, begin:end], block[: end - begin])
            for n in range(np.uint64(end - begin)):
                out[np.uint32(pair_agent[np.uint64(begin) + n])] -= block[n]


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _dot(a: Array, b: Array, begin: int, end: int) -> float:
    """Sum the products from begin to end, in float64 by blocks of float32."""
    total = 0.0
    for first in range(begin, end, 256):
        part = np.float32(0.0)
        for n in range(first, min(first + 256, end)):
            part += a[n] * b[n]
        total += float(part)
    return total


@njit(nogil=True, cache=True)
def _by_factor(tables: Tables, sends: Array, by_drop: Array) -> Array:
    """Differentiate by factor (T, K), from the derivative by the drops of theta."""
    kinds, steps, days = by_drop.shape
    by_kind = np.zeros((steps, kinds))
    for kind in range(kinds):
        for at in range(steps):
            by_hazard = 0.0
            for day in range(min(days - 1, steps - 1 - at), 0, -1):
                by_theta = -by_drop[kind, at, day]
                if day + 1 < days:
                    by_theta += by_drop[kind, at, day + 1]
                by_hazard -= by_theta * tables.theta[at, day, kind]
                by_kind[at + day, kind] += by_hazard * sends[day]
    return by_kind
