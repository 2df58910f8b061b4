"""Ages of a folder as codes of the one table: by their labels, or by what its mapping.json says.

Apart from the folder's reader because a wrong code harms without a sign: the columns of two folders
may hold the same numbers for other ages, as their codes were given in the order of the rows.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.ages import AGE_CODES
from hotloop.populations.data import whole_numbers

_LOG = logging.getLogger("hotloop")
# Where a mapping.json has the labels of the age codes, in the older and the newer of its shapes.
_PLACES = (("age",), ("field_sources", "population_fields", "age", "categorical"))


def age_codes(column: NDArray[Any], path: Path, mapping: Path) -> NDArray[np.uint8]:
    """The ages as codes of `AGE_CODES`, whatever codes the folder has.

    column: (N,), labels in any case, or codes. mapping: the folder's mapping.json, which may be
    missing; the k-th of its labels of "age" is what code k stands for. Codes without labels, or
    with labels that are not in the table, stay as they are; the latter with a warning.
    Raises: PopulationError: an unknown label, a code that is no whole number or has no label, a
    mapping that is no JSON.
    """
    where = f"{path}: column 'age'"
    if column.size == 0:
        raise PopulationError(f"{path}: there is no row; a population needs agents")
    numbers = _from_text(column, path)
    if numbers is not None:
        return whole_numbers(numbers, 255, where)
    codes = whole_numbers(_plain_numbers(column), 255, where)
    labels = _labels(mapping)
    return codes if labels is None else _translated(codes, labels, where, mapping)


def _plain_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers that are kept as objects as numbers."""
    return column.astype(np.float64) if column.dtype.kind == "O" else column


def _from_text(column: NDArray[Any], path: Path) -> NDArray[Any] | None:
    """Labels, and digits as text, as codes; None for a column of numbers."""
    if column.dtype.kind not in "OUT":
        return None
    values = column.tolist()
    if all(isinstance(value, (int, float)) for value in values):
        return None
    codes = {}
    for value in set(values):
        text = value.strip().casefold() if isinstance(value, str) else ""
        codes[value] = int(text) if text.isdecimal() else AGE_CODES.get(text, -1)
    unknown = sorted(repr(value) for value, code in codes.items() if code < 0)
    if unknown:
        raise PopulationError(
            f"{path}: column 'age': expected codes 0 to 5 or {', '.join(AGE_CODES)}, got "
            f"{', '.join(unknown[:10])}{', ...' if len(unknown) > 10 else ''}; replace them by "
            "codes"
        )
    return np.array([codes[value] for value in values], np.int64)


def _labels(mapping: Path) -> list[str] | None:
    """What the codes of the folder stand for, by code; None where it does not say."""
    if not mapping.exists():
        return None
    try:
        content = json.loads(mapping.read_bytes())
    except (OSError, RecursionError, ValueError) as error:
        raise PopulationError(
            f"{mapping}: expected JSON, in which may stand what the age codes mean: {error}; "
            "correct the file or remove it"
        ) from error
    for place in _PLACES:
        found = content
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, list):
            return [str(label) for label in found]
    return None


def _translated(
    codes: NDArray[np.uint8], labels: list[str], where: str, mapping: Path
) -> NDArray[np.uint8]:
    table = [AGE_CODES.get(label.strip().casefold(), -1) for label in labels]
    unknown = [label for label, code in zip(labels, table, strict=True) if code < 0]
    if unknown:
        _LOG.warning(
            "%s: the ages %s have no code here, which has %s; the column's codes stay as they are",
            *(mapping, ", ".join(map(repr, unknown[:10])), ", ".join(AGE_CODES)),
        )
        return codes
    if codes.max() >= len(table):
        row = int(np.argmax(codes >= len(table)))
        raise PopulationError(
            f"{where}: row {row}: code {codes[row]} has no label in {mapping}, which has "
            f"{', '.join(labels) or 'none'}; correct one of the two"
        )
    if table == list(range(len(table))):
        return codes
    _LOG.info("%s: codes as %s says: %s", where, mapping, ", ".join(labels))
    return np.array(table, np.uint8)[codes]
