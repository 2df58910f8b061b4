"""The check that a saved run holds what its kind must have.

A run file may come from another version, a colleague or an editor. What does not fit is refused
before a report is drawn, so the reports need no checks of their own. It is apart from
`hotloop.report.format` because only reading a run needs it, and its type checker loads slowly.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import numpy as np
from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from hotloop.loop.run import Run
from hotloop.report.format import HOST, LARGEST, OPTIONAL_HOST, Format, Types


def problem_of(run: Run, wanted: Format) -> str | None:
    """Say what does not fit in a run: where, what was expected, what was found; None if it fits."""
    return (
        _too_large([run.host, run.settings, run.facts])
        or _misfit("host", run.host, HOST, OPTIONAL_HOST)
        or _misfit("settings", run.settings, wanted.settings, {})
        or _misfit("facts", run.facts, wanted.facts, wanted.optional_facts)
        or _dict_problem(run, wanted)
        or _array_problem(run, wanted)
        or wanted.check(run)
    )


def _too_large(value: Any) -> str | None:
    """Find a number in a tree of JSON that is too large to compute with."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next((why for part in value if (why := _too_large(part)) is not None), None)
    if isinstance(value, int | float) and not (math.isnan(value) or abs(value) < LARGEST):
        return f"expected numbers below {LARGEST:.0e} in size, got {value!r}"
    return None


def _misfit(where: str, values: Mapping[str, Any], needed: Types, optional: Types) -> str | None:
    """Say which of the named values is missing or has another type, if one has."""
    for name in needed:
        if name not in values:
            return f"{where}: it has no {name!r}"
    for name, kind in {**optional, **needed}.items():
        if name in values and (why := _wrong(values[name], kind)) is not None:
            return f"{where}: {name}: {why}"
    return None


def _dict_problem(run: Run, wanted: Format) -> str | None:
    found = (
        _misfit(name, run.facts[name], needed, optional)
        for name, (needed, optional) in wanted.dict_facts.items()
    )
    return next((why for why in found if why is not None), None)


def _wrong(value: Any, kind: Any) -> str | None:
    """Why a value is not of a type, or breaks the rule of an `Annotated` type; None if it fits."""
    rules = [part for part in (kind, *get_args(kind)) if get_origin(part) is Annotated]
    try:
        check_type(value, kind, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except TypeCheckError as error:
        return " ".join(str(error).split())
    for expected, holds in (get_args(rule)[1] for rule in rules if value is not None):
        if isinstance(value, bool) or not holds(value):
            return f"expected a number {expected}, got {value!r}"
    return None


# What the numbers of an array may be: NumPy's kinds, and in words.
_NUMBERS = {
    "count": ("iu", "whole numbers of 0 or more"),
    "int": ("iu", "whole numbers"),
    "amount": ("iuf", "numbers of 0 or more"),
    "real": ("iuf", "finite numbers"),
    "rate": ("iuf", "numbers of 0 or more, or NaN"),
    "any": ("iuf", "finite numbers or NaN"),
    "bool": ("b", "true or false"),
}


def _array_problem(run: Run, wanted: Format) -> str | None:
    sizes = {name: len(fact) for name, fact in run.facts.items() if isinstance(fact, list)}
    required = {**wanted.arrays, **wanted.run_arrays(run)}
    optional = {**wanted.optional_arrays, **wanted.optional_run_arrays(run)}
    for name, described in {**optional, **required}.items():
        array = run.arrays.get(name)
        if array is None:
            if name in required:
                return f"arrays: it has no {name!r}"
            continue
        numbers, *dimensions = described.split()
        if array.dtype.kind not in (_NUMBERS[numbers][0] if array.size else "iufb"):
            return f"arrays: {name}: expected {_NUMBERS[numbers][1]}, got {array.dtype}"
        if array.ndim != len(dimensions):
            return f"arrays: {name}: expected {len(dimensions)} dimensions, got {array.ndim}"
        for size, of in zip(array.shape, dimensions, strict=True):
            expected = int(of) if of.isdigit() else sizes.setdefault(of, size)
            if size != expected:
                return f"arrays: {name}: expected {expected} {of}, got {size}"
        if not _are(array, numbers):
            return f"arrays: {name}: expected {_NUMBERS[numbers][1]}"
    return None


def _are(array: np.ndarray, numbers: str) -> bool:
    """Whether all numbers of an array are what `numbers` says."""
    if numbers in ("any", "rate"):
        array = array[~np.isnan(array)]
    least = -LARGEST if numbers in ("int", "real", "any") else 0
    return bool(((array >= least) & (array < LARGEST)).all())
