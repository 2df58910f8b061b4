"""Read columns from parquet and CSV tables with pyarrow, which is imported only here.

Apart from the folder's reader so that a folder of pickles needs no extra package.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError


def read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    """Read the columns of a parquet file, by name, each (N,), without a stored index.

    Integers with a value missing come as floats with NaN, dictionaries as their values.
    Raises: PopulationError for a file that is damaged, or without pyarrow.
    """
    parquet, arrow = _pyarrow(path, "pyarrow.parquet")
    try:
        table = parquet.ParquetFile(path).read(use_threads=False)
        return _columns(path, table, arrow)
    except (OSError, arrow.ArrowException) as error:
        raise PopulationError(
            f"{path}: cannot be read as parquet: {error}; write the file again"
        ) from error


def read_csv(path: Path) -> dict[str, NDArray[Any]]:
    """Read the columns of a CSV file with a header, by name, each (N,).

    Raises: PopulationError, with the row, for a row with more or fewer columns than the header,
    for a last row without its line end (a file cut short), and without pyarrow.
    """
    csv, arrow = _pyarrow(path, "pyarrow.csv")
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            if file.tell():
                file.seek(-1, 2)
            if file.read(1) != b"\n":
                raise PopulationError(
                    f"{path}: the last row has no line end: the file was cut short; fetch or "
                    "write it again (a whole file ends with a line end)"
                )
        # One thread: only then does an error say in which row it is.
        table = csv.read_csv(path, read_options=csv.ReadOptions(use_threads=False))
        return _columns(path, table, arrow)
    except (OSError, arrow.ArrowException) as error:
        raise PopulationError(
            f"{path}: cannot be read as CSV with a header: {error}; correct the row"
        ) from error


def _columns(path: Path, table: Any, arrow: ModuleType) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.startswith("__index_level_") or not name:
            continue
        if name in columns:
            raise PopulationError(
                f"{path}: column {name!r} is there twice; remove or rename one of the two"
            )
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns[name] = np.array(column.to_numpy())  # our own, writable
    return columns


def _pyarrow(path: Path, module: str) -> tuple[ModuleType, ModuleType]:
    import importlib

    try:
        return importlib.import_module(module), importlib.import_module("pyarrow")
    except ImportError as error:
        raise PopulationError(
            f"{path}: reading this file needs pyarrow: pip install 'hotloop[populations]'"
        ) from error
