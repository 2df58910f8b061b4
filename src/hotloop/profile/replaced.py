"""Functions and methods that are replaced by others for a while, and put back exactly."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Replacement(NamedTuple):
    """owner: the module or class; make: given the original, returns what takes its place."""

    owner: Any
    name: str
    make: Callable[[Callable[..., Any]], Callable[..., Any]]


class Replaced:
    """Replaces between `start` and `stop`, which may be called again and again."""

    def __init__(self, replacements: list[Replacement]) -> None:
        self._replacements = replacements
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Put the replacements in their places."""
        for owner, name, make in self._replacements:
            original = getattr(owner, name)
            # A class may have it from the class above: then there is nothing to put back.
            own = owner.__dict__.get(name)
            setattr(owner, name, make(original))
            if own is None:
                self._undo.append(_deleting(owner, name))
            else:
                self._undo.append(_setting(owner, name, own))

    def stop(self) -> None:
        """Put everything back; may be called twice."""
        while self._undo:
            self._undo.pop()()


def _deleting(owner: Any, name: str) -> Callable[[], object]:
    return lambda: delattr(owner, name)


def _setting(owner: Any, name: str, value: Any) -> Callable[[], object]:
    return lambda: setattr(owner, name, value)
