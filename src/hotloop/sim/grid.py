"""Spatial messages: sums over the neighbours of every agent within a radius, by a uniform grid.

A model says what an agent hears of one neighbour, as a `Message`; the engine finds the neighbours
and adds. `UniformGrid` does so on the CPU, compiled and on several threads; `grid_tensor` does the
same on tensors of any device. Both add fixed-point integers and agree to the last bit.

Two dimensions only: a third would cost two-dimensional models a third more a pair.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError, ShapeError, expect_positive
from hotloop.sim.grid_kernels import (
    BLOCK,
    CHANNELS,
    LANES,
    LIMIT_BITS,
    Floats,
    Ints,
    Space,
    Sums,
    begin_cells,
    compile_sums,
    count_part,
    place_part,
    scatter,
)
from hotloop.sim.threads import Threads

# Cells are this much wider than the radius, so that the rounding of a float32 position never puts
# neighbours two cells apart: the error of a cell number is below MOST_CELLS * 2**-22.
_SLACK = 1 + 2**-10
_MOST_CELLS = 2048
_PARTS_PER_THREAD = 4  # agents are dense in places, so threads fetch several parts each


@dataclass(frozen=True, eq=False)
class Message:
    """What an agent hears of one neighbour: a few numbers, which are summed over the neighbours.

    hear: `hear(dx, dy, d2, agents, i, others, k, params)`, a function that numba can compile:
    agent i of `agents` hears agent k of `others`, which lies (dx, dy) from it, d2 = dx² + dy².
    `others[line, k]` are its columns, line 0 and 1 being x and y. Returns a tuple of float32, one
    for each channel. It must be finite where d2 is 0: agents may have the same position.
    bounds: {channel: the greatest absolute value}; values are clipped to it, and rounded towards
    zero to multiples of the bound's power of two times 2**-22.
    tensors: the same on tensors, if `hear` does not take tensors.
    rows: `sum_rows` with this message inside, compiled with cache; None compiles it here, which
    takes a few seconds in each process.
    """

    hear: Callable[..., Any]
    bounds: Mapping[str, float]
    tensors: Callable[..., Any] | None = None
    rows: Callable[..., None] | None = None
    exponents: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.bounds) <= CHANNELS:
            raise SettingError(
                f"a message has 1 to {CHANNELS} channels, got {len(self.bounds)}; "
                "send the rest in a second message"
            )
        for name, bound in self.bounds.items():
            expect_positive(f"bound of channel {name!r}", bound)
        powers = [LIMIT_BITS - math.ceil(math.log2(bound)) for bound in self.bounds.values()]
        object.__setattr__(self, "exponents", tuple(powers))
        if self.rows is None:
            object.__setattr__(self, "rows", compile_sums(self.hear))

    @property
    def scales(self) -> tuple[np.float32, ...]:
        """The factors that convert a value of each channel to quanta."""
        return tuple(np.float32(2.0**power) for power in self.exponents)

    @property
    def quanta(self) -> tuple[float, ...]:
        """The size of one quantum of each channel, in the message's unit."""
        return tuple(2.0**-power for power in self.exponents)


def space_of(width: float, height: float, radius: float, periodic: bool, num_agents: int) -> Space:
    """Cut a box into cells, as small as the radius allows, at most four an agent.

    Raises: SettingError for a box or radius that is not a positive number, or a periodic box less
    than three cells across, where an agent would meet the same neighbour from two sides.
    """
    expect_positive("width", width)
    expect_positive("height", height)
    expect_positive("radius", radius)
    sides = []
    for name, side in (("width", width), ("height", height)):
        cells = int(side / (radius * _SLACK))
        if periodic and cells < 3:
            raise SettingError(
                f"{name}: a periodic box must be more than three radii across, got {side:g} with "
                f"radius {radius:g}; enlarge the box, shrink the radius, or take periodic=False"
            )
        sides.append(min(max(cells, 1), _MOST_CELLS))
    least = 3 if periodic else 1
    crowded = math.sqrt(sides[0] * sides[1] / (4 * num_agents + 64))
    columns, rows = (max(int(side / max(crowded, 1.0)), least) for side in sides)
    return Space(
        columns, rows, np.float32(width), np.float32(height),
        np.float32(columns / width), np.float32(rows / height),
        np.float32(radius) * np.float32(radius), periodic,
    )  # fmt: skip


class UniformGrid:
    """A box with agents sorted by cell, in memory allocated once.

    width, height, radius: in one unit of length, float32 in the kernels. periodic: agents near one
    side are neighbours of those near the other; else the box has walls.
    lines: float32 numbers of an agent, x and y being the first two.
    threads: they share the work and change no bit.

    `agents` (lines, N + room) and `ids` (N,) are the agents in the order of their cells, `starts`
    (cells + 1,) where each cell's begin; `spare` and `spare_ids` are where `place` reads from.

    Raises: SettingError for a box, radius or number out of range.
    """

    def __init__(
        self,
        width: float,
        height: float,
        radius: float,
        num_agents: int,
        *,
        periodic: bool = True,
        lines: int = 2,
        threads: int = 1,
    ) -> None:
        expect_positive("num_agents", num_agents)
        expect_positive("threads", threads)
        self.space = space_of(width, height, radius, periodic, num_agents)
        self.num_agents, self.threads = num_agents, threads
        self.parts = 1 if threads == 1 else _PARTS_PER_THREAD * threads
        cells = self.space.columns * self.space.rows
        self.agents: Floats = np.zeros((lines, num_agents + LANES), np.float32)
        self.spare: Floats = np.zeros_like(self.agents)
        self.ids: Ints = np.arange(num_agents, dtype=np.int32)
        self.spare_ids: Ints = self.ids.copy()
        self.cell: Ints = np.zeros(num_agents, np.int32)
        self.counts: Ints = np.zeros((self.parts, cells), np.int32)
        self.starts: Ints = np.zeros(cells + 1, np.int32)
        self.blocks: Floats = np.zeros((self.parts, lines + 2, BLOCK + LANES), np.float32)
        self._even: NDArray[np.int64] = np.arange(self.parts + 1) * num_agents // self.parts
        self._threads = Threads(threads, "hotloop-grid")

    def load(self, columns: Iterable[np.ndarray[Any, Any]]) -> None:
        """Load agents in the order of their ids and sort them by cell.

        columns: x, y and the further lines, each (N,).

        Raises: ShapeError for another number of lines, or another length; SettingError for an
        agent outside of the box.
        """
        given = list(columns)
        if len(given) != len(self.spare):
            raise ShapeError(f"grid: expected {len(self.spare)} columns, got {len(given)}")
        for line, column in enumerate(given):
            if column.shape != (self.num_agents,):
                raise ShapeError(
                    f"grid: column {line}: expected shape ({self.num_agents},), got {column.shape}"
                )
            self.spare[line, : self.num_agents] = column
        for name, line, side in (("x", 0, self.space.width), ("y", 1, self.space.height)):
            place = self.spare[line, : self.num_agents]
            outside = ~((place >= 0) & (place <= side))
            if outside.any():
                agent = int(outside.argmax())
                raise SettingError(
                    f"grid: agent {agent}: {name} = {place[agent]:g} is outside of the box, "
                    f"0 to {side:g}; wrap or clip positions before they are given"
                )
        self.spare_ids[:] = np.arange(self.num_agents)
        self.run(self._count)
        self.place(self._even)

    def _count(self, part: int) -> None:
        lo, hi = self._even[part : part + 2]
        count_part(self.spare, lo, hi, self.space, self.cell, self.counts[part])

    def place(self, bounds: NDArray[np.integer[Any]]) -> None:
        """Sort `spare`, whose parts, cut at `bounds`, have been counted, into `agents`."""
        begin_cells(self.counts, self.starts)

        def place(part: int) -> None:
            lo, hi = bounds[part : part + 2]
            place_part(
                self.spare, self.spare_ids, lo, hi, self.cell, self.counts[part],
                self.agents, self.ids,
            )  # fmt: skip

        self.run(place)

    def rows_of_parts(self) -> Ints:
        """Cut the rows of cells into parts of about as many agents."""
        begins = self.starts[:: self.space.columns]
        cuts = np.searchsorted(begins, self._even).astype(np.int32)
        cuts[0], cuts[-1] = 0, self.space.rows
        return cuts

    def sums(self, message: Message, params: tuple[float, ...] = ()) -> Sums:
        """Sum what every agent hears, int64 (1 + channels, N), in the order of the ids.

        Row 0 counts the neighbours; the others are sums in quanta, see `Message.quanta`.
        """
        by_cell = np.zeros((1 + len(message.bounds), self.num_agents), np.int64)
        cuts, scales, rows = self.rows_of_parts(), message.scales, message.rows
        numbers = tuple(np.float32(value) for value in params)
        assert rows is not None

        def add(part: int) -> None:
            low, high = cuts[part : part + 2]
            rows(
                self.agents, low, high, self.starts, self.space, numbers, scales,
                self.blocks[part], by_cell,
            )  # fmt: skip

        self.run(add)
        by_id = np.empty_like(by_cell)
        for channel in range(len(by_cell)):
            scatter(by_cell[channel], self.ids, by_id[channel])
        return by_id

    def store(self, columns: Iterable[NDArray[Any]]) -> None:
        """Write the agents' lines into columns, each (N,), in the order of their ids."""
        for line, column in zip(self.agents, columns, strict=True):
            scatter(line, self.ids, column)

    def run(self, work: Callable[[int], None]) -> None:
        """Do every part of the work, on the grid's threads."""
        if self.threads == 1:
            for part in range(self.parts):
                work(part)
            return
        self._threads.run(work, range(self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes that the grid keeps."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
