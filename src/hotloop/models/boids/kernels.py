"""The compiled kernels of boids: what a bird hears, how it steers and moves, and whole steps."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from hotloop.sim.grid_kernels import (
    Floats,
    Ints,
    Space,
    Sums,
    begin_cells,
    compile_sums,
    count_part,
    place_part,
)

X, Y, VX, VY = range(4)
HEADING_SCALE = 2.0**20  # headings are added as integers too, so that threads change no bit
_ONE, _ZERO = np.float32(1), np.float32(0)
_HEADING = np.float32(HEADING_SCALE)


class Steering(NamedTuple):
    """The numbers that a step needs, float32."""

    cohesion: np.float32
    alignment: np.float32
    separation: np.float32
    min_speed: np.float32
    max_speed: np.float32
    offset_quantum: np.float32
    velocity_quantum: np.float32
    push_quantum: np.float32


def hear(
    dx: float, dy: float, d2: float, _agents: Floats, _i: int, others: Floats, k: int, params: Any
) -> Any:
    """Return the neighbour's offset, its velocity, and a push away from it if it is close."""
    push = _ONE / (d2 + params[1]) if d2 < params[0] else _ZERO
    return dx, dy, others[VX, k], others[VY, k], -dx * push, -dy * push


_sum_rows = compile_sums(hear)


def rows_part(
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
    """Sum what birds hear."""
    _sum_rows(agents, low, high, starts, space, params, scales, block, sums)


def move_part(
    agents: Floats, lo: int, hi: int, sums: Sums, space: Space, s: Steering, to: Floats
) -> Any:
    """Steer and move agents lo to hi, into `to`; returns the sum of their headings, in integers."""
    heading_x = heading_y = np.int64(0)
    for i in range(lo, hi):
        number = np.float32(max(sums[0, i], 1))
        vx, vy = agents[VX, i], agents[VY, i]
        turn_x = np.float32(sums[3, i]) * s.velocity_quantum / number - vx
        turn_y = np.float32(sums[4, i]) * s.velocity_quantum / number - vy
        if sums[0, i] == 0:
            turn_x = turn_y = _ZERO
        centre_x = np.float32(sums[1, i]) * s.offset_quantum / number
        centre_y = np.float32(sums[2, i]) * s.offset_quantum / number
        push_x = np.float32(sums[5, i]) * s.push_quantum
        push_y = np.float32(sums[6, i]) * s.push_quantum
        vx = vx + ((s.cohesion * centre_x + s.alignment * turn_x) + s.separation * push_x)
        vy = vy + ((s.cohesion * centre_y + s.alignment * turn_y) + s.separation * push_y)
        speed = np.sqrt(vx * vx + vy * vy)
        wanted = min(max(speed, s.min_speed), s.max_speed)
        moving = speed > _ZERO
        facing_x = vx / speed if moving else _ZERO
        facing_y = vy / speed if moving else _ZERO
        heading_x += np.int64(facing_x * _HEADING)
        heading_y += np.int64(facing_y * _HEADING)
        vx, vy = facing_x * wanted, facing_y * wanted
        x, y = agents[X, i] + vx, agents[Y, i] + vy
        if space.periodic:
            x = x - space.width if x >= space.width else x
            y = y - space.height if y >= space.height else y
            x = x + space.width if x < _ZERO else x
            y = y + space.height if y < _ZERO else y
            # A step out by less than the box's rounding error ends on the far side itself.
            x = _ZERO if x >= space.width else x
            y = _ZERO if y >= space.height else y
        else:
            vx = -vx if (x < _ZERO) | (x > space.width) else vx
            vy = -vy if (y < _ZERO) | (y > space.height) else vy
            x = abs(x)
            y = abs(y)
            x = space.width - (x - space.width) if x > space.width else x
            y = space.height - (y - space.height) if y > space.height else y
        to[X, i], to[Y, i], to[VX, i], to[VY, i] = x, y, vx, vy
    return heading_x, heading_y


def step_part(
    agents: Floats,
    low: int,
    high: int,
    starts: Ints,
    space: Space,
    params: Any,
    scales: Any,
    block: Floats,
    sums: Sums,
    s: Steering,
    cell: Ints,
    counts: Ints,
    to: Floats,
) -> Any:
    """Do one step of the agents in rows low to high, row by row while they are in cache."""
    heading_x = heading_y = np.int64(0)
    for row in range(low, high):
        _sum_rows(agents, row, row + 1, starts, space, params, scales, block, sums)
        lo, hi = starts[row * space.columns], starts[(row + 1) * space.columns]
        x, y = move_part(agents, lo, hi, sums, space, s, to)
        heading_x += x
        heading_y += y
    lo, hi = starts[low * space.columns], starts[high * space.columns]
    count_part(to, lo, hi, space, cell, counts)
    return heading_x, heading_y


def advance(
    steps: int,
    agents: Floats,
    ids: Ints,
    starts: Ints,
    space: Space,
    params: Any,
    scales: Any,
    block: Floats,
    sums: Sums,
    s: Steering,
    cell: Ints,
    counts: Ints,
    to: Floats,
    to_ids: Ints,
    headings: Any,
) -> None:
    """Do steps on one thread, without Python between them; headings: int64 (steps, 2)."""
    size = len(ids)
    for step in range(steps):
        headings[step, 0], headings[step, 1] = step_part(
            agents, 0, space.rows, starts, space, params, scales, block, sums, s, cell,
            counts[0], to,
        )  # fmt: skip
        for n in range(size):  # a row assigned whole takes 3 s more to compile
            to_ids[n] = ids[n]
        begin_cells(counts, starts)
        place_part(to, to_ids, 0, size, cell, counts[0], agents, ids)


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _cached = njit(cache=True, nogil=True, error_model="numpy")
    move_part = _cached(move_part)
    rows_part, step_part, advance = map(_cached, (rows_part, step_part, advance))
