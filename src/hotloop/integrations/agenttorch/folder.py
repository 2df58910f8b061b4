"""Population folders in AgentTorch's layout: pickled columns, disease stages, mobility networks.

Files are only read. Errors name the file, and the line or row where there is one.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.integrations.agenttorch.age_labels import translated_ages
from hotloop.integrations.agenttorch.safe_pickle import read_column
from hotloop.populations.data import PopulationData, check_length, whole_numbers
from hotloop.populations.readers import (
    FolderColumns,
    column_position,
    read_networks,
    read_tables,
)
from hotloop.populations.rows import header_and_columns, read_numbers

_LOG = logging.getLogger("hotloop")
_AGE, _STAGE = "age", "stage"
_STAGE_NAMES = (_STAGE, "stages", "disease_stage", "disease_stages")
_STAGE_FILE = "disease_stages.csv"
_MOST_STAGE = 4  # susceptible, exposed, infected, recovered, dead
_NETWORK_FOLDERS = ("mobility_networks", "networks")


def is_folder(folder: Path) -> bool:
    """Whether a folder has a file of this layout: a pickle, one of ages, stages, a mapping."""
    names = ("mapping.json", _STAGE_FILE, _NETWORK_FOLDERS[0], f"{_AGE}.parquet")
    pickles = (path for end in ("pickle", "pkl") for path in folder.glob(f"*.{end}"))
    return any((folder / name).exists() for name in names) or next(pickles, None) is not None


def read_folder(folder: Path, *, periods: bool = False) -> PopulationData:
    """Read the population of a folder in AgentTorch's layout.

    Columns: `<column>.pickle` or `.pkl` (a pandas Series or numpy array each), `<column>.parquet`
    (one column each, named by the file), `agents.parquet` or `agents.csv` (a table with a header).
    "age" must be among them, as codes or as the labels of `ages.AGE_CODES` in any case; codes mean
    what the folder's `mapping.json` says, and are translated to those of the table.
    A column may be there twice if both are equal. Left out with a warning that names it: a column
    that has not a value for each agent, a pickle that holds a table, and a table of several
    columns without "age" that has not a row for each agent.
    Network: `mobility_networks/0.csv` or `networks/0.csv`, `edges.csv` or `edges.parquet`: rows of
    src and dst, with or without a header that names them.
    Stages at the start: `disease_stages.csv`, one number per agent, with or without header and
    index; or a column of one of the names stage, stages, disease_stage, disease_stages. They come
    as the column "stage". Network and stages may be missing; other files are ignored.

    Args:
        periods: whether 1.csv, 2.csv, ... beside 0.csv are networks that take turns with it, step
            by step; else they are ignored, with a warning.

    Raises: PopulationError, naming file and line or row.
    """
    found = _columns(folder)
    columns, origin = found.columns, found.origin
    if _AGE not in columns:
        raise PopulationError(
            f"{folder}: expected a column 'age' (age.pickle, age.parquet, agents.parquet or "
            f"agents.csv), found {', '.join(sorted(columns)) or 'no column'}"
        )
    columns[_AGE] = translated_ages(columns[_AGE], origin[_AGE], folder / "mapping.json")
    size = columns[_AGE].size
    stages = _stages(folder, found, size)
    networks = read_networks(folder, size, periods, _NETWORK_FOLDERS)
    for name in _STAGE_NAMES:
        columns.pop(name, None)
    found.leave_out_other_lengths(size)
    return PopulationData(
        name=folder.resolve().name,
        columns=columns if stages is None else columns | {_STAGE: stages},
        edges=networks[0] if networks else None,
        periods=tuple(networks[1:]),
    )


def _columns(folder: Path) -> FolderColumns:
    """Collect every column of the folder and the file that it came from."""
    found = FolderColumns()
    for path in sorted([*folder.glob("*.pickle"), *folder.glob("*.pkl")]):
        values = read_column(path)
        if values is None:
            _LOG.warning(
                "%s: left out: it holds a table, and one column is expected; if its rows are the "
                "agents, write it as agents.parquet",
                path,
            )
        else:
            found.add(path.stem, values, path)
    others = {}
    for path, table in read_tables(folder).items():
        if path.stem == "agents" or len(table) == 1 or _AGE in table:
            found.add_table(table, path)
        elif table:
            others[path] = table
    for path, table in others.items():
        _add_other(table, path, found)
    return found


def _add_other(table: dict[str, NDArray[Any]], path: Path, found: FolderColumns) -> None:
    """Add a table of the agents; one of households, say, has another number of rows."""
    rows, age = len(next(iter(table.values()))), found.columns.get(_AGE)
    if age is not None and rows != age.size:
        _LOG.warning(
            "%s: left out: a table of %d rows without a column 'age', and there are %d agents",
            *(path, rows, age.size),
        )
        return
    found.add_table(table, path)


def _stages(folder: Path, columns: FolderColumns, size: int) -> NDArray[np.uint8] | None:
    found = [
        (columns.origin[name], columns.columns[name])
        for name in _STAGE_NAMES
        if name in columns.columns
    ]
    path = folder / _STAGE_FILE
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
    check_length(stages, size, f"{file}: stages", _AGE)
    return whole_numbers(stages, _MOST_STAGE, f"{file}: stages")


def _stage_rows(path: Path) -> NDArray[np.int32]:
    names, columns = header_and_columns(path)
    if columns == 1:
        return read_numbers(path, 1, (0,), names is not None)[:, 0]
    at = column_position(names, _STAGE_NAMES)
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
