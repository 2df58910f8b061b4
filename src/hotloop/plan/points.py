"""Points of a cluster: where they were measured, where one is asked for, and their CSV tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import SettingError, did_you_mean
from hotloop.loop.csv_table import read_csv
from hotloop.plan.modes import STEP, Cell


@dataclass(frozen=True)
class Point:
    """One measurement. sps: env steps/s. busy: share of the machine's cores that worked, if known.

    A machine without a free core sets the pace itself, so such points are left out of a fit.
    """

    cell: Cell
    sps: float
    busy: float | None = None


@dataclass(frozen=True)
class Question:
    """A cell to forecast, with what was measured there, if it was."""

    cell: Cell
    sps: float | None = None


def read_points(path: Path) -> list[Point]:
    """Read measured points: columns nodes, cores_per_node, step_s, sps; optional mode,
    fragment_steps, busy. Other columns are left alone.

    Raises: SettingError for a file that cannot be read, a missing column, or a value that is no
    number or out of range, with its line.
    """
    found = []
    for cell, row in _rows(path, "--points", ("nodes", "cores_per_node", "step_s", "sps")):
        busy = row.optional("busy", 0.0, 1.0)
        found.append(Point(cell, row.number("sps"), busy))
    return found


def read_questions(path: Path) -> list[Question]:
    """Read the cells to forecast: columns nodes, cores_per_node, step_s; optional mode,
    fragment_steps, and sps, which the forecast is compared with.

    Raises: SettingError, as `read_points` does.
    """
    rows = _rows(path, "--predict", ("nodes", "cores_per_node", "step_s"))
    return [Question(cell, row.optional("sps")) for cell, row in rows]


def distinct(points: Sequence[Point]) -> list[Point]:
    """The points without exact repetitions, which are copies and no second measurement."""
    return list(dict.fromkeys(points))


@dataclass(frozen=True)
class _Row:
    """One line of a table, by column."""

    where: str
    values: Mapping[str, str]

    def number(self, name: str, low: float = 0.0, high: float = math.inf) -> float:
        """A finite number above `low`, or from `low` where `high` is finite."""
        text = self.values[name]
        try:
            value = float(text)
        except ValueError:
            raise SettingError(f"{self.where}: {name}: expected a number, got {text!r}") from None
        if math.isfinite(high):
            if low <= value <= high:
                return value
            raise SettingError(
                f"{self.where}: {name}: expected a number from {low:g} to {high:g}, got {text!r}"
            )
        if low < value < math.inf:
            return value
        raise SettingError(f"{self.where}: {name}: expected a number above {low:g}, got {text!r}")

    def whole(self, name: str) -> int:
        value = self.number(name)
        if value != int(value):
            raise SettingError(
                f"{self.where}: {name}: expected a whole number, got {self.values[name]!r}"
            )
        return int(value)

    def optional(self, name: str, low: float = 0.0, high: float = math.inf) -> float | None:
        return self.number(name, low, high) if self.values.get(name) else None


def _rows(path: Path, option: str, required: Sequence[str]) -> list[tuple[Cell, _Row]]:
    table = read_csv(path, f"{option}: {path}", ",".join(required))
    for name in required:
        if name not in table.header:
            hint = did_you_mean(name, [h for h in table.header if h not in required])
            raise SettingError(
                f"{table.where}: no column {name!r}{hint or '.'} Expected: {', '.join(required)}; "
                f"got: {', '.join(table.header)}"
            )
    if not table.rows:
        raise SettingError(f"{table.where}: expected at least one line below the header, got none")
    found = []
    for number, values in table.rows:
        row = _Row(f"{table.where}: line {number}", dict(zip(table.header, values, strict=True)))
        found.append((_cell(row), row))
    return found


def _cell(row: _Row) -> Cell:
    fragment_steps = row.whole("fragment_steps") if row.values.get("fragment_steps") else None
    numbers = row.whole("nodes"), row.whole("cores_per_node"), row.number("step_s")
    try:
        return Cell(*numbers, row.values.get("mode") or STEP, fragment_steps)
    except SettingError as error:
        raise SettingError(f"{row.where}: {error}") from None
