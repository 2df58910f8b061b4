"""Observed counts by step, from a CSV file with a header, such as `day,daily_infected`.

Everything that cannot be fitted is refused here, with its line, before any work.
"""

import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError, did_you_mean
from hotloop.loop.csv_table import read_csv

if TYPE_CHECKING:
    from hotloop.sim.spec import ObservedColumn

_STEP = ("day", "date", "step", "time")


def read_observations(
    path: Path, columns: "Sequence[ObservedColumn]", fewest: int
) -> dict[str, NDArray[np.float64]]:
    """Read observed counts by output, (T,) each. Columns of other names are left alone.

    columns: those that can be fitted; the first is required. A column of days may be left out.
    Raises: SettingError for a file that cannot be read, a required column that is missing (with the
    nearest name), a count that is no number, NaN, infinite or negative, a day out of order or
    missing, fewer steps than `fewest`, and where nothing was counted in any.
    """
    where = f"--target: {path}"
    table = read_csv(path, where, f"{_STEP[0]},{columns[0].names[0]}")
    header, lines = table.header, table.rows
    places = {column.output: _place(header, column.names) for column in columns}
    for column in columns:
        if column.required and places[column.output] is None:
            hint = _hint(header, column.names)
            raise SettingError(f"{where}: no column {column.names[0]!r}{hint}")
    if len(lines) < fewest:
        raise SettingError(f"{where}: expected at least {fewest} lines of counts, got {len(lines)}")
    step = _place(header, _STEP)
    if step is not None:
        _check_days([(n, row[step]) for n, row in lines], where)
    found = {
        output: np.array([_count(row[at], f"{where}: line {n}: {header[at]}") for n, row in lines])
        for output, at in places.items()
        if at is not None
    }
    if not found[columns[0].output].sum():
        raise SettingError(
            f"{where}: {columns[0].names[0]!r} is 0 in every line; there is nothing to fit"
        )
    return found


def _place(header: list[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _hint(header: list[str], names: Sequence[str]) -> str:
    """The column that may have been meant."""
    for name in header:
        if near := did_you_mean(name, names):
            return f"; it has {name!r}{near}"
    return f"; it has {', '.join(map(repr, header))}. Known names: {', '.join(names)}"


def _count(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SettingError(f"{where}: expected a count of 0 or more, got {text.strip()!r}")
    return value


def _check_days(days: list[tuple[int, str]], where: str) -> None:
    before: int | None = None
    for number, text in days:
        try:
            day = _ordinal(text.strip())
        except ValueError:
            raise SettingError(
                f"{where}: line {number}: expected a day as a whole number or as 2020-03-01, "
                f"got {text!r}"
            ) from None
        if before is not None and day != before + 1:
            raise SettingError(
                f"{where}: line {number}: expected the day after that of the line before, got "
                f"{text.strip()!r}; write one line for every day, in order"
            )
        before = day


def _ordinal(text: str) -> int:
    if "-" in text[1:]:
        return date.fromisoformat(text).toordinal()
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)
