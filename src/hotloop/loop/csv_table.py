"""A CSV table with a header: every line has as many values, or the message names the one that has
not. What the values mean is left to those who read it."""

import csv
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import SettingError


@dataclass(frozen=True)
class CsvTable:
    """A table as text. where: how messages about it begin. rows: the line's number in the file,
    and its values without surrounding spaces.
    """

    where: str
    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_csv(path: Path, where: str, expected: str) -> CsvTable:
    """Read a table; names of columns are in lower case, with underscores. Empty lines do not count.

    where: how messages begin, such as "--points: fit.csv"; expected: a header as an example.
    Raises: SettingError for a file that cannot be read, is no CSV file, is empty, or has a line
    with more or fewer values than its header.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [(n, row) for n, row in enumerate(csv.reader(file), 1) if any(row)]
    except OSError as error:
        raise SettingError(f"{where}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SettingError(f"{where} is no CSV file: {error}") from None
    if not rows:
        raise SettingError(f"{where} is empty; expected a header: {expected}")
    header = [name.strip().lower().replace(" ", "_") for name in rows[0][1]]
    for number, row in rows[1:]:
        if len(row) != len(header):
            raise SettingError(
                f"{where}: line {number}: expected {len(header)} values, as in the header, "
                f"got {len(row)}"
            )
    return CsvTable(where, header, [(n, [text.strip() for text in row]) for n, row in rows[1:]])
