"""Observations as trees: whether two are the same, and how one departs from its space."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import Space, spaces

Aspect = Literal["shape", "dtype", "bounds"]
ARRAYS = (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)


class Mismatch(NamedTuple):
    """How a value departs from its space; a sentence, with the place."""

    aspect: Aspect
    text: str


def snapshot(tree: Any) -> Any:
    """A copy that shares nothing with `tree`."""
    return copy.deepcopy(tree)


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same values; NaN equals NaN, dtypes may differ."""
    if isinstance(one, Mapping):
        keys_agree = isinstance(other, Mapping) and one.keys() == other.keys()
        return keys_agree and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        alike = isinstance(other, tuple | list) and len(one) == len(other)
        return alike and all(map(same, one, other))
    if isinstance(one, np.ndarray) and one.dtype == object:
        return np.shape(other) == one.shape and all(map(same, one.flat, np.asarray(other).flat))
    a, b = np.asarray(one), np.asarray(other)
    numeric = a.dtype.kind in "fc" and b.dtype.kind in "fc"
    return np.array_equal(a, b, equal_nan=numeric)


def mismatches(space: Space[Any], value: Any, place: str = "") -> Iterator[Mismatch]:
    """Every way in which `value` is not of `space`, at its place in the tree."""
    where = f"{place}: " if place else ""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            got = sorted(value) if isinstance(value, Mapping) else _words(value)
            keys = sorted(space.spaces)
            yield Mismatch("shape", f"{where}expected a dict with the keys {keys}, got {got}")
            return
        for key, part in space.spaces.items():
            yield from mismatches(part, value[key], f"{place}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            count = len(space.spaces)
            yield Mismatch("shape", f"{where}expected a tuple of {count}, got {_words(value)}")
            return
        for i, part in enumerate(space.spaces):
            yield from mismatches(part, value[i], f"{place}[{i}]")
    elif isinstance(space, ARRAYS):
        yield from _array_mismatches(space, value, where)
    elif isinstance(space, spaces.Discrete):
        if not isinstance(value, int | np.integer) and not _is_whole_array(value):
            yield Mismatch("dtype", f"{where}expected a whole number, got {_words(value)}")
        elif not space.contains(value):
            yield Mismatch("bounds", f"{where}expected one of {space}, got {value}")
    elif not space.contains(value):
        yield Mismatch("shape", f"{where}expected one of {space}, got {_words(value)}")


def _array_mismatches(space: Space[Any], value: Any, where: str) -> Iterator[Mismatch]:
    if not isinstance(value, np.ndarray):
        yield Mismatch("shape", f"{where}expected a numpy array, got {_words(value)}")
        return
    if value.shape != space.shape:
        yield Mismatch("shape", f"{where}expected the shape {space.shape}, got {value.shape}")
        return
    if value.dtype != space.dtype:
        yield Mismatch("dtype", f"{where}expected {space.dtype}, got {value.dtype}")
    if isinstance(space, spaces.Box):
        outside = ~((space.low <= value) & (value <= space.high))
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            low, high = space.low[at], space.high[at]
            text = f"entry {list(at)}: expected {low} to {high}, got {value[at]}"
            yield Mismatch("bounds", where + text)
    elif not space.contains(value.astype(space.dtype)):
        yield Mismatch("bounds", f"{where}expected one of {space}, got {value}")


def _is_whole_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iu"


def _words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"
