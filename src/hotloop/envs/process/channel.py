"""The memory that a driver and its workers share: the envs' rows, and the steps to do and done.

A worker has two rings of entries, each written by one side and read by the other: steps to do and
steps done. An entry is the number of an env, a whole slab (consecutive envs that one worker steps
together), or the mark that a message waits in the worker's connection. A ring's count only grows,
and is written last.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree
from hotloop.data.shared import SharedBlock
from hotloop.envs.table import Table

MESSAGE = -(2**31)  # the entry that says: read the connection
_LINE_BYTES = 64  # each counter has a cache line of its own
_DRIVER_CELLS = 3
_WORKER_CELLS = 6
_FINISHED, _STEPPED = 3, 4  # the cells of a worker: its entries in `done`, and the envs stepped
# Of more workers NumPy adds the cells up faster than Python.
_MANY_WORKERS = 16


def slab_entry(slab: int) -> int:
    """The entry that stands for a worker's whole slab."""
    return -1 - slab


@dataclass(frozen=True)
class Shape:
    """The sizes that a block is laid out from; equal in the driver and in every worker."""

    num_envs: int
    num_workers: int
    observation: Layout
    action: Layout
    reward_shape: tuple[int, ...]

    @property
    def entries(self) -> int:
        """The capacity of a ring: each env once, each as part of a slab, and messages."""
        return 2 * self.num_envs + 64


class SharedTable(Table):
    """A table that workers write, whatever the driver does meanwhile."""

    changes_by_itself: ClassVar[bool] = True


class Channel:
    """One view of the shared block: the driver has one, and every worker.

    table: the results of the last steps. is_wide: which of the two actions each env is to take.
    """

    changes_by_itself: ClassVar[bool] = True

    def __init__(self, shape: Shape, block: SharedBlock | None = None) -> None:
        self.shape = shape
        n, workers = shape.num_envs, shape.num_workers
        wide = _doubled(shape.action)
        rows = (
            Layout(np.dtype(np.float64), shape.reward_shape),
            *[Layout(np.dtype(np.bool_), ())] * 3,
            shape.observation,
            shape.action,
            *((wide,) if wide != shape.action else ()),
        )
        table = Layout(np.dtype(object), (), rows)
        cells = (_DRIVER_CELLS + workers * _WORKER_CELLS) * _LINE_BYTES
        rings = 2 * workers * shape.entries * 4
        rows_at = -(-(cells + rings) // _LINE_BYTES) * _LINE_BYTES
        self.block = block or SharedBlock(rows_at + table.nbytes(n))
        buffer = memoryview(self.block.buffer)
        self._cells = buffer[:cells].cast("q")
        self._rings = buffer[cells : cells + rings].cast("i")
        reward, ended, cut, self.is_wide, obs, *actions = table.in_buffer(
            self.block.buffer, rows_at, n
        )
        self.table = SharedTable(shape.observation, obs, reward, ended, cut)
        self.actions: Tree = actions[0]  # in the space's types
        self.wide_actions: Tree = actions[-1]  # with float64 for floats
        # Whether the driver sleeps until it is woken, when something was last sent to it, and from
        # which sum of `stepped` on it is to be woken.
        self.driver_asleep, self.driver_marked_ns, self.wanted = map(self._cell, range(3))
        first_cells = range(_DRIVER_CELLS, _DRIVER_CELLS + workers * _WORKER_CELLS, _WORKER_CELLS)
        self._first_cells = first_cells
        self._stepped: list[memoryview] | NDArray[np.int64]
        if workers > _MANY_WORKERS:
            lines = np.frombuffer(self._cells, np.int64).reshape(-1, _LINE_BYTES // 8)[:, 0]
            self._stepped = lines[first_cells[0] + _STEPPED :: _WORKER_CELLS]
        else:
            self._stepped = [self._cell(first + _STEPPED) for first in first_cells]
        self._finished = [self._cell(first + _FINISHED) for first in first_cells]

    def count_stepped(self) -> int:
        """How many envs all workers have stepped since they were started."""
        if isinstance(self._stepped, list):
            return sum([cell[0] for cell in self._stepped])
        return int(self._stepped.sum())

    def count_finished(self) -> list[int]:
        """How many entries each worker has done since it was started."""
        return [cell[0] for cell in self._finished]

    def close(self) -> None:
        """Close the descriptor; arrays on the block stay valid."""
        self.block.close()

    def end(self, worker: int) -> "End":
        """What the driver shares with one worker."""
        first = self._first_cells[worker]
        entries, at = self.shape.entries, 2 * worker * self.shape.entries
        posted, asleep, marked_ns, finished, stepped, messages = (
            self._cell(first + k) for k in range(_WORKER_CELLS)
        )
        to_do = self._rings[at : at + entries]
        done = self._rings[at + entries : at + 2 * entries]
        return End(posted, asleep, marked_ns, finished, stepped, messages, to_do, done)

    def _cell(self, number: int) -> memoryview:
        at = number * _LINE_BYTES // 8
        return self._cells[at : at + 1]


@dataclass(frozen=True)
class End:
    """What the driver and one worker share, each cell and ring written by one of them only."""

    changes_by_itself: ClassVar[bool] = True

    posted: memoryview  # entries ever put into `to_do`, by the driver
    asleep: memoryview  # whether the worker sleeps until it is woken
    marked_ns: memoryview  # when something was last sent to it, by the driver
    finished: memoryview  # entries ever put into `done`, by the worker
    stepped: memoryview  # envs that these stand for
    messages: memoryview  # messages ever sent through the connection, by the worker
    to_do: memoryview
    done: memoryview


def _doubled(layout: Layout) -> Layout:
    """The layout with all floats as float64, for actions more exact than their space."""
    if layout.children is not None:
        return Layout(
            layout.dtype, (), tuple(_doubled(child) for child in layout.children), layout.keys
        )
    if layout.dtype.kind == "f":
        return Layout(np.dtype(np.float64), layout.shape)
    return layout
