"""The default estimator: message passing along the simulated run.

On a directed tree, whether agent i escapes until t is a product over those who can reach it,

    P_i(t) = product over j -> i of theta_j(t),
    theta_j(t) = 1 - sum over tau < t of x_j(tau) (1 - exp(-H(tau, t))),
    x_i(t) = P_i(t) - P_i(t + 1),

with x_j(tau) the probability that j is infected at tau (Karrer and Newman 2010; Lokhov, Mezard,
Ohta and Zdeborova 2014). The expected model (expected.py) solves this forwards and differentiates
it. Here x_j is what happened in a simulated run, 0 or 1, wherever it is an input, and its gradient
is that of the probability x_j, so that it follows chains of infection. On a tree the branches that
meet in an agent are independent, so the mean over runs is the derivative of the expectation: no
bias. Unlike the expected model, the run itself says whether a whole epidemic is early or late. In a
tree each sender's own share, theta_j, is divided out of P_i, so that a transmission that happened
and one that did not count the same.

The run is determined by its infection times, 2 bytes an agent; everything else follows from them at
any step, in either direction: memory does not grow with the number of steps.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from hotloop.models.epidemic.gradient.compact_network import CompactNetwork
from hotloop.models.epidemic.gradient.kernels import (
    BLOCK,
    Senders,
    Tables,
    weighted_sum,
)
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem
from hotloop.models.epidemic.gradient.simulate import infected_times
from hotloop.models.epidemic.gradient.start import SpreadStart
from hotloop.models.epidemic.gradient.tables import (
    by_time,
    from_kinds,
    leaving,
    make_senders,
    make_tables,
)

Array = np.ndarray[Any, Any]
_ONE = np.uint64(1)


@dataclass(frozen=True)
class MessagePassing:
    """Gradient of the expected daily counts by message passing along each run.

    Bias: none on directed trees; on networks with few short cycles less than 200 runs can measure.
    Where edges go both ways an infection returns, in the adjoint, to its source, which overstates
    it: by 6% after 21 steps and twofold through the peak with four contacts an agent, more with
    fewer or in a small world. Use flips there. Deterministic given the runs.
    """

    name: ClassVar[str] = "message_passing"

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`."""
        infected, deaths = problem.cotangents(infected, deaths)
        times = infected_times(problem)
        start, senders = problem.start, make_senders(problem)
        by_kind, by_mortality = np.zeros((problem.steps, len(start.structure.kind_group))), 0.0
        for run in range(len(problem.seeds)):
            order, order_ptr = by_time(
                times[run], senders.susceptible, start.first_step, problem.steps
            )
            tables = make_tables(problem, infected[run], deaths[run])
            by_kind += _along(start, senders, order, order_ptr, tables)
            by_mortality += float(deaths[run] @ leaving(problem, np.diff(order_ptr)))
        return from_kinds(problem, by_kind, by_mortality)


def _along(
    start: SpreadStart, senders: Senders, order: Array, order_ptr: Array, tables: Tables
) -> Array:
    """Differentiate along one run by the factor of each step and kind, (T, K)."""
    compact = start.compact
    infected = compact.node[order]
    for begin, end in pairwise(order_ptr):  # so that rows are read in the order of memory
        infected[begin:end].sort()
    return np.asarray(_backward(infected, order_ptr, senders, compact, tables))


@njit(nogil=True, cache=True)
def _escapes(
    infected: Array, order_ptr: Array, kinds: Array, senders: Senders, compact: CompactNetwork,
    factor: Array,
) -> Array:  # fmt: skip
    """Compute (M,) float64, the chance of each node to escape the whole run."""
    steps = len(factor)
    sends, initial_sends = senders.sends, senders.initial_sends
    hazard, sent = np.zeros(len(kinds)), np.zeros(factor.shape[1])
    for row in range(len(initial_sends)):
        sent[:] = 0.0
        for step in range(min(steps, initial_sends.shape[1])):
            sent += factor[step] * initial_sends[row, step]
        begin, end = senders.initial_ptr[row], senders.initial_ptr[row + 1]
        for e in range(compact.initial_ptr[begin], compact.initial_ptr[end]):
            receiver = compact.initial_dst[e]
            hazard[receiver] += sent[kinds[receiver]]
    for at in range(steps):
        sent[:] = 0.0
        for day in range(1, min(len(sends) - 1, steps - 1 - at) + 1):
            sent += factor[at + day] * sends[day]
        _add(
            infected[order_ptr[at] : order_ptr[at + 1]],
            sent,
            kinds,
            compact.ptr,
            compact.dst,
            hazard,
        )
    return np.exp(-hazard)


# Plain arrays: numba would count references to a tuple of them for each sender.
@njit(nogil=True, cache=True)
def _add(senders: Array, sent: Array, kinds: Array, ptr: Array, dst: Array, hazard: Array) -> None:
    for n in range(len(senders)):
        sender = np.uint32(senders[n])
        for e in range(np.uint64(ptr[sender]), np.uint64(ptr[np.uint64(sender) + _ONE])):
            receiver = np.uint32(dst[e])
            hazard[receiver] += sent[kinds[receiver]]


@njit(nogil=True, cache=True)
def _take_back(
    senders: Array, weight: float, factor: Array, kinds: Array, ptr: Array, dst: Array,
    worth: Array, escape: Array, back: Array, sums: Array, by_kind: Array,
) -> None:  # fmt: skip
    """Undo what senders sent in a step: change `escape` from P(t + 1) to P(t).

    weight: what each of them sent, times the factor of each kind, (K,). by_kind: (K,), to which the
    derivative by these factors is added. back, sums: (K,), overwritten.
    """
    for kind in range(len(sums)):
        back[kind], sums[kind] = math.exp(factor[kind] * weight), 0.0
    for n in range(len(senders)):
        sender = np.uint32(senders[n])
        for e in range(np.uint64(ptr[sender]), np.uint64(ptr[np.uint64(sender) + _ONE])):
            receiver = np.uint32(dst[e])
            kind = kinds[receiver]
            sums[kind] += worth[receiver]
            escape[receiver] *= back[kind]
    for kind in range(len(sums)):
        by_kind[kind] += weight * sums[kind]


class _Infected(NamedTuple):
    """The pairs of an agent infected in the run and a kind of its receivers, by kind.

    Each has a theta below 1 in the run.
    """

    ptr: Array  # (infected + 1,) where the pairs of each begin in `own`, in order of infection
    own: Array  # (I,) their indices in the arrays below
    sender: Array  # (I,) int32, a node
    begin: Array  # (I,) its edges of the kind are dst[begin:end]
    end: Array
    kind: Array  # (I,) uint8
    kind_ptr: Array  # (K + 1,)
    later: Array  # (L + 1, I) float32, the adjoint of theta from a step on; a ring of steps
    without: Array  # (I,) float32, 1 / theta(t + 1): the receivers' P without the sender's share


@njit(nogil=True, cache=True)
def _pairs_of(infected: Array, kinds: Array, compact: CompactNetwork, rows: int) -> _Infected:
    num_kinds = len(compact.kind_ptr) - 1
    ptr, kind_ptr = np.zeros(len(infected) + 1, np.int64), np.zeros(num_kinds + 1, np.int64)
    for n in range(len(infected)):
        last, count = -1, 0
        for e in range(compact.ptr[infected[n]], compact.ptr[infected[n] + 1]):
            kind = int(kinds[compact.dst[e]])
            if kind != last:
                kind_ptr[kind + 1] += 1
                count += 1
            last = kind
        ptr[n + 1] = ptr[n] + count
    for kind in range(num_kinds):
        kind_ptr[kind + 1] += kind_ptr[kind]
    count, following = ptr[-1], kind_ptr[:-1].copy()
    own, sender = np.empty(count, np.int64), np.empty(count, np.int32)
    begin, end, kind_of = (
        np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.uint8)
    )  # fmt: skip
    for n in range(len(infected)):
        last, at, pair = -1, ptr[n], 0
        for e in range(compact.ptr[infected[n]], compact.ptr[infected[n] + 1]):
            kind = int(kinds[compact.dst[e]])
            if kind != last:
                pair = following[kind]
                following[kind] += 1
                own[at], sender[pair], begin[pair], kind_of[pair] = pair, infected[n], e, kind
                at += 1
            end[pair] = e + 1
            last = kind
    later, without = np.zeros((rows, count), np.float32), np.ones(count, np.float32)
    return _Infected(ptr, own, sender, begin, end, kind_of, kind_ptr, later, without)


@njit(nogil=True, cache=True, error_model="numpy")  # of a theta of 0 it is infinite
def _leave_out(begin: int, end: int, theta: Array, pairs: _Infected) -> None:
    """1 / theta, (K,), of infected[begin:end], those of one step, for each of their pairs."""
    for n in range(pairs.ptr[begin], pairs.ptr[end]):
        pair = pairs.own[n]
        pairs.without[pair] = np.float32(1.0) / theta[pairs.kind[pair]]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _losses(step: int, kind_ptr: Array, tables: Tables, later: Array, out: Array) -> None:
    """Compute what one more sender at `step` takes from each node: its loss, into out (M,).

    Sum over d of (theta(d - 1) - theta(d)) * later(t + d + 1), by receiver: a sender that was not
    infected in the run has a theta of 1, so that its receivers may be summed afterwards.
    """
    steps, active_steps = tables.drop.shape[1], tables.drop.shape[2] - 1
    days = min(active_steps, steps - 1 - step)
    for kind in range(len(kind_ptr) - 1):
        for begin in range(kind_ptr[kind], kind_ptr[kind + 1], BLOCK):
            end = min(begin + BLOCK, kind_ptr[kind + 1])
            ring = later[:, begin:end]
            weighted_sum(tables.drop[kind, step], days, step + 1, 1, ring, out[begin:end])


@njit(nogil=True, cache=True, fastmath={"contract"})
def _values(own: float, ptr: Array, dst: Array, loss: Array, sums: Array, out: Array) -> None:
    """Compute the worth of an infection of each node: own - the sum of `loss` over its receivers.

    By a running sum over the edges of many nodes, of which each takes the difference over its own:
    so there is no short loop whose end the processor would have to predict.
    """
    first, size = 0, len(out)
    while first < size:
        begin = ptr[first]
        last = min(first + BLOCK, size)
        while ptr[last] - begin >= len(sums) and last > first + 1:
            last = first + (last - first) // 2
        total = 0.0
        for e in range(np.uint64(ptr[last] - begin)):
            sums[e] = total
            total += loss[np.uint32(dst[np.uint64(begin) + e])]
        sums[np.uint64(ptr[last] - begin)] = total
        before = 0.0
        for node in range(np.uint64(first), np.uint64(last)):
            upto = sums[np.uint64(ptr[node + _ONE] - begin)]
            out[node] = np.float32(own - (upto - before))
            before = upto
        first = last


@njit(nogil=True, cache=True, fastmath={"contract"})
def _values_of_infected(
    step: int, infected: Array, pairs: _Infected, tables: Tables, block: Array, out: Array
) -> None:
    """Compute the same for the nodes infected in the run, pair by pair."""
    steps, active_steps = tables.drop.shape[1], tables.drop.shape[2] - 1
    days, own = min(active_steps, steps - 1 - step), tables.value[step]
    for n in range(len(infected)):
        out[infected[n]] = own
    sender = pairs.sender
    for kind in range(len(pairs.kind_ptr) - 1):
        drop = tables.drop[kind, step]
        for begin in range(pairs.kind_ptr[kind], pairs.kind_ptr[kind + 1], BLOCK):
            end = min(begin + BLOCK, pairs.kind_ptr[kind + 1])
            ring = pairs.later[:, begin:end]
            weighted_sum(drop, days, step + 1, 1, ring, block[: end - begin])
            for n in range(end - begin):
                out[sender[begin + n]] -= block[n]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _note_wanted(step: int, dst: Array, wanted: Array, pairs: _Infected) -> None:
    """Add the adjoints of the receivers after `step` to those of the thetas of pairs."""
    rows = len(pairs.later)
    row, before = pairs.later[(step + 1) % rows], pairs.later[(step + 2) % rows]
    begins, ends, without = pairs.begin, pairs.end, pairs.without
    for pair in range(np.uint64(len(row))):
        total = np.float32(0.0)
        for e in range(np.uint64(begins[pair]), np.uint64(ends[pair])):
            total += wanted[np.uint32(dst[e])]
        row[pair] = before[pair] + total * without[pair]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _backward(
    infected: Array, order_ptr: Array, senders: Senders, compact: CompactNetwork, tables: Tables,
) -> Array:  # fmt: skip
    """Differentiate by the factor of each step and kind; returns (T, K) float64.

    infected: nodes, in order of infection.
    """
    # One function: a step back changes a dozen arrays in a fixed order, and functions for its
    # parts would hide which of them hold the values after the step and which those before.
    size, steps, active_steps = len(compact.agent), tables.drop.shape[1], tables.drop.shape[2] - 1
    ptr, dst, kind_ptr = compact.ptr, compact.dst, compact.kind_ptr
    kinds = np.empty(size, np.uint8)
    for kind in range(len(kind_ptr) - 1):
        kinds[kind_ptr[kind] : kind_ptr[kind + 1]] = kind
    # P(t + 1), float64: it is multiplied back.
    escape = _escapes(infected, order_ptr, kinds, senders, compact, tables.factor)
    # The adjoint of the hazards from t + 1 on, of log P(t + 1), and that summed up (a ring).
    worth, wanted = np.zeros(size, np.float32), np.zeros(size, np.float32)
    later, loss = np.zeros((active_steps + 1, size), np.float32), np.zeros(size, np.float32)
    after, now = np.zeros(size, np.float32), np.zeros(size, np.float32)  # of x(t + 1), of x(t)
    num_kinds = tables.factor.shape[1]
    block, by, back = np.empty(BLOCK, np.float32), np.zeros(num_kinds), np.zeros(num_kinds)
    sums = np.empty(max(4 * BLOCK, _longest(ptr)) + 1)
    pairs = _pairs_of(infected, kinds, compact, active_steps + 1)
    theta, initial = tables.theta, np.arange(len(compact.initial_ptr) - 1).astype(np.int32)
    for at in range(steps):
        until = min(steps - 1 - at, active_steps)
        _leave_out(order_ptr[at], order_ptr[at + 1], theta[at, until], pairs)
    by_kind = np.zeros(tables.factor.shape)
    for step in range(steps - 1, -1, -1):
        _losses(step, kind_ptr, tables, later, loss)
        _values(tables.value[step], ptr, dst, loss, sums, now)
        _values_of_infected(step, infected, pairs, tables, block, now)
        ring, following = (
            later[(step + 1) % (active_steps + 1)],
            later[(step + 2) % (active_steps + 1)],
        )
        for node in range(np.uint64(size)):
            more = (after[node] - now[node]) * np.float32(escape[node])
            wanted[node] = more
            worth[node] -= more
            ring[node] = following[node] + more
        after, now = now, after
        factor = tables.factor[step]
        for row in range(
            len(senders.initial_sends) if step < senders.initial_sends.shape[1] else 0
        ):
            weight = senders.initial_sends[row, step]
            if weight > 0.0:
                _take_back(
                    initial[senders.initial_ptr[row] : senders.initial_ptr[row + 1]], weight,
                    factor, kinds, compact.initial_ptr, compact.initial_dst, worth, escape, back,
                    by, by_kind[step],
                )  # fmt: skip
        for day in range(1, min(active_steps, step) + 1):
            weight = senders.sends[day]
            if weight > 0.0:
                _take_back(
                    infected[order_ptr[step - day] : order_ptr[step - day + 1]], weight,
                    factor, kinds, ptr, dst, worth, escape, back, by, by_kind[step],
                )  # fmt: skip
        _note_wanted(step, dst, wanted, pairs)
        # What the step before needs: only those who still send, or were infected now, change.
        for day in range(min(active_steps, step) + 1):
            begin, end = order_ptr[step - day], order_ptr[step - day + 1]
            _leave_out(begin, end, theta[step - day, max(0, day - 1)], pairs)
    return by_kind


@njit(nogil=True, cache=True)
def _longest(ptr: Array) -> int:
    most = 0
    for n in range(len(ptr) - 1):
        most = max(most, ptr[n + 1] - ptr[n])
    return most
