"""Reading code objects: which globals a function names, and whether the user wrote it."""

import dis
import functools
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_OWN_FOLDER = Path(__file__).parent
_EXTENDED, _LOAD_GLOBAL = dis.EXTENDED_ARG, dis.opmap["LOAD_GLOBAL"]
_NAMED = frozenset(dis.opmap[name] for name in ("LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"))


class GlobalNames(NamedTuple):
    """What code names: globals, and attributes of anything."""

    loaded: tuple[str, ...]
    attributes: frozenset[str]


@functools.lru_cache(maxsize=8192)
def globals_named(code: types.CodeType) -> GlobalNames:
    """Return the globals that a function's code names, and the functions defined in it."""
    loaded: dict[str, None] = {}
    attributes: set[str] = set()
    for each in _with_nested(code):
        attributes.update(each.co_names)
        loaded.update(dict.fromkeys(_loaded(each)))
    return GlobalNames(tuple(loaded), frozenset(attributes))


def _loaded(code: types.CodeType) -> Iterator[str]:
    # By hand: dis.get_instructions takes 20 times as long, which hundreds of functions feel.
    above = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = above | low
        above = argument << 8 if operation == _EXTENDED else 0
        if operation == _LOAD_GLOBAL:
            yield code.co_names[argument >> 1]  # the lowest bit says whether a call follows
        elif operation in _NAMED:
            yield code.co_names[argument]


def _with_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_nested(constant)


@functools.lru_cache(maxsize=8192)
def is_users_file(filename: str) -> bool:
    """Whether a file belongs neither to the standard library nor to an installed package."""
    if filename.startswith(("<frozen", "<built-in", "<__array_function__")):
        return False
    path = Path(filename)
    for folder, inside in reversed([*pairwise(path.parts)]):
        if folder in ("site-packages", "dist-packages"):
            return inside == "hotloop"  # its engines, the same wherever they are installed
    return not any(path.is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    named = sysconfig.get_paths()
    folders = {named[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(Path(folder) for folder in {*folders, site.getusersitepackages()})


def module_of(kind: type) -> str:
    """Return the name of a class's module; classes of generated bindings need not have one."""
    return str(getattr(kind, "__module__", None) or "")


def name_of_class(kind: type) -> str:
    """Return the name of a class after its module, if it has one."""
    module = module_of(kind)
    return f"{module}.{kind.__qualname__}" if module else kind.__qualname__


def is_users(kind: type) -> bool:
    """Whether a class is defined in a file of the user."""
    module = module_of(kind)
    if module == "builtins" or f"{module}.".startswith("hotloop.loop."):
        return False
    filename = getattr(sys.modules.get(module), "__file__", None)
    return filename is None or is_users_file(filename)


@functools.lru_cache(maxsize=8192)
def is_own_file(filename: str) -> bool:
    """Whether a file holds the probe itself."""
    return Path(filename).is_relative_to(_OWN_FOLDER)
