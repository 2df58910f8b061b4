"""Reading one object: its own content, and its references to others."""

import collections
import enum
import functools
import itertools
import operator
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hotloop.loop.checksum import array_checksum, saved_checksum
from hotloop.loop.code import (
    GlobalNames,
    globals_named,
    is_own_file,
    is_users,
    is_users_file,
    module_of,
)
from hotloop.loop.state import protocol_of, slots_of
from hotloop.loop.values import torch_if_loaded

# Compared as they are; everything else is looked into once.
PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis)}
    | {types.NotImplementedType}
)
# Objects of these modules change for other reasons than a call, or cannot be looked into.
_SKIPPED = frozenset(
    (
        *("_abc", "_asyncio", "_contextvars", "_frozen_importlib", "_frozen_importlib_external"),
        *("_io", "_queue", "_sre", "_ssl", "_socket", "_thread", "_weakref", "asyncio"),
        *("concurrent", "contextvars", "gc", "importlib", "inspect", "jax", "jaxlib", "llvmlite"),
        *("logging", "matplotlib", "multiprocessing", "numba", "psutil", "pygame", "pynvml"),
        *("queue", "ray", "re", "rich", "sched", "select", "selectors", "signal", "socket"),
        *("ssl", "subprocess", "tempfile", "threading", "tqdm", "triton", "typing", "wandb"),
        *("warnings", "weakref"),
    )
)
_SKIPPED_PARTS = (
    "hotloop.loop.",  # the probe is not part of what it measures
    "torch._",
    "torch.autograd.",
    "torch.cuda.",
    "torch.fx.",
    "torch.jit.",
    "torch.profiler.",
    "torch.utils.tensorboard.",
)
# A class with this attribute, if it is true, is not looked into: other processes write its objects,
# or they change by how long something took, whatever is called meanwhile.
CHANGES_BY_ITSELF = "changes_by_itself"
# Values that never change, though some keep caches in attributes.
_VALUES = frozenset(
    ("datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo")
)


class Part(NamedTuple):
    """References that an object holds: by key, or by position."""

    style: str
    values: Mapping[Any, Any] | tuple[Any, ...]


class Node(NamedTuple):
    """One object: a content that is compared as it is, and references to others."""

    kind: type
    label: Any
    parts: tuple[Part, ...] = ()


Reader = Callable[[Any], Node | None]


def items(part: Part) -> Iterable[tuple[Any, Any]]:
    """Return the references of a part, each with its key or position."""
    return enumerate(part.values) if isinstance(part.values, tuple) else part.values.items()


def references(part: Part) -> Iterable[Any]:
    """Return the references of a part."""
    return part.values if isinstance(part.values, tuple) else part.values.values()


def reader_of(kind: type) -> Reader:
    """Return how objects of a type are read, other than arrays, tensors and random generators."""
    if issubclass(kind, type):
        return _read_class
    for parents, reader in _READERS:
        if issubclass(kind, parents):
            return reader
    torch: Any = torch_if_loaded()
    if torch is not None and issubclass(kind, torch.nn.Module):
        return _read_object  # also where the module of the class is skipped
    return _reader_by_module(kind)


def parts_within(value: Any) -> Iterator[Any]:
    """Yield what an object refers to as a container and by its attributes, except its class."""
    is_container = isinstance(value, dict | list | tuple | deque | set | frozenset)
    parts = _read_container(value).parts if is_container else attribute_parts(value)
    for part in parts:
        if part.style != "class":
            yield from references(part)


def _reader_by_module(kind: type) -> Reader:
    module = module_of(kind)
    top = module.partition(".")[0]
    if top in _SKIPPED or f"{module}.".startswith(_SKIPPED_PARTS):
        return _read_nothing
    if any(vars(each).get(CHANGES_BY_ITSELF) is True for each in kind.__mro__):
        return _read_nothing
    if top in _VALUES and not issubclass(kind, (dict, list)):
        return lambda value: Node(kind, value)
    for plain in (int, float, complex, str, bytes):
        if issubclass(kind, plain):
            return lambda value: Node(kind, plain(value), attribute_parts(value))
    return _read_object


def _read_nothing(_value: Any) -> None:
    return None


def _read_object(value: Any) -> Node | None:
    """A container, an object that saves itself, one with attributes, or one with a buffer."""
    kind = type(value)
    if kind is dict:
        return Node(kind, None, _dict_parts(value))
    if kind is list or kind is tuple:
        return Node(kind, None, (Part("item", tuple(value)),))
    if issubclass(kind, dict | list | tuple | deque | set | frozenset):
        return _read_container(value)
    saved = protocol_of(value)
    if saved is not None and not isinstance(value, types.ModuleType):
        content = getattr(value, saved[0])()
        return Node(kind, None, (Part("saved", (content, saved_checksum(content))),))
    if issubclass(kind, types.MappingProxyType):
        return Node(kind, None, _dict_parts(dict(value)))
    if isinstance(value, types.ModuleType):
        return None
    parts = attribute_parts(value)
    if parts:
        return Node(kind, None, parts)
    if module_of(kind) == "builtins" and hasattr(kind, "__length_hint__"):
        return Node(kind, operator.length_hint(value))  # an iterator: how far it is
    return Node(kind, _buffer_checksum(value))


def _read_container(value: Any) -> Node:
    kind = type(value)
    attributes = attribute_parts(value)
    if isinstance(value, dict):
        return Node(kind, None, (*_dict_parts(dict.copy(value)), *attributes))
    if isinstance(value, set | frozenset):
        members = frozenset(value)
        objects = {item: item for item in members if type(item) not in PLAIN}
        return Node(kind, members, (Part("element", objects), *attributes))
    if isinstance(value, collections.deque):
        return Node(kind, value.maxlen, (Part("item", tuple(value)), *attributes))
    items = list.copy(value) if isinstance(value, list) else tuple.__iter__(value)
    return Node(kind, None, (Part("item", tuple(items)), *attributes))


def _dict_parts(content: dict[Any, Any]) -> tuple[Part, ...]:
    items = Part("item", content if type(content) is not dict else dict(content))
    keys = {key: key for key in content if type(key) not in PLAIN}
    return (items, Part("key", keys)) if keys else (items,)


def attribute_parts(value: Any) -> tuple[Part, ...]:
    """`__dict__`, slots, and the class if it is the user's."""
    kind = type(value)
    parts: list[Part] = []
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        parts.append(Part("attribute", dict.copy(held)))
    slots = {name: getattr(value, name) for name in slots_of(kind) if hasattr(value, name)}
    if slots:
        parts.append(Part("attribute", slots))
    if parts and is_users(kind):
        parts.append(Part("class", {kind.__qualname__: kind}))
    return tuple(parts)


def _buffer_checksum(value: Any) -> object:
    try:
        with memoryview(value) as view:
            return array_checksum(np.frombuffer(view, np.uint8))
    except (TypeError, ValueError, BufferError):
        return None  # compiled, and closed to readers


def _read_scalar(value: np.generic) -> Node:
    if isinstance(value, np.void) and value.dtype.hasobject:
        return Node(type(value), value.dtype, (Part("item", tuple(value.tolist())),))
    content = array_checksum(np.asarray(value), by_value=True)
    return Node(type(value), (value.dtype, content))


def _read_class(value: type) -> Node | None:
    if not is_users(value) or issubclass(value, enum.Enum):
        return None
    content = {
        name: held
        for name, held in vars(value).items()
        if isinstance(held, types.FunctionType)
        or not ((name.startswith("__") and name.endswith("__")) or name == "_abc_impl")
    }
    parents = {parent.__qualname__: parent for parent in value.__bases__ if is_users(parent)}
    return Node(type(value), None, (Part("attribute", content), Part("class", parents)))


def _read_function(value: types.FunctionType) -> Node:
    code = value.__code__
    if is_own_file(code.co_filename):  # a stage around the user's function
        wrapped = {"": value.__dict__["__wrapped__"]} if "__wrapped__" in value.__dict__ else {}
        return Node(type(value), None, (Part("member", wrapped),))
    parts = [Part("attribute", dict(value.__dict__))] if value.__dict__ else []
    if value.__closure__:
        parts.append(Part("closure", _cells(code.co_freevars, value.__closure__)))
    if is_users_file(code.co_filename):
        names = code.co_varnames[: code.co_argcount]
        defaults = value.__defaults__ or ()
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=False))
        parts.append(Part("default", given | (value.__kwdefaults__ or {})))
        parts.append(Part("global", _globals(globals_named(code), value.__globals__)))
    return Node(type(value), None, tuple(parts))


def _cells(names: Sequence[str], cells: Sequence[types.CellType]) -> dict[str, Any]:
    content = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            content[name] = cell.cell_contents
        except ValueError:
            pass  # not assigned yet
    return content


def _globals(names: GlobalNames, space: Mapping[str, Any]) -> dict[str, Any]:
    """The globals that code names; of a module of the user's, the attributes that it names."""
    found: dict[str, Any] = {}
    for name in names.loaded:
        if name not in space:
            continue
        value = space[name]
        if not isinstance(value, types.ModuleType):
            found[name] = value
        elif is_users_file(getattr(value, "__file__", None) or "<built-in>"):
            held = vars(value)
            for attribute in names.attributes:
                if attribute in held and not isinstance(held[attribute], types.ModuleType):
                    found[f"{name}.{attribute}"] = held[attribute]
    return found


def _read_method(value: types.MethodType) -> Node:
    return Node(
        type(value),
        None,
        (Part("self", {"": value.__self__}), Part("member", {"": value.__func__})),
    )


def _read_bound(value: Any) -> Node | None:
    owner = value.__self__
    if owner is None or isinstance(owner, types.ModuleType | type):
        return None
    return Node(type(value), None, (Part("self", {"": owner}),))


def _read_partial(value: Any) -> Node:
    return Node(
        type(value),
        None,
        (
            Part("member", {"": value.func}),
            Part("partial", dict(enumerate(value.args))),
            Part("partial", value.keywords),
        ),
    )


def _read_descriptor(value: Any) -> Node:
    names = ("fget", "fset", "fdel", "__func__", "func")
    held = {name: getattr(value, name) for name in names if getattr(value, name, None) is not None}
    return Node(type(value), None, (Part("member", held),))


def _read_generator(value: Any) -> Node | None:
    frame = value.gi_frame
    if value.gi_running:
        return None
    if frame is None:
        return Node(type(value), "ended")
    return Node(type(value), frame.f_lasti, (Part("local", dict(frame.f_locals)),))


_READERS: tuple[tuple[tuple[type, ...], Reader], ...] = (
    ((types.FunctionType,), _read_function),
    ((types.MethodType,), _read_method),
    ((types.BuiltinMethodType, types.MethodWrapperType), _read_bound),
    ((functools.partial,), _read_partial),
    ((property, staticmethod, classmethod, functools.cached_property), _read_descriptor),
    ((types.GeneratorType,), _read_generator),
    ((np.generic,), _read_scalar),
    ((enum.Enum,), lambda value: Node(type(value), value.name)),
    ((itertools.count,), lambda value: Node(type(value), repr(value))),
)
