"""Profiles as a run file holds them, and back."""

import dataclasses
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_saved(found: Any) -> dict[str, Any]:
    """A profile as JSON types."""
    return dataclasses.asdict(found)


def from_saved(kind: type[T], saved: Any) -> T:
    """The dataclass that was saved so, with the dataclasses in it.

    Raises: KeyError, TypeError or ValueError for what is no such thing.
    """
    hints = get_type_hints(kind)
    if not isinstance(saved, dict) or not _needed(kind) <= set(saved) <= set(hints):
        raise ValueError(f"expected the fields {', '.join(hints)} of a {kind.__name__}")
    return kind(**{name: _value(hints[name], each) for name, each in saved.items()})


def _needed(kind: type[Any]) -> set[str]:
    """The fields without a default: an earlier version may not have saved the others."""
    missing = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    }


def _value(kind: Any, saved: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return from_saved(kind, saved)  # type: ignore[arg-type]  # it is a class, no instance
    parts = get_args(kind)
    if get_origin(kind) is list:
        return [_value(parts[0], each) for each in saved]
    if get_origin(kind) is dict:
        return {name: _value(parts[1], each) for name, each in saved.items()}
    if type(None) in parts:
        return None if saved is None else _value(parts[0], saved)
    if not isinstance(saved, (int, float) if kind is float else kind):
        raise ValueError(f"expected a {kind.__name__}, got {saved!r}")
    return saved
