"""Saving the state of a loop and putting it back, bit for bit and in place.

A snapshot walks the graph of objects from what was declared and keeps a shallow copy of every
mutable one. Restoring puts the contents back into the same objects, so that every reference in the
loop's code stays valid: an env is still the one that its vector env steps, a parameter the one that
its optimiser updates. The random generators of Python, NumPy and
torch are always part of it.
"""

import collections
import random
import sys
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hotloop.errors import StateError
from hotloop.loop.code import module_of, name_of_class
from hotloop.loop.foreign_state import SAVERS, Restore, is_of_processes
from hotloop.loop.values import ATOMS, is_tensor, torch_if_loaded

# Pairs of methods with which an object saves and restores itself, the first that fits.
PROTOCOLS = (("get_state", "set_state"), ("clone_state", "restore_state"))
# state_dict is asked of objects that are not torch's own: the graph of a module or an optimiser
# is exact where its state_dict is not (gradients, buffers that do not persist, empty state).
STATE_DICT = ("state_dict", "load_state_dict")

_SHARED = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MappingProxyType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    types.UnionType,
    property,
    staticmethod,
    classmethod,
    np.dtype,
    np.ufunc,
    np.generic,
    weakref.ref,
    frozenset,
)


@dataclass(frozen=True)
class Unsupported:
    """A part of declared state that cannot be saved and put back."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Snapshot:
    """The contents of declared objects at one moment.

    objects: every object that it covers. saved_by_themselves: those of them that have methods to
    save and restore themselves, with all of their parts.
    Raises: StateError, listing every part that cannot be saved.
    """

    def __init__(self, state: Iterable[object]) -> None:
        walk = _Walk()
        for position, declared in enumerate(state):
            walk.visit(declared, f"state[{position}] ({type(declared).__name__})")
        walk.run()
        if walk.unsupported:
            raise StateError(
                "state that cannot be saved and put back:\n  "
                + "\n  ".join(by_reason(walk.unsupported))
                + "\ngive the object get_state() and set_state(), or take it out of the state and "
                "declare the stages that change it effectful"
            )
        self.objects = walk.objects
        self.saved_by_themselves = walk.saved_by_themselves
        self._restores = walk.restores
        self._generators = _save_generators()

    def restore(self) -> None:
        """Put every content back; the snapshot can be restored again."""
        for restore in self._restores:
            restore()
        for restore in self._generators:
            restore()


def unsupported_parts(state: Iterable[object]) -> list[Unsupported]:
    """Return the parts of `state` that a snapshot would refuse, without keeping a copy."""
    return [fault for n, declared in enumerate(state) for fault in faults_in(declared, n)]


def faults_in(declared: object, position: int) -> list[Unsupported]:
    """Return those of one declared object; `position`: which of the state it is."""
    walk = _Walk()
    walk.visit(declared, f"state[{position}] ({type(declared).__name__})")
    walk.run()
    return walk.unsupported


def by_reason(faults: Iterable[Unsupported]) -> list[str]:
    """Say the faults in one line for each reason: an engine may hold hundreds of equal parts."""
    paths: dict[str, list[str]] = {}
    for fault in faults:
        paths.setdefault(fault.reason, []).append(fault.path)
    return [
        f"{first}{f' and {len(others)} more' if others else ''}: {reason}"
        for reason, (first, *others) in paths.items()
    ]


def reachable(state: Iterable[object]) -> list[object]:
    """Return all objects that a snapshot of `state` covers."""
    walk = _Walk()
    for declared in state:
        walk.visit(declared, "")
    walk.run()
    return walk.objects


def reachable_ids(state: Iterable[object]) -> set[int]:
    """Return the identities of all objects that a snapshot of `state` covers."""
    return set(map(id, reachable(state)))


class _Walk:
    """One pass over an object graph, collecting how to restore each mutable object."""

    def __init__(self) -> None:
        self.restores: list[Restore] = []
        self.unsupported: list[Unsupported] = []
        self.seen: set[int] = set()
        self.objects: list[object] = []  # ids stay unique while their objects live
        self.saved_by_themselves: list[object] = []
        self._todo: list[tuple[Any, str]] = []

    def visit(self, value: Any, path: str) -> None:
        if isinstance(value, (*ATOMS, *_SHARED)) or id(value) in self.seen:
            return
        if module_of(type(value)).startswith("hotloop.loop."):
            return  # the probe is not part of what it measures
        self.seen.add(id(value))
        self.objects.append(value)
        self._todo.append((value, path))

    def run(self) -> None:
        while self._todo:
            value, path = self._todo.pop()
            self._save(value, path)

    def _save(self, value: Any, path: str) -> None:
        if isinstance(value, np.ndarray):
            self._save_array(value, path)
        elif is_tensor(value):
            self._save_tensor(value, path)
        elif isinstance(value, np.random.Generator):
            self._save_bits(value.bit_generator)
        elif isinstance(value, np.random.BitGenerator):
            self._save_bits(value)
        elif isinstance(value, np.random.RandomState):
            legacy = value.get_state(legacy=False)
            self.restores.append(lambda: value.set_state(legacy))
        elif isinstance(value, random.Random):
            python = value.getstate()
            self.restores.append(lambda: value.setstate(python))
        elif isinstance(value, dict):
            self._save_dict(value, path)
        elif isinstance(value, list | collections.deque):
            self._save_sequence(value, path)
        elif isinstance(value, set):
            members = set(value)

            def restore_set() -> None:
                value.clear()
                value.update(members)

            self.restores.append(restore_set)
        elif isinstance(value, bytearray):
            content = bytes(value)
            self.restores.append(lambda: value.__setitem__(slice(None), content))
        elif isinstance(value, tuple):
            for position, item in enumerate(value):
                self.visit(item, f"{path}[{position}]")
            self._save_attributes(value, path)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__, f"{path}.__self__")
        else:
            self._save_object(value, path)

    def _save_array(self, value: np.ndarray, path: str) -> None:
        if value.dtype == object:
            items = value.copy()
            for item in items.ravel():
                self.visit(item, f"{path}[…]")
            self.restores.append(lambda: np.copyto(value, items))
        elif value.flags.writeable:
            content = value.copy()
            self.restores.append(lambda: np.copyto(value, content))

    def _save_tensor(self, value: Any, path: str) -> None:
        if value.grad_fn is not None:
            return  # computed within an iteration; only its leaves are state
        torch: Any = torch_if_loaded()
        content = value.detach().clone()
        gradient = value.grad
        gradient_content = None if gradient is None else gradient.detach().clone()

        def restore_tensor() -> None:
            with torch.no_grad():
                # Through `data`, which counts no write: a graph that was made before and waits for
                # its backward pass, as that of a GAN's generator, would refuse it.
                value.data.copy_(content)
                if gradient is not None:
                    gradient.copy_(gradient_content)
                if value.grad is not gradient:
                    value.grad = gradient

        self.restores.append(restore_tensor)
        if value.__dict__:
            self._save_attributes(value, path)

    def _save_bits(self, bits: Any) -> None:
        content = bits.state
        self.restores.append(lambda: setattr(bits, "state", content))

    def _save_dict(self, value: dict[Any, Any], path: str) -> None:
        items = list(value.items())
        for key, item in items:
            self.visit(item, f"{path}[{key!r}]" if isinstance(key, ATOMS) else f"{path}[…]")
            self.visit(key, f"{path} key")

        def restore_dict() -> None:
            # The order of the keys is part of the content; a defaultdict stays one.
            if list(value.items()) != items if _comparable(items) else True:
                value.clear()
                value.update(items)

        self.restores.append(restore_dict)
        self._save_attributes(value, path)

    def _save_sequence(self, value: Any, path: str) -> None:
        items = list(value)
        for position, item in enumerate(items):
            self.visit(item, f"{path}[{position}]")

        def restore_sequence() -> None:
            value.clear()
            value.extend(items)

        self.restores.append(restore_sequence)
        self._save_attributes(value, path)

    def _save_object(self, value: Any, path: str) -> None:
        kind = type(value)
        saver = SAVERS.get(name_of_class(kind))
        if saver is not None:
            self.restores.append(saver(value))
            return
        if is_of_processes(value):
            self.unsupported.append(Unsupported(path, "a part of it is in other processes"))
            return
        pair = protocol_of(value)
        if pair is not None:
            self.saved_by_themselves.append(value)
            save, load = (getattr(value, method) for method in pair)
            content = save()
            self.restores.append(lambda: load(content))
            return
        if not self._save_attributes(value, path):
            if callable(value) or _is_constant(value):
                return
            self.unsupported.append(
                Unsupported(
                    path,
                    f"a {name_of_class(type(value))} hides its content",
                )
            )

    def _save_attributes(self, value: Any, path: str) -> bool:
        """Save `__dict__` and slots; False if the object has neither."""
        found = False
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            found = True
            items = list(attributes.items())
            for key, item in items:
                self.visit(item, f"{path}.{key}")

            def restore_attributes() -> None:
                current = value.__dict__
                if len(current) != len(items) or any(
                    current.get(key, _MISSING) is not item for key, item in items
                ):
                    current.clear()
                    current.update(items)

            self.restores.append(restore_attributes)
        for name in slots_of(type(value)):
            found = True
            if hasattr(value, name):
                content = getattr(value, name)
                self.visit(content, f"{path}.{name}")
                self.restores.append(_slot_restorer(value, name, content))
        return found


_MISSING = object()


def _comparable(items: list[tuple[Any, Any]]) -> bool:
    # Arrays compare element by element: only plain values may be compared to skip a rewrite.
    return all(isinstance(item, ATOMS) for _, item in items)


def protocol_of(value: Any) -> tuple[str, str] | None:
    """Return the names of the methods with which an object saves and restores itself, or None."""
    torch = torch_if_loaded()
    own = torch is not None and isinstance(value, torch.nn.Module | torch.optim.Optimizer)
    if isinstance(value, type):
        return None
    for pair in PROTOCOLS if own else (*PROTOCOLS, STATE_DICT):
        if all(callable(getattr(type(value), method, None)) for method in pair):
            return pair
    return None


def slots_of(kind: type) -> list[str]:
    """Return the attributes that a class and its parents keep in slots, by their internal names."""
    names: list[str] = []
    for parent in kind.__mro__:
        declared = cast("str | Iterable[str]", parent.__dict__.get("__slots__", ()))
        for name in (declared,) if isinstance(declared, str) else declared:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{parent.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__"):
                names.append(name)
    return names


def _slot_restorer(value: Any, name: str, content: Any) -> Restore:
    def restore_slot() -> None:
        if getattr(value, name, _MISSING) is not content:
            object.__setattr__(value, name, content)

    return restore_slot


def _is_constant(value: Any) -> bool:
    """Whether an object has no readable content and is not changed by anything in a loop."""
    module = module_of(type(value))
    return type(value).__name__ in (
        "device",
        "dtype",
        "memory_format",
        "layout",
        "Size",
        "code",
        "method-wrapper",
        "object",
    ) or module in ("_thread", "_abc", "enum", "decimal", "datetime", "re", "pathlib")


def _save_generators() -> list[Restore]:
    python = random.getstate()
    restores: list[Restore] = [lambda: random.setstate(python)]
    legacy = np.random.get_state()
    restores.append(lambda: np.random.set_state(legacy))
    torch: Any = torch_if_loaded()
    if torch is not None:
        content = torch.get_rng_state()
        restores.append(lambda: torch.set_rng_state(content))
        if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
            cards = torch.cuda.get_rng_state_all()
            restores.append(lambda: torch.cuda.set_rng_state_all(cards))
    return restores
