"""Read whole numbers from CSV files, by the million, and report the line of the first error.

Apart from the readers because it is one compiled kernel: general CSV readers are slower, fill short
rows without a warning, or do not say in which line an error is.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import PopulationError

_COMMA, _TAB, _SPACE, _NEWLINE, _RETURN, _QUOTE = b',\t \n\r"'
_MINUS, _PLUS, _POINT, _ZERO, _NINE = b"-+.09"
_E, _E_LARGE = b"eE"
_LARGEST = np.iinfo(np.int32).max

_GOOD, _NOT_A_NUMBER, _TOO_FEW, _TOO_MANY, _NOT_WHOLE, _TOO_LARGE, _CUT_SHORT = range(7)
_FAULTS = {
    _NOT_A_NUMBER: "expected a whole number",
    _TOO_FEW: "there are too few columns",
    _TOO_MANY: "there are too many columns",
    _NOT_WHOLE: "expected a whole number, with nothing behind the point",
    _TOO_LARGE: f"expected a number of at most {_LARGEST}",
    _CUT_SHORT: "the last row has no line end: the file was cut short",
}


def header_and_columns(path: Path) -> tuple[list[str] | None, int]:
    """Read the names in a CSV file's first line, None where it is numbers; and count the columns.

    Raises: PopulationError for a file that cannot be read or has no line.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            first = file.readline(65_536)
    except OSError as error:
        raise PopulationError(f"{path}: cannot be read: {error}") from error
    if not first.strip():
        raise PopulationError(f"{path}: the first line is empty; expected rows of numbers")
    separator = "\t" if "\t" in first else ","
    cells = [cell.strip().strip('"') for cell in first.lstrip("# ").rstrip("\r\n").split(separator)]
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return cells, len(cells)
    return None, len(cells)


def read_numbers(
    path: Path, columns: int, keep: tuple[int, ...], skip_header: bool
) -> NDArray[np.int32]:
    """Read the kept columns of a CSV file of whole numbers, in the order of `keep`.

    Shapes: (rows, len(keep)), int32. Separator comma or tab; blank lines pass; "3.0" and "3e0"
    are 3. Columns that are not kept may hold anything.
    Raises: PopulationError, naming the line: no number, too few or too many columns, a last row
    without its line end.
    """
    try:
        text = np.fromfile(path, np.uint8)
    except OSError as error:
        raise PopulationError(f"{path}: cannot be read: {error}") from error
    start = 3 if text[:3].tobytes() == b"\xef\xbb\xbf" else 0
    line_ends = int(np.count_nonzero(text == _NEWLINE))
    if skip_header:
        start = int(np.argmax(text == _NEWLINE)) + 1 if line_ends else text.size
    slots = np.full(columns, -1, np.int64)
    slots[list(keep)] = np.arange(len(keep))
    values = np.empty((line_ends + 1, len(keep)), np.int32)
    rows, line, at, fault = _parse(text, start, slots, values)
    if fault != _GOOD:
        raise PopulationError(
            f"{path}: line {line + int(skip_header)}: {_FAULTS[fault]}; expected {columns} "
            f"column{'s' if columns > 1 else ''}, got {_line(text, at)!r}; "
            + (
                "fetch or write the file again (a whole file ends with a line end)"
                if fault == _CUT_SHORT
                else "correct the line, or write the file again"
            )
        )
    return values[:rows] if rows == len(values) else values[:rows].copy()


def _line(text: NDArray[np.uint8], at: int) -> str:
    """Cut out the line that a position is in, 60 characters of it."""
    end = at
    while end < text.size and text[end] != _NEWLINE and end - at < 60:
        end += 1
    return text[at:end].tobytes().decode("utf-8", "replace").rstrip("\r")


def _parse(
    text: NDArray[np.uint8], start: int, slots: NDArray[np.int64], values: NDArray[np.int32]
) -> tuple[int, int, int, int]:
    """Parse all rows; returns rows read, the line and its first position, and the fault."""
    # One function: every branch moves the one position in the text.
    at, line, rows, columns = start, 1, 0, slots.size
    while at < text.size:
        line_at = at
        while at < text.size and text[at] in (_SPACE, _RETURN):
            at += 1
        if at < text.size and text[at] == _NEWLINE:  # a blank line
            at += 1
            line += 1
            continue
        if at == text.size:
            break
        for column in range(columns):
            if slots[column] >= 0:
                at, value, fault = _number(text, at)
                if fault != _GOOD:
                    unfinished = at == text.size
                    return rows, line, line_at, _CUT_SHORT if unfinished else fault
                values[rows, slots[column]] = value
            else:
                quoted = False
                while at < text.size and text[at] != _NEWLINE:
                    if text[at] == _QUOTE:
                        quoted = not quoted
                    if not quoted and text[at] in (_COMMA, _TAB):
                        break
                    at += 1
            if at == text.size:
                return rows, line, line_at, _CUT_SHORT
            if column + 1 < columns:
                if text[at] == _NEWLINE:
                    return rows, line, line_at, _TOO_FEW
                at += 1
            elif text[at] != _NEWLINE:
                return rows, line, line_at, _TOO_MANY
        at += 1
        line += 1
        rows += 1
    return rows, line, at, _GOOD


def _number(text: NDArray[np.uint8], at: int) -> tuple[int, int, int]:
    """Parse one cell; returns the position behind it, its value, and the fault.

    Zeros behind the point count only where another digit follows.
    """
    # One function: every branch moves the one position in the text, and the digits, the point and
    # the exponent change the same few numbers.
    while at < text.size and text[at] == _SPACE:
        at += 1
    negative = False
    if at < text.size and text[at] in (_MINUS, _PLUS):
        negative = text[at] == _MINUS
        at += 1
    value, exponent, zeros, digits, behind = 0, 0, 0, 0, False
    while at < text.size:
        byte = text[at]
        if _ZERO <= byte <= _NINE:
            digits += 1
            if behind and byte == _ZERO:
                zeros += 1
            else:
                for _ in range(zeros):
                    value *= 10
                    if value > 10**17:
                        return at, 0, _NOT_WHOLE
                value = value * 10 + (byte - _ZERO)
                if behind:
                    exponent -= zeros + 1
                    zeros = 0
            if value > 10**17:
                return at, 0, _TOO_LARGE
        elif byte == _POINT and not behind:
            behind = True
        else:
            break
        at += 1
    if digits == 0:
        return at, 0, _NOT_A_NUMBER
    if at < text.size and text[at] in (_E, _E_LARGE):
        at += 1
        down = False
        if at < text.size and text[at] in (_MINUS, _PLUS):
            down = text[at] == _MINUS
            at += 1
        power, digits = 0, 0
        while at < text.size and _ZERO <= text[at] <= _NINE:
            power = min(1000, power * 10 + (text[at] - _ZERO))
            digits += 1
            at += 1
        if digits == 0:
            return at, 0, _NOT_A_NUMBER
        exponent += -power if down else power
    while exponent < 0 and value != 0:
        if value % 10:
            return at, 0, _NOT_WHOLE
        value //= 10
        exponent += 1
    while exponent > 0 and 0 < value <= _LARGEST:
        value *= 10
        exponent -= 1
    if value > _LARGEST:
        return at, 0, _TOO_LARGE
    while at < text.size and text[at] in (_SPACE, _RETURN):
        at += 1
    if at < text.size and text[at] not in (_COMMA, _TAB, _NEWLINE):
        return at, 0, _NOT_A_NUMBER
    return at, -value if negative else value, _GOOD


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    _number = njit(cache=True)(_number)
    _parse = njit(cache=True)(_parse)
