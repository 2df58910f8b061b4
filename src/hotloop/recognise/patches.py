"""Putting functions in the place of a library's own, and putting the library's back."""

import functools
import sys
from collections.abc import Callable
from inspect import isfunction
from types import ModuleType
from typing import Any

_MISSING = object()


class Patches:
    """What was replaced, last first; `undo` puts it back.

    Where somebody else has put something over it meanwhile, as PyTorch puts what calls the hooks of
    an optimiser around its step, theirs stays: it calls what was put here.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        # Class, method, the library's own, and what stands for it.
        self._of_families: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Let `value` stand for an attribute of a module or class."""
        held = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def put_back() -> None:
            if vars(owner).get(name) is not value:
                return
            if held is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, held)

        self._undo.append(put_back)

    def function(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Let `make(function)`, dressed as the function, stand for one of a module or class.

        One that a class inherits, as from compiled code, becomes one of its own until `undo`.
        """
        held = vars(owner).get(name) or getattr(owner, name)
        function = held.__func__ if isinstance(held, classmethod | staticmethod) else held
        dressed: Any = functools.wraps(function)(make(function))
        if isfunction(dressed):
            # Each has a code object of its own: profilers tell functions apart by theirs.
            of = getattr(owner, "__name__", type(owner).__name__)  # of a module, a class, an object
            dressed.__code__ = dressed.__code__.replace(co_name=name, co_qualname=f"{of}.{name}")
        if isinstance(held, classmethod | staticmethod):
            dressed = type(held)(dressed)
        self.set(owner, name, dressed)

    def exported(
        self, library: ModuleType, name: str, package: str, make: Callable[[Any], Any]
    ) -> None:
        """Let `make(function)` stand for a function of a module and where a package exports it.

        A package that is imported already has taken the name over by now.
        """
        own = vars(library)[name]
        self.function(library, name, make)
        dressed = vars(library)[name]
        _exchange(package, name, own, dressed)
        # Also in a package that is imported meanwhile, and has taken over what stood there then.
        self._undo.append(lambda: _exchange(package, name, dressed, own))

    def family(self, base: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Let `make(method)` stand for a method of a class and of all its subclasses.

        Those that are defined later are changed as they are.
        """
        for kind in _with_subclasses(base):
            self._method_of(kind, name, make)
        patches, before = self, vars(base).get("__init_subclass__")

        def init_subclass(cls: Any, /, **options: Any) -> None:
            if before is None:
                super(base, cls).__init_subclass__(**options)
            else:
                before.__get__(None, cls)(**options)
            patches._method_of(cls, name, make)

        self.set(base, "__init_subclass__", classmethod(init_subclass))

    def _method_of(self, kind: type, name: str, make: Callable[[Any], Any]) -> None:
        held = vars(kind).get(name)
        if callable(held) and not getattr(held, "__isabstractmethod__", False):
            self.function(kind, name, make)
            self._of_families.append((kind, name, held, vars(kind)[name]))

    def drop_unused(self) -> None:
        """Put back the methods of families that were only called within others.

        What stands for a method says so by its attribute `used`, a list with one truth value.
        """
        kept = []
        for kind, name, held, dressed in self._of_families:
            used = getattr(dressed, "used", None)
            if used is None or used[0]:
                kept.append((kind, name, held, dressed))
            elif vars(kind).get(name) is dressed:
                setattr(kind, name, held)
        self._of_families = kept

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


def _exchange(package: str, name: str, old: Any, new: Any) -> None:
    """Let `new` stand where a package exports `old`."""
    exporting = sys.modules.get(package)
    if exporting is not None and getattr(exporting, name, None) is old:
        setattr(exporting, name, new)


def _with_subclasses(base: type) -> list[type]:
    found: dict[type, None] = {}
    waiting = [base]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found[kind] = None
            waiting += kind.__subclasses__()
    return list(found)
