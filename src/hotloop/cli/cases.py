"""Observed counts by day, from a CSV file with a header: `day,daily_infected[,daily_deaths]`.

Everything that cannot be fitted is refused here, with its line, before any work.
"""

import csv
import math
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hotloop.errors import SettingError, nearest

DAY = ("day", "date")
INFECTED = ("daily_infected", "infected", "infections", "daily_cases", "new_cases", "cases")
DEATHS = ("daily_deaths", "deaths", "new_deaths", "dead")
FEWEST_DAYS = 7


@dataclass(frozen=True)
class Cases:
    """Counts of days that follow each other; deaths: None where the file has none."""

    infected: list[float]
    deaths: list[float] | None


def read_cases(path: Path) -> Cases:
    """Read observed counts. Columns of other names are left alone, days may be left out.

    Raises: SettingError for a file that cannot be read, no column of infections (with the nearest
    name), a count that is no number, NaN, infinite or negative, a day out of order or missing,
    fewer than 7 days, and nobody infected on any.
    """
    where = f"--target: {path}"
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [(n, row) for n, row in enumerate(csv.reader(file), 1) if any(row)]
    except OSError as error:
        raise SettingError(f"{where}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SettingError(f"{where} is no CSV file: {error}") from None
    if not rows:
        raise SettingError(f"{where} is empty; expected a header: day,daily_infected")
    header = [name.strip().lower().replace(" ", "_") for name in rows[0][1]]
    infected = _column(header, INFECTED)
    if infected is None:
        raise SettingError(f"{where}: no column 'daily_infected'{_hint(header)}")
    deaths, day = _column(header, DEATHS), _column(header, DAY)
    lines = rows[1:]
    for number, row in lines:
        if len(row) != len(header):
            raise SettingError(
                f"{where}: line {number}: expected {len(header)} values, as in the header, "
                f"got {len(row)}"
            )
    if len(lines) < FEWEST_DAYS:
        raise SettingError(
            f"{where}: expected at least {FEWEST_DAYS} days, one week's rate, got {len(lines)}"
        )
    if day is not None:
        _check_days([(n, row[day]) for n, row in lines], where)
    found = Cases(
        [_count(row[infected], f"{where}: line {n}: {header[infected]}") for n, row in lines],
        None
        if deaths is None
        else [_count(row[deaths], f"{where}: line {n}: {header[deaths]}") for n, row in lines],
    )
    if not sum(found.infected):
        raise SettingError(f"{where}: nobody is infected on any day; there is nothing to fit")
    return found


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _hint(header: list[str]) -> str:
    """The column that may have been meant."""
    for name in header:
        near = nearest(name, INFECTED)
        if near.startswith("; did you mean"):
            return f"; it has {name!r}{near}"
    return f"; it has {', '.join(map(repr, header))}. Known names: {', '.join(INFECTED)}"


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
