"""Putting functions in the place of others, wherever a module holds them, and putting them back.

A module may hold a function of `os` under a name of its own, so all modules are looked through; a
few of the standard library also hold some in their classes, and as default arguments.
"""

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isclass, isfunction
from operator import attrgetter
from types import ModuleType
from typing import Any

from hotloop.loop.after_import import after_import

Function = Callable[..., Any]
Make = Callable[[Function], Function]
# Those of the system stay, and whoever redirects must be able to call them.
KEPT = ("posix", "_io")
INSIDE_CLASSES = ("tempfile", "glob", "pathlib", "pathlib._local", "pathlib._os")
PUBLIC_MODULES = {"posix": "os", "_io": "io"}
# How many paths an error of the system's functions names, where it is not one.
NAMED_PATHS = {"rename": 2, "replace": 2, "link": 2, "symlink": 2}
if sys.version_info < (3, 13):
    NAMED_PATHS["utime"] = 0


class Replacement(staticmethod):  # type: ignore[type-arg]
    """A function in the place of another; as those of the system, no class makes it a method."""

    def __reduce__(self) -> str:
        return self.__name__  # pickled as what it stands for: by its name


class Replacing:
    """Replaces functions while it is active.

    paths: how many arguments, from the first on, are paths that an error names; None: as those of
    the system have them.
    """

    def __init__(self, calls: Mapping[Function, Function], paths: int | None = None) -> None:
        self._active = False
        self._paths = paths
        self._by_id = {id(old): self._replacement(old, new) for old, new in calls.items()}
        self._back = {id(new): old for old, new in zip(calls, self._by_id.values(), strict=True)}

    def start(self) -> None:
        """Put the replacements in place."""
        self._active = True
        _exchange(self._by_id)

    def _replacement(self, old: Function, new: Function) -> Replacement:
        paths = self._paths
        if paths is None:
            paths = NAMED_PATHS.get(old.__name__, 1)

        @functools.wraps(old)
        def call(*arguments: Any, **named: Any) -> Any:
            if not self._active:
                return old(*arguments, **named)
            try:
                return new(*arguments, **named)
            except OSError as error:
                _name_paths(error, (*arguments, *named.values())[:paths])
                raise

        call.__module__ = PUBLIC_MODULES.get(old.__module__, old.__module__)
        return Replacement(call)

    @staticmethod
    def stop(those: Sequence["Replacing"]) -> None:
        """Put the functions back, also in the modules that were imported since."""
        back: dict[int, Any] = {}
        for each in those:
            each._active = False  # a replacement that somebody still holds passes on
            back |= each._back
        if back:
            _exchange(back)


class Replacements:
    """Functions of libraries, each replaced when its module is imported, until all are put back.

    All that is replaced at one moment takes one look through the modules.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, list[tuple[str, Make]]] = {}
        self._replacing: list[Replacing] = []
        self._undo: list[Callable[[], None]] = []

    def add(self, module: str, name: str, make: Make) -> None:
        """Want a function of a module, or a method of its class, replaced by what is made of it.

        A version of the library that does not have it is left alone.
        """
        self._wanted.setdefault(module, []).append((name, make))

    def start(self) -> None:
        """Replace what is imported already, and the others once they are."""
        now: dict[Function, Function] = {}
        for module, wanted in self._wanted.items():
            if module in sys.modules:
                now |= self._made(wanted, sys.modules[module])
            else:
                self._undo.append(after_import(module, partial(self._replace, wanted)))
        self._put(now)

    def undo(self) -> None:
        """Put all back, the last one first, and wait for no more modules."""
        while self._undo:
            self._undo.pop()()
        Replacing.stop(self._replacing)
        self._replacing.clear()

    def _replace(self, wanted: list[tuple[str, Make]], imported: ModuleType) -> None:
        self._put(self._made(wanted, imported))

    def _made(
        self, wanted: list[tuple[str, Make]], imported: ModuleType
    ) -> dict[Function, Function]:
        """Replace the methods; returns what is to stand for which function."""
        found: dict[Function, Function] = {}
        for name, make in wanted:
            owner_name, _, last = name.rpartition(".")
            owner: Any = attrgetter(owner_name)(imported) if owner_name else imported
            old = getattr(owner, last, None)
            if old is not None and owner_name:
                self._undo.append(_replace_method(owner, last, make(old)))
            elif old is not None:
                found[old] = make(old)
        return found

    def _put(self, calls: Mapping[Function, Function]) -> None:
        if calls:
            replacing = Replacing(calls, paths=0)
            replacing.start()
            self._replacing.append(replacing)


def _replace_method(owner: type, name: str, new: Function) -> Callable[[], None]:
    own = vars(owner).get(name)
    setattr(owner, name, new if isfunction(own) else staticmethod(new))

    def put_back() -> None:
        if own is None:  # it was inherited
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    return put_back


def _exchange(by_id: Mapping[int, Any]) -> None:
    for name, module in list(sys.modules.items()):
        kept = name in KEPT or name.startswith("hotloop.redirect.")
        if isinstance(module, ModuleType) and not kept:
            _exchange_in(vars(module), by_id, module)
    for name in INSIDE_CLASSES:
        for kind in filter(isclass, vars(sys.modules.get(name, os)).values()):
            if kind.__module__ == name:
                _exchange_in(vars(kind), by_id, kind)
                _exchange_defaults(kind, by_id)
    for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        exchanged = {call for call in group if id(call) in by_id}
        group -= exchanged
        group |= {by_id[id(call)] for call in exchanged}


def _exchange_in(names: Mapping[str, Any], by_id: Mapping[int, Any], owner: Any) -> None:
    for name, value in list(names.items()):
        # From Python 3.13 on, the standard library wraps some that it holds in classes.
        new = by_id.get(id(value.__func__ if type(value) is staticmethod else value))
        if new is not None:
            setattr(owner, name, new)


def _exchange_defaults(kind: type, by_id: Mapping[int, Any]) -> None:
    for function in filter(isfunction, vars(kind).values()):
        defaults: tuple[Any, ...] = function.__defaults__ or ()
        if any(id(value) in by_id for value in defaults):
            function.__defaults__ = tuple(by_id.get(id(value), value) for value in defaults)


def _name_paths(error: OSError, arguments: tuple[Any, ...]) -> None:
    """Have an error name the paths that the script gave, not those that they led to."""
    paths = [os.fspath(each) for each in arguments if isinstance(each, str | bytes | os.PathLike)]
    if paths and error.errno is not None:
        error.filename = paths[0]
        if len(paths) > 1:
            error.filename2 = paths[1]
