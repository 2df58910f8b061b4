"""The compiled side of the uniform grid: counting sort by cell, and sums over neighbours.

Agents lie in one float32 array, (rows, N + LANES), row 0 their x and row 1 their y, further rows
what their messages need, sorted by cell. The last LANES columns are room to copy past the end.

A message is a compiled function of one pair, `message(dx, dy, d2, agents, i, others, k, params)`:
agent i of `agents` hears agent k of `others` (the same rows), which lies (dx, dy) away, d2 being
the square of the distance. It returns one float32 per channel, at most CHANNELS of them. It is
compiled into the loop: a function of the user's is as fast as one written here.

Every value is rounded towards zero to a fixed-point integer before it is added. So the sums do not
depend on the order of the agents nor on how threads share them, down to the last bit, and what i
hears of k is exactly the opposite of what k hears of i where the message is odd.

A function here works on one part of the agents or rows, so that several threads can share it.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import llvmlite.ir
import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Sums = NDArray[np.int64]

X, Y = 0, 1
CHANNELS = 8
LANES = 16  # a vector register of 512 bits; narrower machines take two or four for it
LIMIT_BITS = 22
# Of one block of candidates the sums fit into int32, which is what makes them a vector each:
# 256 times 2**22 is 2**30.
BLOCK = 256
_LIMIT = np.float32(2**LIMIT_BITS)
_ZERO = np.float32(0)
_ZEROS = (_ZERO,) * CHANNELS
_NOBODY = -(1 << 40)
_ir: Any = llvmlite.ir  # neither has annotations
_cgutils: Any = cgutils


class Space(NamedTuple):
    """A box, cut into cells no smaller than the radius."""

    columns: int
    rows: int
    width: np.float32
    height: np.float32
    per_x: np.float32  # columns in a unit of length
    per_y: np.float32
    radius2: np.float32  # the square of the radius: a neighbour is at most so far away
    periodic: bool


def _copy_lanes(
    _context: Any, to: Any, _to_row: Any, _to_at: Any, source: Any, _row: Any, _at: Any
) -> Any:
    """to[to_row, to_at:][:LANES] = source[row, at:][:LANES], in one instruction.

    A loop is compiled to a check of overlap, a vector part and a rest, which together cost more
    than the few agents of a cell: the copies took half of a step.
    """
    signature = types.void(to, types.intp, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, width = _ir.VectorType(_ir.FloatType(), LANES), _ir.Constant(_ir.IntType(64), 4)

        def place(kind: Any, array: Any, row: Any, column: Any) -> Any:
            array = context.make_array(kind)(context, builder, array)
            strides = _cgutils.unpack_tuple(builder, array.strides, 2)
            offset = builder.add(builder.mul(row, strides[0]), builder.mul(column, width))
            first = builder.bitcast(array.data, _ir.IntType(8).as_pointer())
            return builder.bitcast(builder.gep(first, [offset]), lanes.as_pointer())

        value = builder.load(place(signature.args[3], *arguments[3:]), align=4)
        builder.store(value, place(signature.args[0], *arguments[:3]), align=4)
        return context.get_dummy_value()

    return signature, generate


copy_lanes: Any = intrinsic(_copy_lanes)


def count_part(agents: Floats, lo: int, hi: int, space: Space, cell: Ints, counts: Ints) -> None:
    """Compute the cells of agents lo to hi, and count the agents in each cell."""
    counts[:] = 0
    for i in range(lo, hi):
        column = min(max(int(agents[X, i] * space.per_x), 0), space.columns - 1)
        row = min(max(int(agents[Y, i] * space.per_y), 0), space.rows - 1)
        cell[i] = row * space.columns + column
        counts[cell[i]] += 1


def begin_cells(counts: Ints, starts: Ints) -> None:
    """Compute where each cell begins; replace the counts by where each part's agents go in it."""
    total = 0
    for cell in range(counts.shape[1]):
        starts[cell] = total
        for part in range(counts.shape[0]):
            number = counts[part, cell]
            counts[part, cell] = total
            total += number
    starts[counts.shape[1]] = total


def place_part(
    agents: Floats, ids: Ints, lo: int, hi: int, cell: Ints, slots: Ints, to: Floats, to_ids: Ints
) -> None:
    """Write agents lo to hi, with their ids, to the next slots of their cells; stable."""
    for i in range(lo, hi):
        slot = slots[cell[i]]
        slots[cell[i]] = slot + 1
        to_ids[slot] = ids[i]
        for line in range(agents.shape[0]):
            to[line, slot] = agents[line, i]


def scatter(values: Any, ids: Ints, to: Any) -> None:
    """Do to[ids] = values, for values in the order of the cells; NumPy would widen the ids."""
    for k in range(len(ids)):
        to[ids[k]] = values[k]


def compile_sums(hear: Any) -> Any:
    """Compile `sum_rows` with a message inside.

    Not cached, as numba has no key for a function inside another. A cached function of the
    message's module that calls what this returns includes it in its own cache.
    """
    # One function: both loops close over the message, which numba compiles into them.
    heard_of = njit(error_model="numpy")(hear)

    def hear_block(
        agents: Floats,
        first: np.int64,
        last: np.int64,
        block: Floats,
        filled: np.int64,
        own: np.int64,
        radius2: np.float32,
        params: Any,
        scales: Any,
        sums: Sums,
        fresh: bool,
    ) -> None:
        """Sum what agents first to last, all of one cell, hear of a block of candidates.

        own: what to add to an agent's number for its own index in the block, which it skips.
        """
        across, up = block.shape[0] - 2, block.shape[0] - 1
        s = scales + _ZEROS
        for i in range(first, last):
            x, y, me = agents[X, i], agents[Y, i], own + i
            # A variable for each channel, which then is a vector register: an array would not be.
            # The channels that a message lacks are constant zeros, and drop out.
            number = c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = np.int32(0)
            for k in range(filled):
                dx = (block[X, k] - x) + block[across, k]
                dy = (block[Y, k] - y) + block[up, k]
                d2 = dx * dx + dy * dy
                m = heard_of(dx, dy, d2, agents, i, block, k, params) + _ZEROS
                if (d2 <= radius2) & (k != me):
                    number = np.int32(number + np.int32(1))
                    c0 = np.int32(c0 + np.int32(min(max(m[0] * s[0], -_LIMIT), _LIMIT)))
                    c1 = np.int32(c1 + np.int32(min(max(m[1] * s[1], -_LIMIT), _LIMIT)))
                    c2 = np.int32(c2 + np.int32(min(max(m[2] * s[2], -_LIMIT), _LIMIT)))
                    c3 = np.int32(c3 + np.int32(min(max(m[3] * s[3], -_LIMIT), _LIMIT)))
                    c4 = np.int32(c4 + np.int32(min(max(m[4] * s[4], -_LIMIT), _LIMIT)))
                    c5 = np.int32(c5 + np.int32(min(max(m[5] * s[5], -_LIMIT), _LIMIT)))
                    c6 = np.int32(c6 + np.int32(min(max(m[6] * s[6], -_LIMIT), _LIMIT)))
                    c7 = np.int32(c7 + np.int32(min(max(m[7] * s[7], -_LIMIT), _LIMIT)))
            heard = (number, c0, c1, c2, c3, c4, c5, c6, c7)
            if fresh:
                for c in range(sums.shape[0]):
                    sums[c, i] = heard[c]
            else:
                for c in range(sums.shape[0]):
                    sums[c, i] += heard[c]

    hear_block = njit(error_model="numpy")(hear_block)

    def sum_rows(
        agents: Floats,
        low: int,
        high: int,
        starts: Ints,
        space: Space,
        params: Any,
        scales: Any,
        block: Floats,
        sums: Sums,
    ) -> None:
        """Sum over the neighbours of all agents in rows low to high of cells, into `sums`.

        sums[0]: neighbours. sums[1 + c]: channel c, in quanta.
        block: (lines + 2, BLOCK + LANES), zeros, this thread's buffer: the candidates of one cell
        side by side, and in the last two lines the shift of those across a periodic edge.
        """
        # One function: the walk over a cell's surroundings is one idea: up to three rows of three
        # cells, each row a contiguous run of agents, and its other end where it leaves a periodic
        # box.
        columns, rows = space.columns, space.rows
        across, up = block.shape[0] - 2, block.shape[0] - 1
        for cell in range(low * columns, high * columns):
            first, last = np.int64(starts[cell]), np.int64(starts[cell + 1])
            if first == last:
                continue
            row, column = cell // columns, cell % columns
            at_edge = row == 0 or row == rows - 1 or column == 0 or column == columns - 1
            filled, own, fresh = np.int64(0), np.int64(_NOBODY), True
            for near in range(row - 1, row + 2):
                shift_y = _ZERO
                if near < 0 or near >= rows:
                    if not space.periodic:
                        continue
                    shift_y = -space.height if near < 0 else space.height
                near_row = (near + rows) % rows
                for end in range(2):
                    shift_x = _ZERO
                    left, right = max(column - 1, 0), min(column + 1, columns - 1)
                    if end == 1:
                        if not space.periodic or (column > 0 and column < columns - 1):
                            continue
                        left = columns - 1 if column == 0 else 0
                        right = left
                        shift_x = -space.width if column == 0 else space.width
                    k = np.int64(starts[near_row * columns + left])
                    stop = np.int64(starts[near_row * columns + right + 1])
                    while k < stop:
                        taken = min(stop - k, BLOCK - filled)
                        for line in range(across):
                            for t in range(0, taken, LANES):
                                copy_lanes(block, line, filled + t, agents, line, k + t)
                        if at_edge:
                            block[across, filled : filled + taken] = shift_x
                            block[up, filled : filled + taken] = shift_y
                        if near == row and end == 0:
                            own = filled - k
                        filled += taken
                        k += taken
                        if filled == BLOCK:
                            hear_block(
                                agents, first, last, block, filled, own, space.radius2,
                                params, scales, sums, fresh,
                            )  # fmt: skip
                            filled, own, fresh = np.int64(0), np.int64(_NOBODY), False
            if filled or fresh:
                whole = (filled + LANES - 1) // LANES * LANES
                block[X, filled:whole] = np.inf  # a neighbour of no agent
                hear_block(
                    agents, first, last, block, whole, own, space.radius2, params, scales,
                    sums, fresh,
                )  # fmt: skip
            if at_edge:
                block[across:] = _ZERO

    return njit(nogil=True, error_model="numpy")(sum_rows)


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _cached = njit(cache=True, nogil=True, error_model="numpy")
    count_part, begin_cells = _cached(count_part), _cached(begin_cells)
    place_part, scatter = _cached(place_part), _cached(scatter)
