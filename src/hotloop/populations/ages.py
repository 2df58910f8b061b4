"""Age groups: their labels and codes, for readers, drawn populations and models alike."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.data import whole_numbers

AGE_GROUPS = ("20t29", "30t39", "40t49", "50t64", "65a", "u19")
"""By code 0 to 5: 20 to 29, 30 to 39, 40 to 49, 50 to 64, 65 and above, 19 and under. The order is
that of most populations published for AgentTorch; its reader translates codes of another order."""

AGE_CODES = {label: code for code, label in enumerate(AGE_GROUPS)}


def age_codes(
    column: NDArray[Any], where: str, most: int = len(AGE_GROUPS) - 1
) -> NDArray[np.uint8]:
    """Convert ages to codes: labels of `AGE_CODES` in any case, or codes from 0 to `most`.

    Shapes: (N,).

    Raises: PopulationError, with `where`, for labels that are unknown and for the first row that
    is no such code.
    """
    codes = _from_labels(column, where)
    if codes is None:
        codes = column.astype(np.float64) if column.dtype.kind == "O" else column
    return whole_numbers(codes, most, where)


def has_labels(column: NDArray[Any]) -> bool:
    """Whether ages are given as text."""
    if column.dtype.kind not in "OUT":
        return False
    return not all(isinstance(value, (int, float)) for value in column.tolist())


def _from_labels(column: NDArray[Any], where: str) -> NDArray[Any] | None:
    """Codes of labels, and of digits as text; None for a column of numbers."""
    if not has_labels(column):
        return None
    values = column.tolist()
    codes = {}
    for value in set(values):
        text = value.strip().casefold() if isinstance(value, str) else ""
        codes[value] = int(text) if text.isdecimal() else AGE_CODES.get(text, -1)
    unknown = sorted(repr(value) for value, code in codes.items() if code < 0)
    if unknown:
        raise PopulationError(
            f"{where}: expected codes 0 to 5 or {', '.join(AGE_CODES)}, got "
            f"{', '.join(unknown[:10])}{', ...' if len(unknown) > 10 else ''}; replace them by "
            "codes"
        )
    return np.array([codes[value] for value in values], np.int64)
