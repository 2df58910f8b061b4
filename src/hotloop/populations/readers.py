"""Populations of plain tables in a folder: columns in CSV or parquet files, and lists of edges.

Files are only read. Errors name the file, and the line or row where there is one. Folders of other
projects have readers of their own, which share the parts of this one; see `load.FOLDER_FORMATS`.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.data import PopulationData, amount, check_edges
from hotloop.populations.rows import header_and_columns, read_numbers
from hotloop.populations.tables import read_csv, read_parquet

_LOG = logging.getLogger("hotloop")
_SOURCES = ("src", "source", "from")
_TARGETS = ("dst", "dest", "destination", "target", "to")
_INDEX = ("", "index", "unnamed: 0")
_NETWORK_FOLDER = "networks"

Table = dict[str, NDArray[Any]]


def read_folder(folder: Path, *, periods: bool = False) -> PopulationData:
    """Read the population of a folder of plain tables.

    Columns: `agents.parquet` or `agents.csv` (a table with a header), and `<name>.parquet` files,
    of one column each, named by the file, or of several. With a table of agents, columns of another
    length are left out, with a warning that names them; else all must have one length. A column may
    be there twice if both are equal.
    Network: `networks/0.csv`, `edges.csv` or `edges.parquet`, rows of src and dst, with or without
    a header that names them; it may be missing.

    Args:
        periods: whether 1.csv, 2.csv, ... beside 0.csv are networks that take turns with it, step
            by step; else they are ignored, with a warning.

    Raises: PopulationError, naming file and line or row.
    """
    if not folder.is_dir():
        kind = "a file" if folder.exists() else "nothing there"
        raise PopulationError(
            f"population {str(folder)!r}: expected a folder, got {kind}; give the folder that "
            "holds agents.parquet, agents.csv or age.pickle"
        )
    found = FolderColumns()
    tables = read_tables(folder)
    agents = [path for path in tables if path.stem == "agents"]
    for path in sorted(tables, key=lambda path: path not in agents):
        found.add_table(tables[path], path)
    if not found.columns:
        raise PopulationError(
            f"{folder}: expected columns (agents.parquet, agents.csv, or a parquet file each), "
            "found none"
        )
    reference = next(iter(found.columns))
    size = len(found.columns[reference])
    if agents:
        found.leave_out_other_lengths(size)
    networks = read_networks(folder, size, periods, (_NETWORK_FOLDER,))
    return PopulationData(
        name=folder.resolve().name,
        columns=found.columns,
        edges=networks[0] if networks else None,
        periods=tuple(networks[1:]),
    )


class FolderColumns:
    """The columns found in a folder, and the file of each."""

    def __init__(self) -> None:
        self.columns: Table = {}
        self.origin: dict[str, Path] = {}

    def add(self, name: str, column: NDArray[Any], path: Path) -> None:
        """Add a column.

        Raises: PopulationError where it is there already with other values.
        """
        if name in self.columns and not _are_equal(self.columns[name], column):
            raise PopulationError(
                f"{path}: column {name!r} is also in {self.origin[name]}, with other values; "
                "remove one of the two"
            )
        self.columns.setdefault(name, column)
        self.origin.setdefault(name, path)

    def add_table(self, table: Table, path: Path) -> None:
        """Add all columns of a table; a file of one column, not of agents, names it."""
        for name, column in table.items():
            alone = len(table) == 1 and path.stem != "agents"
            self.add(path.stem if alone else name, column, path)

    def leave_out_other_lengths(self, size: int) -> None:
        """Remove the columns that have not `size` values, each with a warning."""
        for name in [n for n, column in self.columns.items() if column.shape != (size,)]:
            _LOG.warning(
                "%s: column %r is left out: it has %s, and there are %d agents",
                *(self.origin[name], name, amount(self.columns.pop(name)), size),
            )


def read_tables(folder: Path) -> dict[Path, Table]:
    """Read the parquet tables of a folder but its edges, and its agents.csv, by path."""
    tables = {p: read_parquet(p) for p in sorted(folder.glob("*.parquet")) if p.stem != "edges"}
    if (path := folder / "agents.csv").exists():
        tables[path] = read_csv(path)
    return tables


def _are_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two columns hold the same values, whatever types they are kept in."""
    if one.shape != other.shape:
        return False
    numbers = one.dtype.kind in "biuf" and other.dtype.kind in "biuf"
    return np.array_equal(one, other, equal_nan=True) if numbers else one.tolist() == other.tolist()


def read_networks(
    folder: Path, size: int, periods: bool, subfolders: Sequence[str]
) -> list[NDArray[np.int32]]:
    """Read the edge lists of a folder, the first one first.

    subfolders: names of the folders that may hold 0.csv, 1.csv, ...

    Raises: PopulationError for several networks, none in a subfolder, and damaged files.
    """
    found: list[tuple[Path, Callable[[Path], NDArray[Any]]]] = []
    for subfolder in [folder / name for name in subfolders if (folder / name).is_dir()]:
        files = [path for path in subfolder.glob("*.csv") if path.stem.isdecimal()]
        if not files:
            raise PopulationError(
                f"{subfolder}: expected edge lists 0.csv, 1.csv, ..., found none; put them there, "
                "or remove the folder for a population without a network"
            )
        files.sort(key=lambda path: int(path.stem))
        if len(files) > 1 and not periods:
            _LOG.warning(
                "%s: the network is %s; %s left alone: periods=True takes all in turn, one a step",
                *(subfolder, files[0].name, _named(files[1:])),
            )
            del files[1:]
        found += [(path, _edge_rows) for path in files]
    places: list[Path] = [path.parent for path, _ in found]
    for path, read in (
        (folder / "edges.csv", _edge_rows),
        (folder / "edges.parquet", _edge_table),
    ):
        if path.exists():
            found.append((path, read))
            places.append(path)
    if len(set(places)) > 1:
        raise PopulationError(
            f"{folder}: there are several networks: "
            f"{', '.join(str(place) for place in dict.fromkeys(places))}; remove all but one"
        )
    return [check_edges(read(path), size, str(path)) for path, read in found]


def _named(files: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in files[:3]) + (", ..." if len(files) > 3 else "")
    return f"{names} {'is' if len(files) == 1 else 'are'}"


def _edge_rows(path: Path) -> NDArray[np.int32]:
    names, columns = header_and_columns(path)
    if names is None or any(_is_number(name) for name in names if name):
        # No header: numbers only. A damaged first row is then reported with its line.
        return read_numbers(path, 2, (0, 1), False)
    return read_numbers(path, columns, _ends(names, path), True)


def _edge_table(path: Path) -> NDArray[Any]:
    table = read_parquet(path)
    names = list(table)
    src, dst = (table[names[k]] for k in _ends(names, path))
    for name, end in (("src", src), ("dst", dst)):
        if end.dtype.kind not in "iu":
            raise PopulationError(
                f"{path}: column {name!r}: expected whole numbers of agents in every row, got the "
                f"type {end.dtype}; correct the empty or other rows"
            )
    return np.stack([src, dst], axis=1)


def _ends(names: list[str], path: Path) -> tuple[int, int]:
    """Find the columns of source and target; warn of the others."""
    lowered = [name.casefold() for name in names]
    ends = [k for k, name in enumerate(lowered) if name in _SOURCES + _TARGETS]
    src, dst = column_position(names, _SOURCES), column_position(names, _TARGETS)
    if src is None or dst is None or len(ends) > 2:
        raise PopulationError(
            f"{path}: expected one column src and one dst, got {', '.join(map(repr, names))}; "
            "name them so if both hold numbers of agents"
        )
    # A table that was written with its index has a column without a name.
    others = [name for k, name in enumerate(names) if k not in ends and lowered[k] not in _INDEX]
    if others:
        _LOG.warning(
            "%s: %s not read: every row is one contact, and all count alike",
            *(path, f"{', '.join(map(repr, others))} {'is' if len(others) == 1 else 'are'}"),
        )
    return src, dst


def column_position(names: list[str] | None, options: Sequence[str]) -> int | None:
    """Find the column that has one of these names, in any case; None where none has."""
    lowered = [name.casefold() for name in names or ()]
    return next((lowered.index(option) for option in options if option in lowered), None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
