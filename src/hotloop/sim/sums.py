"""Sums of messages along edges, compiled for the CPU, for all models and with gradients.

A sum over rows of a few edges each spends its time on mispredicted branches and on loads that wait
for each other. So receivers are ordered by degree, a window of them at a time, and four rows of one
length are summed side by side: in half the time of a product with a sparse matrix
(benchmarks/own_models.py). Where few messages are not zero, only those are pushed. Each way adds
the messages to a receiver in the order of their senders, so that the bits are the same.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numba import njit
from torch.autograd import forward_ad

from hotloop.errors import NetworkError
from hotloop.sim.draws import CONTACTS, GOLDEN, UNIT, mix64, stream_key, uniform
from hotloop.sim.threads import in_parts

Array = np.ndarray[Any, Any]

# Receivers that are sorted by degree together: their sums fit the first-level cache.
WINDOW = 4096
# Push where it reads at most this share of the edges. Measured: both take as long at a tenth.
PUSHED_SHARE = 1 / 16
# Messages that are searched at once for one that is not zero.
BLOCK = 64
# Contacts that are drawn at once, before they are summed.
DRAWN_AT_ONCE = 2048
NARROW = (torch.bool, torch.uint8, torch.int8, torch.int16)
COMPILED = (*NARROW, torch.int32, torch.int64, torch.float32, torch.float64)

_GOLDEN, _32 = np.uint64(GOLDEN), np.uint64(32)
_0, _1, _2, _3, _4 = (np.uint64(i) for i in range(5))


class Edges(Protocol):
    """Edges as a linear map of messages, and its transpose."""

    def forward(self, messages: torch.Tensor) -> torch.Tensor:
        """Sum, for every receiver, what its senders send: (..., N)."""

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Sum, for every sender, the gradients of its receivers: (..., N)."""


def summed(messages: torch.Tensor, edges: Edges) -> torch.Tensor:
    """Compute `edges.forward(messages)` with derivatives of every kind that torch has."""
    if _is_plain(messages):
        return edges.forward(messages)  # an autograd function would take 50 µs more
    result: torch.Tensor = _Summed.apply(messages, edges, True)  # type: ignore[no-untyped-call]
    return result


def widened(messages: torch.Tensor) -> torch.Tensor:
    """Convert messages to a dtype that sums fit: int32 for bool and narrower integers."""
    return messages.int() if messages.dtype in NARROW else messages


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(messages: torch.Tensor, edges: Edges, onwards: bool) -> torch.Tensor:
        return edges.forward(messages) if onwards else edges.backward(messages)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        _, ctx.edges, ctx.onwards = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Summed.apply(gradient, ctx.edges, not ctx.onwards), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> Any:
        return _Summed.apply(tangent, ctx.edges, ctx.onwards)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], messages: torch.Tensor, edges: Edges, onwards: bool
    ) -> Any:
        # The batch becomes the first dimension, and all but the last are batches anyway.
        moved = messages.movedim(in_dims[0], 0)
        return _Summed.apply(moved, edges, onwards), 0  # type: ignore[no-untyped-call]


class RowsByDegree(NamedTuple):
    """Rows of ids by degree, one window after the other; rows of one degree are a run."""

    order: Array
    """(N,) int32, the rows in their new order."""
    ids: Array
    """(E,) int32, the ids of one row after the other, in that order."""
    first: Array
    """(K + 1,) int64, where each of K runs begins in `order`."""
    before: Array
    """(K + 1,) int64, edges before each run."""
    degree: Array
    """(K,) int64, ids in each row of a run."""


class RowSums:
    """The edges of a static network; their order by degree is made when it is first needed.

    in_ptr, in_src, out_ptr, out_dst: as in Network.
    """

    def __init__(self, in_ptr: Array, in_src: Array, out_ptr: Array, out_dst: Array) -> None:
        self._in, self._out = (in_ptr, in_src), (out_ptr, out_dst)

    def forward(self, messages: torch.Tensor) -> torch.Tensor:
        """Sum, for every receiver, what its senders send: (..., N)."""
        return _sum_rows(messages, self._by_receiver, self._out)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Sum, for every sender, the gradients of its receivers: (..., N)."""
        return _sum_rows(gradient, self._by_sender, self._in)

    @cached_property
    def _by_receiver(self) -> RowsByDegree:
        return _by_degree(*self._in)

    @cached_property
    def _by_sender(self) -> RowsByDegree:
        return _by_degree(*self._out)


class DrawnSums:
    """The drawn contacts of one step: `degree` senders for each of N receivers."""

    def __init__(self, num_agents: int, degree: int, seed: int, step: int) -> None:
        self._size, self._degree, self._seed, self._step = num_agents, degree, seed, step

    def forward(self, messages: torch.Tensor) -> torch.Tensor:
        """Sum, for every receiver, what its senders send: (..., N)."""
        rows, result, sums = _prepared(messages, self._size)
        key = stream_key(
            np.uint64(self._seed % 2**64), np.uint64(self._step % 2**64), np.uint64(CONTACTS)
        )

        def sum_part(begin: int, end: int) -> None:
            _sum_drawn(np.uint64(key), self._degree, rows, sums, begin, end)

        in_parts(sum_part, self._size, self._size * self._degree * len(rows))
        return torch.from_numpy(result)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Sum, for every sender, the gradients of its receivers: (..., N)."""
        drawn = uniform(torch.tensor(self._seed), self._step, CONTACTS, self._size * self._degree)
        senders = (drawn * self._size).long()
        rows = gradient.reshape(math.prod(gradient.shape[:-1]), self._size)
        # A batched index_add is a hundred times slower on a CPU than one call a row.
        back = [
            torch.zeros_like(row).index_add_(0, senders, row.repeat_interleave(self._degree))
            for row in rows
        ]
        return torch.stack(back).view(gradient.shape) if back else gradient.clone()


def _is_plain(messages: torch.Tensor) -> bool:
    """Whether only numbers are wanted: no gradient, tangent or transform of torch.func."""
    if messages.requires_grad and torch.is_grad_enabled():
        return False
    try:
        messages.data_ptr()
    except RuntimeError:  # a transform's tensor has no memory
        return False
    return forward_ad.unpack_dual(messages).tangent is None


def _sum_rows(
    messages: torch.Tensor, layout: RowsByDegree, pushed: tuple[Array, Array]
) -> torch.Tensor:
    """Sum each row of messages by pushing where that is cheap, else by pulling."""
    pointers, ids = pushed
    rows, result, sums = _prepared(messages, len(pointers) - 1)
    most = int(len(ids) * PUSHED_SHARE)
    dense = [r for r in range(len(rows)) if not _push(pointers, ids, rows[r], most, sums[r])]
    if dense:
        pulled = np.array(dense)

        def sum_part(begin: int, end: int) -> None:
            first, last = np.searchsorted(layout.first, (begin, end))
            _pull(layout, first, last, pulled, rows, sums)

        in_parts(sum_part, len(layout.order), len(ids) * len(dense))
    return torch.from_numpy(result)


def _prepared(messages: torch.Tensor, size: int) -> tuple[Array, Array, Array]:
    """Return the messages as rows (M, N), memory for the result, and its rows (M, N)."""
    if messages.dim() < 1 or messages.shape[-1] != size:
        raise NetworkError(
            f"sum_from: expected messages of shape (..., {size}), one for each agent of the "
            f"network; got {tuple(messages.shape)}"
        )
    given = np.ascontiguousarray(messages.detach().numpy())
    if given.dtype == np.bool_:
        given = given.view(np.uint8)
    result = np.empty(given.shape, given.dtype if given.dtype.itemsize > 2 else np.int32)
    shape = math.prod(given.shape[:-1]), size
    return given.reshape(shape), result, result.reshape(shape)


def _by_degree(pointers: Array, ids: Array) -> RowsByDegree:
    degrees = np.diff(pointers).astype(np.int64)
    size = len(degrees)
    key = np.arange(size) // WINDOW * (degrees.max(initial=0) + 1) + degrees
    # Sorted by NumPy: a sort takes seconds to compile.
    order = np.argsort(key, kind="stable").astype(np.int32)
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    edges = np.concatenate(([0], np.cumsum(degrees[order])))
    first = np.append(begins, size)
    return RowsByDegree(
        order, _rows_in(order, pointers, ids), first, edges[first], degrees[order[begins]]
    )


@njit(cache=True)
def _rows_in(order: Array, pointers: Array, ids: Array) -> Array:
    """Concatenate the ids of the rows in a new order."""
    result, edges = np.empty(len(ids), np.int32), 0
    for row in order:
        for e in range(pointers[row], pointers[row + 1]):
            result[edges] = ids[e]
            edges += 1
    return result


@njit(cache=True, nogil=True)
def _pull(
    layout: RowsByDegree, begin: int, end: int, pulled: Array, rows: Array, sums: Array
) -> None:
    """Sum runs `begin` to `end`, for the `pulled` ones of `rows`.

    Unsigned indices save the test for negative ones, which count from the end.
    """
    order, ids, zero = layout.order, layout.ids, sums.dtype.type(0)
    for r in pulled:
        messages, result = rows[r], sums[r]
        for run in range(begin, end):
            d, e = np.uint64(layout.degree[run]), np.uint64(layout.before[run])
            place, last = np.uint64(layout.first[run]), np.uint64(layout.first[run + 1])
            while place + _4 <= last:
                s0, s1, s2, s3 = zero, zero, zero, zero
                for k in range(e, e + d):
                    s0 += messages[np.uint32(ids[k])]
                    s1 += messages[np.uint32(ids[k + d])]
                    s2 += messages[np.uint32(ids[k + _2 * d])]
                    s3 += messages[np.uint32(ids[k + _3 * d])]
                result[np.uint32(order[place])] = s0
                result[np.uint32(order[place + _1])] = s1
                result[np.uint32(order[place + _2])] = s2
                result[np.uint32(order[place + _3])] = s3
                e += _4 * d
                place += _4
            while place < last:
                s0 = zero
                for k in range(e, e + d):
                    s0 += messages[np.uint32(ids[k])]
                result[np.uint32(order[place])] = s0
                e += d
                place += _1


@njit(cache=True, nogil=True)
def _push(pointers: Array, ids: Array, messages: Array, most: int, sums: Array) -> bool:
    """Push the messages that are not zero, if they have at most `most` edges; else return False."""
    senders, count, edges = np.empty(most + BLOCK, np.int32), _0, 0
    for begin in range(0, len(messages), BLOCK):
        end = min(begin + BLOCK, len(messages))
        found = 0
        for sender in range(np.uint64(begin), np.uint64(end)):
            found += messages[sender] != 0
        if not found:
            continue
        for sender in range(np.uint64(begin), np.uint64(end)):
            degree = pointers[sender + _1] - pointers[sender]
            senders[count] = sender
            if messages[sender] != 0 and degree > 0:
                count += _1
                edges += degree
        if edges > most:
            return False
    sums[:] = 0
    for k in range(count):
        active = np.uint64(senders[k])
        message = messages[active]
        for e in range(np.uint64(pointers[active]), np.uint64(pointers[active + _1])):
            sums[np.uint32(ids[e])] += message
    return True


@njit(cache=True, nogil=True)
def _sum_drawn(key: Any, degree: int, rows: Array, sums: Array, begin: int, end: int) -> None:
    """Sum over drawn senders for receivers `begin` to `end`, for each of `rows`."""
    size = rows.shape[1]
    at_once = max(1, DRAWN_AT_ONCE // max(degree, 1))
    senders = np.empty(at_once * degree, np.int32)
    zero = sums.dtype.type(0)
    for start in range(begin, end, at_once):
        stop = min(end, start + at_once)
        z = key + _GOLDEN * np.uint64(start * degree)
        for k in range(_0, np.uint64((stop - start) * degree)):
            z += _GOLDEN
            drawn = np.float64(np.int64(mix64(z) >> _32)) * UNIT
            senders[k] = np.int32(drawn * size)
        for r in range(len(rows)):
            messages, result = rows[r], sums[r]
            contact = _0
            for receiver in range(start, stop):
                s = zero
                for _ in range(degree):
                    s += messages[np.uint32(senders[contact])]
                    contact += _1
                result[receiver] = s
