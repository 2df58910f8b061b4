"""One population as plain arrays: what every reader and the generator return.

Checked once, here, so that a model may rely on it: a column of another length or an edge to an
agent that does not exist is refused, with its row, before the first step. What the values of a
column mean is the model's to check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError


@dataclass(frozen=True, eq=False, repr=False)
class PopulationData:
    """Agents as columns, and the contacts between them.

    Raises: PopulationError for no column, no agent, a column of another length than the first, and
    an edge to an agent that does not exist; it names the column and the first bad row.
    """

    name: str
    """Shown in reports."""
    columns: Mapping[str, NDArray[Any]]
    """Each (N,), of any type; at least one."""
    edges: NDArray[np.int32] | None = None
    """(E, 2), rows src, dst: src reaches dst. None: no contact network."""
    periods: tuple[NDArray[np.int32], ...] = ()
    """More edge lists, for networks that alternate by step. Usually empty."""

    def __post_init__(self) -> None:
        where = f"population {self.name!r}"
        columns = {name: np.asarray(column) for name, column in self.columns.items()}
        if not columns:
            raise PopulationError(
                f"{where}: expected at least one column, such as 'age', got none; add one with a "
                "value for each agent"
            )
        first, column = next(iter(columns.items()))
        size = len(column) if column.ndim else 0
        if size == 0:
            raise PopulationError(
                f"{where}: the column {first!r} is empty; a population needs agents"
            )
        for name, column in columns.items():
            check_length(column, size, f"{where}: column {name!r}", first)
        object.__setattr__(self, "columns", MappingProxyType(columns))
        if self.edges is not None:
            object.__setattr__(self, "edges", check_edges(self.edges, size, f"{where}: edges"))
        periods = tuple(
            check_edges(edges, size, f"{where}: periods[{k}]")
            for k, edges in enumerate(self.periods)
        )
        object.__setattr__(self, "periods", periods)

    def both_ways(self) -> "PopulationData":
        """Return the same with every contact once in each direction.

        For lists that have each contact once. A row that is there in both directions, or more than
        once, is one contact; rows of an agent with itself stay. Takes 40 B a row meanwhile.
        """
        if self.edges is None:
            return self
        every = (_mirrored(edges, self.size) for edges in (self.edges, *self.periods))
        edges, *periods = every
        return replace(self, edges=edges, periods=tuple(periods))

    @property
    def size(self) -> int:
        """Number of agents, N."""
        return len(next(iter(self.columns.values())))

    @property
    def num_edges(self) -> int:
        """Number of rows of the contact network, E; 0 without one."""
        return 0 if self.edges is None else len(self.edges)

    def __repr__(self) -> str:
        return (
            f"PopulationData({self.name!r}, {self.size:,} agents, {self.num_edges:,} edges, "
            f"columns {', '.join(self.columns)})"
        )


def edge_keys(edges: NDArray[np.int32], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number each row, src * size + dst, and its reverse, dst * size + src; int64 (E,) each."""
    src, dst = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
    return src * size + dst, dst * size + src


def _mirrored(edges: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    rows = np.unique(np.concatenate(edge_keys(edges, size)))
    return np.stack([rows // size, rows % size], axis=1).astype(np.int32)


def check_length(column: NDArray[Any], size: int, where: str, reference: str) -> None:
    """Refuse a column that has not one value for each agent.

    reference: the column that says how many agents there are.

    Raises: PopulationError.
    """
    if column.shape != (size,):
        raise PopulationError(
            f"{where}: expected one value for each of the {size} agents of {reference!r}, got "
            f"{amount(column)}; the columns must come from the same agents"
        )


def amount(column: NDArray[Any]) -> str:
    """Say how much a column holds."""
    return f"{column.size} values" if column.ndim == 1 else f"the shape {column.shape}"


def whole_numbers(values: NDArray[Any], most: int, where: str) -> NDArray[np.uint8]:
    """Convert values to uint8 without changing any.

    Shapes: (N,) of any number type. Whole floats are taken as they are.

    Raises: PopulationError, naming the first row that is no whole number from 0 to `most`.
    """
    wanted = f"whole numbers from 0 to {most}"
    if values.dtype.kind not in "buif":
        raise PopulationError(f"{where}: expected {wanted}, got the type {values.dtype}")
    # min and max first: they make no array of flags, and a good column needs no more.
    least, largest = values.min(), values.max()
    bad = None
    if not (least >= 0 and largest <= most):  # NaN fails both
        bad = ~((values >= 0) & (values <= most))
    elif values.dtype.kind == "f":
        broken = values != np.trunc(values)
        bad = broken if broken.any() else None
    if bad is not None:
        row = int(np.argmax(bad))
        raise PopulationError(
            f"{where}: row {row}: expected {wanted}, got {values[row]} "
            f"({int(bad.sum())} such of {values.size} rows); correct or drop these agents"
        )
    return values.astype(np.uint8, copy=False)


def check_edges(edges: NDArray[Any], size: int, where: str) -> NDArray[np.int32]:
    """Check edges, (E, 2), whose ends must be agents 0 to size - 1; returns them as int32.

    Raises: PopulationError, naming the first row with an end outside.
    """
    edges = np.asarray(edges)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise PopulationError(
            f"{where}: expected the shape (E, 2), rows of src and dst, got {edges.shape}"
        )
    if edges.dtype.kind not in "iu":
        raise PopulationError(
            f"{where}: expected whole numbers of agents, got the type {edges.dtype}; "
            "convert them with .astype(numpy.int32)"
        )
    if len(edges) and not (edges.min() >= 0 and edges.max() < size):
        row = int(np.argmax(((edges < 0) | (edges >= size)).any(axis=1)))
        src, dst = edges[row].tolist()
        nobody = dst if 0 <= src < size else src
        raise PopulationError(
            f"{where}: row {row} ({src},{dst}): there is no agent {nobody}; expected agents 0 to "
            f"{size - 1}; number the agents from 0 in the order of the columns"
        )
    return np.ascontiguousarray(edges, dtype=np.int32)
