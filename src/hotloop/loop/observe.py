"""Observing the objects that a function can reach: the content of each at one moment.

An observation walks the graph of objects from a function and its arguments, and keeps for each
object what it holds itself: references, or a checksum. What differs between two observations is
found by `hotloop.loop.compare`.
"""

import functools
import random
import sys
import time
import types
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.checksum import DeviceFloats, array_checksum, tensor_checksum
from hotloop.loop.reading import (
    PLAIN,
    Node,
    Part,
    Reader,
    attribute_parts,
    parts_within,
    reader_of,
)
from hotloop.loop.values import is_tensor, torch_if_loaded

MAX_OBJECTS = 200_000
MAX_SECONDS = 0.5

_NO_PARTS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinMethodType,
    functools.partial,
)
_GENERATORS = (
    np.random.Generator,
    np.random.BitGenerator,
    np.random.RandomState,
    random.Random,
)


@dataclass(frozen=True)
class Observation:
    """The contents at one moment; `complete` unless a limit ended the observation."""

    root: Node
    nodes: dict[int, Node | None]  # None: not looked into
    complete: bool


def call_roots(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return where the observation of a call starts: arguments, function, global generators."""
    return (
        *argument_roots(args, kwargs),
        Part("function", {_name_of(function): function}),
        *generator_roots(),
    )


def generator_roots() -> tuple[Part, ...]:
    """Return the states of the global random generators of Python, NumPy and torch."""
    return (Part("generator", _global_generators()),)


def argument_roots(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the arguments of a call, by position and by name."""
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

    covered: identities of objects whose content is put back elsewhere: an array, tensor or random
    generator among them is compared by its identity alone.
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


def parts_by_id(objects: Iterable[object]) -> dict[int, object]:
    """Return objects and their parts, through containers and attributes, by their identities.

    Functions, classes and modules are not parts: they are shared by all. As long as the mapping
    is alive no other object can get one of the identities.
    """
    found: dict[int, object] = {}
    todo = list(objects)
    while todo and len(found) < MAX_OBJECTS:
        value = todo.pop()
        if type(value) in PLAIN or isinstance(value, _NO_PARTS) or id(value) in found:
            continue
        found[id(value)] = value
        todo.extend(parts_within(value))
    return found


# --- walking -------------------------------------------------------------------------------------


class _Walk:
    """One pass over all objects that can be reached."""

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
        self._readers: dict[type, Reader] = {}

    def run(self, root: Node, max_objects: int) -> bool:
        """Look at everything; return False if a limit ended it."""
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

    def _reader(self, kind: type) -> Reader:
        if issubclass(kind, np.ndarray):
            return self._read_array
        torch: Any = torch_if_loaded()
        generators: tuple[type, ...] = _GENERATORS
        if torch is not None:
            if issubclass(kind, torch.Tensor):
                return self._read_tensor
            generators = (*generators, torch.Generator)
        return self._read_random if issubclass(kind, generators) else reader_of(kind)

    def _read_array(self, value: np.ndarray) -> Node | None:
        kind = type(value)
        if self._is_declared(value):
            return None
        if id(value) in self._covered:
            return Node(kind, id(value))
        dtype = value.dtype
        attributes = attribute_parts(value) if kind is not np.ndarray else ()
        if dtype.names is not None:  # the memory between the fields is never written
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
        parts = attribute_parts(value) if getattr(value, "__dict__", None) else ()
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
            return Node(kind, None, (Part("drawn", (value.getstate(),)), *attribute_parts(value)))
        return Node(kind, None, (Part("drawn", (value.get_state(),)),))

    def _is_declared(self, value: Any) -> bool:
        """Whether an array or tensor shares memory with a declared buffer."""
        if not self._buffers:
            return False
        return any(_may_share(value, buffer) for buffer in self._buffers)


def _may_share(value: Any, buffer: Any) -> bool:
    """Whether two arrays or tensors may share memory, by the bounds of their memory."""
    if value is buffer:
        return True
    first, second = (_as_array(each) for each in (value, buffer))
    return first is not None and second is not None and bool(np.may_share_memory(first, second))


def _as_array(value: Any) -> np.ndarray | None:
    """Return an array, or a tensor's memory as one; None where there is none to compare."""
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
    """Identities of the global generators: their states are observed, so the objects are not."""
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
