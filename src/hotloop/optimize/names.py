"""The values of names in a running function, without running any code of the user."""

import inspect
import types
from collections.abc import Mapping
from typing import Any

ABSENT: Any = object()


def value_of(chain: str, frame: types.FrameType) -> Any:
    """The value of names and dots, such as "self.batch", where a frame is; ABSENT if unknown.

    Properties are not called. A comprehension's frame sees the names of the function around it.
    """
    name, *attributes = chain.split(".")
    value = _value(name, frame)
    for attribute in attributes:
        if value is ABSENT:
            break
        value = _attribute(value, attribute)
    return value


def _value(name: str, frame: types.FrameType) -> Any:
    at: types.FrameType | None = frame
    while at is not None:
        values = at.f_locals
        if name in values:
            return values[name]
        if not at.f_code.co_name.endswith("comp>"):
            break
        at = at.f_back
    return frame.f_globals.get(name, ABSENT)


def _attribute(value: Any, name: str) -> Any:
    own = getattr(value, "__dict__", {})
    # Modules of torch hold some of their attributes in dictionaries of their own.
    for holder in (own, *(own.get(each) for each in ("_parameters", "_buffers", "_modules"))):
        if isinstance(holder, Mapping) and name in holder:
            return holder[name]
    held = inspect.getattr_static(type(value), name, ABSENT)
    if isinstance(held, types.MemberDescriptorType):  # a slot
        return getattr(value, name, ABSENT)
    return ABSENT if hasattr(type(held), "__get__") else held
