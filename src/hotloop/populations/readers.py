"""Populations out of folders: what a folder may hold, and how it becomes one population.

Every file is only read. Faults are told with the file, and with the line or row where there is
one.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.age_codes import age_codes
from hotloop.populations.data import (
    STAGES,
    PopulationData,
    amount,
    check_edges,
    check_length,
    whole_numbers,
)
from hotloop.populations.rows import header_and_columns, read_numbers
from hotloop.populations.safe_pickle import read_column
from hotloop.populations.tables import read_csv, read_parquet

_LOG = logging.getLogger("hotloop")
_SOURCES = ("src", "source", "from")
_TARGETS = ("dst", "dest", "destination", "target", "to")
_INDEX = ("", "index", "unnamed: 0")
_STAGE_NAMES = ("stage", "stages", "disease_stage", "disease_stages")
_NETWORK_FOLDERS = ("mobility_networks", "networks")


def read_folder(folder: Path, *, periods: bool = False) -> PopulationData:
    """The population that a folder holds.

    Columns: `<column>.pickle` or `.pkl` (a pandas Series or numpy array each), `<column>.parquet`
    (one column each, named by the file), `agents.parquet` or `agents.csv` (a table with a header);
    "age" must be among them, as codes or as the labels of `ages.AGE_CODES` in any case; codes mean
    what the folder's `mapping.json` says, and come as those of the table.
    A column may be there twice if both are equal. Left out with a warning that names it: a column
    that has not a value for each agent, a pickle that holds a table, and a table of several
    columns without "age" that has not a row for each agent.
    Network: `mobility_networks/0.csv` or `networks/0.csv`, `edges.csv` or `edges.parquet`: rows of
    src and dst, with or without a header that names them.
    periods: whether 1.csv, 2.csv, ... beside 0.csv are networks that take turns with it, step by
    step; they are left alone otherwise, with a warning.
    Stages at the start: `disease_stages.csv`, one number per agent, with or without header and
    index; or a column "stage". Network and stages may be missing. Other files are left alone.
    Raises: PopulationError, naming file and line or row.
    """
    if not folder.is_dir():
        kind = "a file" if folder.exists() else "nothing there"
        raise PopulationError(
            f"population {str(folder)!r}: expected a folder, got {kind}; give the folder that "
            "holds age.pickle, agents.parquet or agents.csv"
        )
    columns, origin = _columns(folder)
    if "age" not in columns:
        raise PopulationError(
            f"{folder}: expected a column 'age' (age.pickle, age.parquet, agents.parquet or "
            f"agents.csv), found {', '.join(sorted(columns)) or 'no column'}"
        )
    age = age_codes(columns["age"], origin["age"], folder / "mapping.json")
    columns["age"] = age
    stages = _stages(folder, columns, origin, age.size)
    networks = _networks(folder, age.size, periods)
    columns = {name: column for name, column in columns.items() if name not in _STAGE_NAMES}
    for name in [name for name, column in columns.items() if column.shape != age.shape]:
        _LOG.warning(
            "%s: column %r is left out: it has %s, and there are %d agents",
            *(origin[name], name, amount(columns.pop(name)), age.size),
        )
    return PopulationData(
        name=folder.resolve().name,
        columns=columns,
        edges=networks[0] if networks else None,
        stages=stages,
        periods=tuple(networks[1:]),
    )


def _columns(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Path]]:
    """Every column of the folder and the file that it came from."""
    columns: dict[str, NDArray[Any]] = {}
    origin: dict[str, Path] = {}

    def add(name: str, column: NDArray[Any], path: Path) -> None:
        if name in columns and not _are_equal(columns[name], column):
            raise PopulationError(
                f"{path}: column {name!r} is also in {origin[name]}, with other values; remove one "
                "of the two"
            )
        columns.setdefault(name, column)
        origin.setdefault(name, path)

    for path in sorted([*folder.glob("*.pickle"), *folder.glob("*.pkl")]):
        values = read_column(path)
        if values is None:
            _LOG.warning(
                "%s: left out: it holds a table, and one column is expected; if its rows are the "
                "agents, write it as agents.parquet",
                path,
            )
        else:
            add(path.stem, values, path)
    tables = {p: read_parquet(p) for p in sorted(folder.glob("*.parquet")) if p.stem != "edges"}
    if (path := folder / "agents.csv").exists():
        tables[path] = read_csv(path)
    for path, table in tables.items():
        if path.stem != "agents" and len(table) == 1:
            add(path.stem, next(iter(table.values())), path)
        elif path.stem == "agents" or "age" in table:
            for name, column in table.items():
                add(name, column, path)
    for path, table in tables.items():
        if path.stem != "agents" and len(table) > 1 and "age" not in table:
            _add_other(table, path, columns.get("age"), add)
    return columns, origin


def _add_other(
    table: dict[str, NDArray[Any]],
    path: Path,
    age: NDArray[Any] | None,
    add: Callable[[str, NDArray[Any], Path], None],
) -> None:
    """Take the columns of a table of the agents; a table of something else has other rows."""
    rows = len(next(iter(table.values())))
    if age is not None and rows != age.size:
        _LOG.warning(
            "%s: left out: a table of %d rows without a column 'age', and there are %d agents",
            *(path, rows, age.size),
        )
        return
    for name, column in table.items():
        add(name, column, path)


def _are_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two columns hold the same values, whatever types they are kept in."""
    if one.shape != other.shape:
        return False
    numbers = one.dtype.kind in "biuf" and other.dtype.kind in "biuf"
    return np.array_equal(one, other, equal_nan=True) if numbers else one.tolist() == other.tolist()


def _stages(
    folder: Path, columns: dict[str, NDArray[Any]], origin: dict[str, Path], size: int
) -> NDArray[np.uint8] | None:
    found = [(origin[name], columns[name]) for name in _STAGE_NAMES if name in columns]
    path = folder / "disease_stages.csv"
    if path.exists():
        found.append((path, _stage_rows(path)))
    if not found:
        return None
    if len(found) > 1:
        raise PopulationError(
            f"{folder}: stages are in {' and in '.join(str(file) for file, _ in found)}; "
            "remove all but one"
        )
    file, stages = found[0]
    check_length(stages, size, f"{file}: stages")
    return whole_numbers(stages, STAGES - 1, f"{file}: stages")


def _stage_rows(path: Path) -> NDArray[np.int32]:
    names, columns = header_and_columns(path)
    if columns == 1:
        return read_numbers(path, 1, (0,), names is not None)[:, 0]
    at = _position(names, _STAGE_NAMES)
    if columns == 2 and at is None:
        at = 1
    if at is None:
        raise PopulationError(
            f"{path}: expected one column of stages, got {columns}; name one of them 'stage'"
        )
    if columns > 2 or at != 1:
        return read_numbers(path, columns, (at,), True)[:, 0]
    values = read_numbers(path, 2, (0, 1), names is not None)
    wrong = values[:, 0] != np.arange(len(values))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise PopulationError(
            f"{path}: row {row}: expected the agents 0, 1, 2, ... in the first column, got "
            f"{values[row, 0]}; sort the rows by agent"
        )
    return values[:, 1]


def _networks(folder: Path, size: int, periods: bool) -> list[NDArray[np.int32]]:
    """The edge lists of the folder that are to be read, the first one first."""
    found: list[tuple[Path, Callable[[Path], NDArray[Any]]]] = []
    periodic = [folder / name for name in _NETWORK_FOLDERS if (folder / name).is_dir()]
    for subfolder in periodic:
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
    places: Sequence[Path] = [path.parent for path, _ in found]
    for path, read in (
        (folder / "edges.csv", _edge_rows),
        (folder / "edges.parquet", _edge_table),
    ):
        if path.exists():
            found.append((path, read))
            places = [*places, path]
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
        # No header: numbers only. Let a damaged first row be told as such, with its line.
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
    """Where source and target are; what stands beside them is named."""
    lowered = [name.casefold() for name in names]
    ends = [k for k, name in enumerate(lowered) if name in _SOURCES + _TARGETS]
    src, dst = _position(names, _SOURCES), _position(names, _TARGETS)
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


def _position(names: list[str] | None, options: Sequence[str]) -> int | None:
    lowered = [name.casefold() for name in names or ()]
    return next((lowered.index(option) for option in options if option in lowered), None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
