"""Observing what a function can reach: the content of every object, and what differs later.

An observation walks the graph of objects from a function and its arguments, and keeps for each
object what it holds itself: references, or a checksum. Two observations are compared by walking
both at once. So an object that was exchanged for an equal one does not count as a change, and only
what differs is given a path.
"""

import collections
import enum
import functools
import itertools
import operator
import random
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hotloop.loop.checksum import DeviceFloats, array_checksum, saved_checksum, tensor_checksum
from hotloop.loop.code import GlobalNames, globals_named, is_own_file, is_users, is_users_file
from hotloop.loop.state import protocol_of, slots_of
from hotloop.loop.values import is_tensor, torch_if_loaded

MAX_OBJECTS = 200_000
MAX_SECONDS = 0.5

# Compared as they are; everything else is looked into once.
PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis)}
    | {types.NotImplementedType}
)
# Objects of these modules change for reasons of their own, or cannot be seen into.
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
# Values that never change, though some keep caches in attributes.
_VALUES = frozenset(
    ("datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo")
)
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_NO_PARTS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinMethodType,
    functools.partial,
)
_DESCRIPTORS = (property, staticmethod, classmethod, functools.cached_property)


class Part(NamedTuple):
    """References that an object holds: by key, or by position."""

    style: str
    values: Mapping[Any, Any] | tuple[Any, ...]


class Node(NamedTuple):
    """What one object holds itself: a content that is compared as it is, and references."""

    kind: type
    label: Any
    parts: tuple[Part, ...] = ()


class Link(NamedTuple):
    """One reference on the way to an object."""

    above: "Link | None"
    style: str
    key: Any


@dataclass(frozen=True)
class Difference:
    """Where two observations differ.

    path: of what differs; owner: of the object that holds it. kind: the owner's type.
    style: how the path begins, such as "argument", "closure" or "global".
    drawn: whether it is the state of a random generator.
    """

    path: str
    owner: str
    kind: type
    style: str
    drawn: bool


@dataclass(frozen=True)
class Observation:
    """What was seen at one moment; `complete` unless the limits ended it early."""

    root: Node
    nodes: dict[int, Node | None]  # None: not looked into
    complete: bool


def call_roots(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Part, ...]:
    """Where the observation of a call starts: its arguments, its function, global generators."""
    return (
        *argument_roots(args, kwargs),
        Part("function", {_name_of(function): function}),
        Part("generator", _global_generators()),
    )


def argument_roots(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Part, ...]:
    """The arguments of a call, by position and by name."""
    return (Part("argument", dict(enumerate(args))), Part("argument", dict(kwargs)))


def observe(
    roots: tuple[Part, ...],
    *,
    covered: Collection[int] = frozenset(),
    exempt: Collection[int] = frozenset(),
    buffers: Sequence[Any] = (),
    classes: Collection[type] = (),
    as_output: bool = False,
    max_objects: int = MAX_OBJECTS,
    max_seconds: float = MAX_SECONDS,
) -> Observation:
    """Look at everything that can be reached from `roots`, nearest first.

    covered: identities of objects whose content is put back by others: an array, tensor or random
    generator among them is told by its identity alone.
    exempt: identities of objects that are not looked into, nor what only they lead to.
    buffers: arrays and tensors; what shares memory with them is not looked at.
    classes: looked at as well, for what their methods lead to.
    as_output: numbers are compared by value, so that NaN equals NaN and 0.0 equals -0.0; on a GPU,
    where sums are added up in any order, up to rounding.
    """
    walk = _Walk(covered, frozenset(exempt) | _global_generator_ids(), buffers, as_output)
    walk.deadline = time.perf_counter() + max_seconds
    root = Node(object, None, (*roots, Part("class", {c.__qualname__: c for c in classes})))
    complete = walk.run(root, max_objects)
    return Observation(root, walk.nodes, complete)


def differences(
    before: Observation, after: Observation, *, may_change: Collection[int] = frozenset()
) -> Iterator[Difference]:
    """What differs, nearest to the roots first, each path once.

    may_change: identities of objects that may hold something else than before; what they held
    and still hold is compared. The global random generators are not, then.
    What only one of the two has seen, because a limit ended the other, is left out.
    """
    return _Comparison(before, after, may_change).run()


def ids_within(objects: Iterable[object]) -> set[int]:
    """The identities of objects and of their parts, through containers and attributes.

    Functions, classes and modules are not parts: they belong to everybody.
    """
    found: set[int] = set()
    todo = list(objects)
    while todo and len(found) < MAX_OBJECTS:
        value = todo.pop()
        if type(value) in PLAIN or isinstance(value, _NO_PARTS) or id(value) in found:
            continue
        found.add(id(value))
        if isinstance(value, dict | list | tuple | deque | set | frozenset):
            parts = _read_container(value).parts
        else:
            parts = _attributes(value)
        for part in parts:
            if part.style != "class":
                todo.extend(_held(part))
    return found


# --- walking -------------------------------------------------------------------------------------


class _Walk:
    """One pass over what can be reached."""

    def __init__(
        self,
        covered: Collection[int],
        exempt: Collection[int],
        buffers: Sequence[Any],
        as_output: bool,
    ) -> None:
        self.nodes: dict[int, Node | None] = {}
        self.deadline = 0.0
        self._covered, self._exempt, self._buffers = covered, exempt, buffers
        self._as_output = as_output
        self._readers: dict[type, Callable[[Any], Node | None]] = {}

    def run(self, root: Node, max_objects: int) -> bool:
        """Look at everything; False if a limit ended it."""
        todo = deque([root])
        nodes = self.nodes
        count = 0
        while todo:
            for part in todo.popleft().parts:
                values = part.values
                for value in values if type(values) is tuple else values.values():  # type: ignore[union-attr]
                    count += 1
                    # A list of plain numbers costs time too, though none is an object to look at.
                    if not count & 255 and time.perf_counter() > self.deadline:
                        return False
                    if type(value) in PLAIN or id(value) in nodes:
                        continue
                    if len(nodes) >= max_objects or time.perf_counter() > self.deadline:
                        return False
                    node = self._look(value)
                    nodes[id(value)] = node
                    if node is not None and node.parts:
                        todo.append(node)
        return True

    def _look(self, value: Any) -> Node | None:
        if id(value) in self._exempt:
            return None
        kind = type(value)
        reader = self._readers.get(kind)
        if reader is None:
            reader = self._readers[kind] = self._reader(kind)
        try:
            return reader(value)
        except Exception:
            return None  # an object that does not let itself be read, such as a lazy proxy

    def _reader(self, kind: type) -> Callable[[Any], Node | None]:
        """How objects of this type are read."""
        if issubclass(kind, type):
            return _read_class
        for parents, reader in (
            (types.FunctionType, _read_function),
            (types.MethodType, _read_method),
            (_BOUND, _read_bound),
            (functools.partial, _read_partial),
            (_DESCRIPTORS, _read_descriptor),
            (types.GeneratorType, _read_generator),
            (np.ndarray, self._read_array),
            (np.generic, _read_scalar),
            ((np.random.Generator, np.random.RandomState, random.Random), self._read_random),
            (np.random.BitGenerator, self._read_random),
            (enum.Enum, lambda value: Node(kind, value.name)),
            (itertools.count, lambda value: Node(kind, repr(value))),
        ):
            if issubclass(kind, parents):
                return reader
        torch: Any = torch_if_loaded()
        if torch is not None:
            if issubclass(kind, torch.Tensor):
                return self._read_tensor
            if issubclass(kind, torch.Generator):
                return self._read_random
            if issubclass(kind, torch.nn.Module):
                return _read_object
        return _reader_by_module(kind)

    def _read_array(self, value: np.ndarray) -> Node | None:
        kind = type(value)
        if self._is_declared(value):
            return None
        if id(value) in self._covered:
            return Node(kind, id(value))
        dtype = value.dtype
        attributes = _attributes(value) if kind is not np.ndarray else ()
        if dtype.names is not None:  # between the fields lies memory that nobody writes
            fields = {name: value[name] for name in dtype.names}
            return Node(kind, (dtype, value.shape), (Part("item", fields), *attributes))
        if dtype.hasobject or dtype.kind == "T":
            items = tuple(value.ravel().tolist())
            return Node(kind, (dtype, value.shape), (Part("item", items), *attributes))
        content = array_checksum(value, by_value=self._as_output)
        return Node(kind, (dtype, value.shape, content), attributes)

    def _read_tensor(self, value: Any) -> Node | None:
        kind = type(value)
        if self._is_declared(value):
            return None
        if id(value) in self._covered:
            return Node(kind, id(value))
        facts = (value.dtype, tuple(value.shape), str(value.device), value.requires_grad)
        parts = _attributes(value) if getattr(value, "__dict__", None) else ()
        if value.is_leaf and value.grad is not None:
            parts = (Part("attribute", {"grad": value.grad}), *parts)
        if self._as_output and value.device.type != "cpu" and value.is_floating_point():
            return Node(kind, (*facts, DeviceFloats(value)), parts)
        return Node(kind, (*facts, tensor_checksum(value, by_value=self._as_output)), parts)

    def _read_random(self, value: Any) -> Node | None:
        kind = type(value)
        if id(value) in self._covered:
            return Node(kind, id(value))
        if isinstance(value, np.random.Generator):
            return Node(kind, None, (Part("drawn", (value.bit_generator.state,)),))
        if isinstance(value, np.random.BitGenerator):
            return Node(kind, None, (Part("drawn", (value.state,)),))
        if isinstance(value, np.random.RandomState):
            return Node(kind, None, (Part("drawn", (value.get_state(legacy=False),)),))
        if isinstance(value, random.Random):
            return Node(kind, None, (Part("drawn", (value.getstate(),)), *_attributes(value)))
        return Node(kind, None, (Part("drawn", (value.get_state(),)),))

    def _is_declared(self, value: Any) -> bool:
        """Whether an array or tensor shares memory with a declared buffer."""
        if not self._buffers:
            return False
        return any(_may_share(value, buffer) for buffer in self._buffers)


def _reader_by_module(kind: type) -> Callable[[Any], Node | None]:
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    top = module.partition(".")[0]
    if top in _SKIPPED or f"{module}.".startswith(_SKIPPED_PARTS):
        return _read_nothing
    if top in _VALUES and not issubclass(kind, (dict, list)):
        return lambda value: Node(kind, value)
    for plain in (int, float, complex, str, bytes):
        if issubclass(kind, plain):
            return lambda value: Node(kind, plain(value), _attributes(value))
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
        return Node(kind, saved_checksum(content), (Part("saved", (content,)),))
    if issubclass(kind, types.MappingProxyType):
        return Node(kind, None, _dict_parts(dict(value)))
    if isinstance(value, types.ModuleType):
        return None
    parts = _attributes(value)
    if parts:
        return Node(kind, None, parts)
    if kind.__module__ == "builtins" and hasattr(kind, "__length_hint__"):
        return Node(kind, operator.length_hint(value))  # an iterator: how far it is
    return Node(kind, _buffer_checksum(value))


def _read_container(value: Any) -> Node:
    kind = type(value)
    attributes = _attributes(value)
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


def _attributes(value: Any) -> tuple[Part, ...]:
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


def _may_share(value: Any, buffer: Any) -> bool:
    """Whether two arrays or tensors may share memory, by the bounds of what they span."""
    if value is buffer:
        return True
    first, second = (_as_array(each) for each in (value, buffer))
    return first is not None and second is not None and bool(np.may_share_memory(first, second))


def _as_array(value: Any) -> np.ndarray | None:
    """An array, or a tensor's memory as one; None where there is none to compare."""
    if not is_tensor(value):
        return value if isinstance(value, np.ndarray) else None
    if value.device.type != "cpu":
        return None
    try:
        shared: np.ndarray = value.detach().numpy()
        return shared
    except (TypeError, RuntimeError):
        return None


# --- global random generators --------------------------------------------------------------------


def _global_generators() -> dict[str, Any]:
    found: dict[str, Any] = {
        "Python's global generator": random.getstate(),
        "NumPy's global generator": np.random.get_state(legacy=False),
    }
    torch: Any = torch_if_loaded()
    if torch is not None:
        found["torch's global generator"] = torch.get_rng_state()
        if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
            found["torch's generators of CUDA"] = torch.cuda.get_rng_state_all()
    return found


def _global_generator_ids() -> frozenset[int]:
    """Known by their states already: no second finding for the objects."""
    torch: Any = torch_if_loaded()
    python, numpy = (getattr(f, "__self__", None) for f in (random.random, np.random.rand))
    found = [python, numpy, getattr(numpy, "_bit_generator", None)]
    if torch is not None:
        found.append(torch.default_generator)
    return frozenset(id(generator) for generator in found if generator is not None)


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.FunctionType):
        return function.__name__
    return "self"


# --- comparing -----------------------------------------------------------------------------------


class _Comparison:
    """Two observations, walked at once."""

    def __init__(
        self, before: Observation, after: Observation, may_change: Collection[int]
    ) -> None:
        self._before, self._after, self._may_change = before, after, may_change
        self._todo: deque[tuple[Node, Node, Link | None]] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._told: set[str] = set()

    def run(self) -> Iterator[Difference]:
        self._todo.append((self._before.root, self._after.root, None))
        while self._todo:
            before, after, link = self._todo.popleft()
            for first, second in zip(before.parts, after.parts, strict=False):
                if self._may_change and first.style == "generator":
                    continue
                for found in self._part(first, second, link, before.kind):
                    difference = _difference(found, link, before.kind)
                    if difference.path not in self._told:
                        self._told.add(difference.path)
                        yield difference

    def _part(
        self, first: Part, second: Part, link: Link | None, kind: type
    ) -> Iterator[Link | None]:
        """Compare references that belong together; yields the ways to what differs."""
        style = first.style
        if isinstance(first.values, tuple) or isinstance(second.values, tuple):
            assert isinstance(first.values, tuple)
            assert isinstance(second.values, tuple)
            if len(first.values) != len(second.values):
                yield link
                return
            pairs: Any = zip(itertools.count(), first.values, second.values)
        else:
            only = [key for key in first.values if key not in second.values]
            only += [key for key in second.values if key not in first.values]
            for key in only:
                if style == "attribute" and _is_cache(kind, key):
                    continue
                yield Link(link, style, key)
                if style != "attribute":
                    break
            pairs = (
                (key, value, second.values[key])
                for key, value in first.values.items()
                if key in second.values
            )
        for key, value, other in pairs:
            if value is other and type(value) in PLAIN:
                continue
            if not self._equal(value, other, (link, style, key)):
                yield Link(link, style, key)
                if isinstance(first.values, tuple):
                    return  # one of many elements is enough to name

    def _equal(self, value: Any, other: Any, way: tuple[Link | None, str, Any]) -> bool:
        """Whether two objects hold the same themselves; what they refer to comes later."""
        if type(value) in PLAIN or type(other) in PLAIN:
            return type(value) is type(other) and (
                value == other or (value != value and other != other)
            )
        pair = (id(value), id(other))
        if pair in self._seen:
            return True
        self._seen.add(pair)
        if value is other and id(value) in self._may_change:
            self._follow_what_stayed(value, Link(*way))
            return True
        if id(value) not in self._before.nodes or id(other) not in self._after.nodes:
            return True  # a limit ended one of the two before it came here
        node, later = self._before.nodes[id(value)], self._after.nodes[id(other)]
        if node is None or later is None:
            return node is later
        if node.kind is not later.kind or len(node.parts) != len(later.parts):
            return False
        if node.label is not later.label and node.label != later.label:
            return False
        styles = [part.style for part in node.parts]
        if styles != [part.style for part in later.parts]:
            return False
        if node.parts:
            self._todo.append((node, later, Link(*way)))
        return True

    def _follow_what_stayed(self, value: Any, link: Link) -> None:
        """Go on to what an object held before and still holds."""
        node, later = (seen.nodes.get(id(value)) for seen in (self._before, self._after))
        if node is None or later is None:
            return
        still = {id(held) for part in later.parts for held in _held(part)}
        parts = tuple(
            Part(part.style, {key: held for key, held in _items(part) if id(held) in still})
            for part in node.parts
        )
        self._todo.append((Node(node.kind, None, parts), Node(node.kind, None, parts), link))


def _is_cache(kind: type, name: str) -> bool:
    """Whether an attribute comes to be when it is first asked for, and then stays."""
    return isinstance(getattr(kind, name, None), functools.cached_property)


def _items(part: Part) -> Iterable[tuple[Any, Any]]:
    return enumerate(part.values) if isinstance(part.values, tuple) else part.values.items()


def _held(part: Part) -> Iterable[Any]:
    return part.values if isinstance(part.values, tuple) else part.values.values()


def _difference(found: Link | None, owner: Link | None, kind: type) -> Difference:
    assert found is not None
    styles = []
    link: Link | None = found
    while link is not None:
        styles.append(link.style)
        link = link.above
    start = next((style for style in styles if style in _ABSOLUTE), styles[-1])
    drawn = "drawn" in styles or "generator" in styles
    return Difference(path_of(found), path_of(owner), kind, start, drawn)


_ABSOLUTE = ("argument", "partial", "default", "closure", "global", "class", "generator")


def path_of(link: Link | None) -> str:
    """The way to an object as a reader would write it, such as `self.env.steps`."""
    steps: list[Link] = []
    while link is not None:
        if link.style in ("saved", "drawn", "generator"):
            steps.clear()  # the object whose state it is says enough
        if link.style not in ("saved", "drawn"):
            steps.append(link)
            if link.style in _ABSOLUTE:
                break
        link = link.above
    path = ""
    for style, key in ((step.style, step.key) for step in reversed(steps)):
        if style == "attribute":
            path = f"{path}.{key}"
        elif style == "item":
            path = f"{path}[{key!r}]" if type(key) in PLAIN else f"{path}[…]"
        elif style == "self":
            path = f"{path}.__self__" if path and steps[-1].style != "function" else "self"
        elif style in _ABSOLUTE:
            path = str(key) if style == "generator" else f"{style} {key}"
        elif style in ("function", "output"):
            path = str(key) or style
        elif style in ("key", "element", "local"):
            path = f"{path} {style}" if style != "local" else f"{path} local {key}"
    return path
