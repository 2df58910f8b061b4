"""The check that a saved state is one of the learner that is to go on from it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.errors import CheckpointError


def expect_alike(saved: Any, own: Any, where: str) -> None:
    """Refuse a saved state that is not of the kind of a learner's own.

    Alike are: dicts with the same names; arrays of one type and shape; equal texts; whole numbers
    of 0 or more; finite numbers. Lists of numbers may have any length, other lists the same.

    Raises: CheckpointError, naming the part, what was expected and what was saved.
    """
    if isinstance(own, Mapping):
        if not isinstance(saved, Mapping) or saved.keys() != own.keys():
            got = ", ".join(map(str, saved)) if isinstance(saved, Mapping) else _kind(saved)
            _refuse(where, f"the parts {', '.join(own)}", got)
        for name, part in own.items():
            expect_alike(saved[name], part, f"{where}: {name}")
    elif isinstance(own, np.ndarray):
        same = isinstance(saved, np.ndarray) and (saved.dtype, saved.shape) == (
            own.dtype,
            own.shape,
        )
        if not same:
            _refuse(where, f"{own.dtype} {own.shape}", _kind(saved))
        if not np.isfinite(saved).all():
            _refuse(where, "finite numbers", "some that are not")
    elif isinstance(own, list):
        _expect_list(saved, own, where)
    elif isinstance(own, str):
        if saved != own:
            _refuse(where, repr(own), repr(saved))
    elif isinstance(own, bool) or own is None:
        if type(saved) is not type(own):
            _refuse(where, type(own).__name__, _kind(saved))
    elif isinstance(own, int):
        if type(saved) is not int or saved < 0:
            _refuse(where, "a whole number of 0 or more", repr(saved))
    elif type(saved) not in (int, float) or not np.isfinite(saved):
        _refuse(where, "a finite number", repr(saved))


def _expect_list(saved: Any, own: list[Any], where: str) -> None:
    if not isinstance(saved, list):
        _refuse(where, "a list", _kind(saved))
    numbers = all(type(item) in (int, float) for item in own)
    if not numbers and len(saved) != len(own):
        _refuse(where, f"{len(own)} entries", str(len(saved)))
    for k, item in enumerate(saved):
        expect_alike(item, 0.0 if numbers else own[k], f"{where}: {k}")


def _kind(saved: Any) -> str:
    return f"{saved.dtype} {saved.shape}" if isinstance(saved, np.ndarray) else type(saved).__name__


def _refuse(where: str, expected: str, got: str) -> None:
    raise CheckpointError(
        f"{where}: expected {expected}, got {got[:200]}; use the env, the settings and the version "
        "that it was saved with"
    )
