"""Ages of an AgentTorch folder as codes of our table: by their labels, or by its mapping.json.

Apart from the folder's reader because a wrong code is not noticed: two folders may hold the same
codes for different ages, as AgentTorch numbers the labels in the order in which they occur.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.ages import AGE_CODES, age_codes, has_labels

_LOG = logging.getLogger("hotloop")
# Keys to the labels of the age codes, in the older and the newer form of a mapping.json.
_LABEL_KEYS = (("age",), ("field_sources", "population_fields", "age", "categorical"))


def translated_ages(column: NDArray[Any], path: Path, mapping: Path) -> NDArray[np.uint8]:
    """Convert the ages of a folder to codes of `AGE_CODES`.

    Codes without labels, or with labels that are not in the table, stay as they are; the latter
    with a warning.

    Args:
        column: (N,), labels in any case, or codes of the folder.
        path: the file of the column.
        mapping: the folder's mapping.json, which may be missing; code k stands for the k-th of its
            labels of "age".

    Raises: PopulationError for no row, an unknown label, a code that is no whole number or has no
    label, and a mapping that is no JSON.
    """
    where = f"{path}: column 'age'"
    if column.size == 0:
        raise PopulationError(f"{path}: there is no row; a population needs agents")
    codes = age_codes(column, where, most=255)
    labels = None if has_labels(column) else _labels(mapping)
    return codes if labels is None else _translated(codes, labels, where, mapping)


def _labels(mapping: Path) -> list[str] | None:
    """Read the labels of a folder's age codes, by code; None where it has none."""
    if not mapping.exists():
        return None
    try:
        content = json.loads(mapping.read_bytes())
    except (OSError, RecursionError, ValueError) as error:
        raise PopulationError(
            f"{mapping}: expected JSON, which may list the labels of the age codes: {error}; "
            "correct the file or remove it"
        ) from error
    for keys in _LABEL_KEYS:
        found = content
        for key in keys:
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
