"""Calling back when a module is imported, without importing it."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def after_import(name: str, call: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call back with the module of this name: at once if it is there, else when it is imported.

    The call happens once. Returns a function that gives up waiting; it may be called at any time.
    """
    module = sys.modules.get(name)
    if module is not None:
        call(module)
        return _nothing
    finder = _Finder(name, call)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(importlib.abc.MetaPathFinder):
    """Hands out the module's own spec, whose loader calls back; stays until it has called."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name, self._call = name, call

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as the finders behind this one do."""
        if name != self._name or self not in sys.meta_path:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in behind)
        spec = next((spec for spec in found if spec is not None), None)
        # The loader of a built-in module is a class, which all of them share.
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: importlib.abc.Loader) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # its class has it as it was
            load(module)
            # Looking for a module does not import it, so only now has the waiting an end.
            if self in sys.meta_path:
                self.remove()
                self._call(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _nothing() -> None:
    return
