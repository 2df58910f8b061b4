"""Files that a verb is asked to write: checked before the work, and written whole."""

import csv
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hotloop.errors import SettingError
from hotloop.loop.files import atomic_output

# What else a suffix needs: a module, and how to get it.
_NEEDS = {
    ".parquet": ("pyarrow", "pip install 'hotloop[populations]', or name a .csv"),
    ".png": ("matplotlib", "pip install 'hotloop[plot]', or name a .html"),
}


def check_place(option: str, path: Path | None, suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written; nothing of it stays.

    suffixes: those that can be written; none: any. None for a path is no file, and fine.
    Raises: SettingError, naming the option.
    """
    if path is None:
        return
    if path.is_dir():
        raise SettingError(f"{option}: {path} is a folder; name a file in it")
    if suffixes and path.suffix not in suffixes:
        what = f"{path.suffix!r}" if path.suffix else "no suffix"
        raise SettingError(
            f"{option}: {path}: expected a name that ends in {' or '.join(suffixes)}, got {what}"
        )
    module, remedy = _NEEDS.get(path.suffix, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        raise SettingError(f"{option}: a {path.suffix} file needs {module}: {remedy}")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir():
        raise SettingError(f"{option}: {path} cannot be written: {folder} is not a folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        why = error.strerror or error
        raise SettingError(f"{option}: {path} cannot be written in {folder}: {why}") from None


def write_table(columns: Mapping[str, np.ndarray], path: Path, option: str) -> None:
    """Write columns of one length as CSV or parquet, by the path's suffix.

    Raises: RunError if it cannot be written; what stood there before stays as it was.
    """
    with atomic_output(path, "the results could not be written", option) as scratch:
        if path.suffix == ".parquet":
            from pyarrow import lib, parquet

            parquet.write_table(lib.Table.from_pydict(dict(columns)), scratch)
        else:
            with open(scratch, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))
