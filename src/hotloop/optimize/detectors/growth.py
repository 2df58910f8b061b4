"""Finds containers that grow in every iteration and keep arrays or tensors alive.

The loop is stopped several times, and the lengths of all its containers are compared. Those that
have grown each time are followed by the calls that add to them, so that the line can be named.
"""

import ast
import gc
import itertools
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval, Unknown, mean_interval
from hotloop.loop.values import arrays_in, is_strided, is_tensor
from hotloop.optimize.advice import Advice
from hotloop.optimize.places import Place, function_at, is_users, syntax_of, user_place
from hotloop.optimize.watched import Instrument, Phase, Watched

# Blocks after the first two looks; a container that misses one is emptied now and then.
LEAST_LOOKS = 4
_ADDING = frozenset({"append", "appendleft", "add", "insert", "extend", "update", "setdefault"})
_DEPTH = 3


@dataclass
class Growing:
    """One container that has grown between all looks so far.

    items, held_bytes: added by iteration, one number for each pair of looks. graph: whether a
    tensor in it keeps the operations that it was computed by.
    """

    container: Any
    length: int
    items: list[float] = field(default_factory=list)
    held_bytes: list[float] = field(default_factory=list)
    graph: bool = False
    place: Place | None = None


class Growth:
    """Compares the lengths of the loop's containers between its iterations."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] | None = None
        self._growing: dict[int, Growing] | None = None
        self._profiling = False

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It stops the loop to look."""
        return {Phase.GROWTH: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        watched.boundaries.append(self._look)
        self._lengths = {id(each): len(each) for each in _containers()}
        try:
            yield
        finally:
            watched.boundaries.remove(self._look)
            if self._profiling:
                sys.setprofile(None)
            for growing in (self._growing or {}).values():
                growing.place = growing.place or _named_place(growing.container)

    def _look(self, iterations: int) -> None:
        if self._growing is None:
            assert self._lengths is not None
            before = self._lengths
            self._growing = {
                id(each): Growing(each, before[id(each)])
                for each in _containers()
                if len(each) > before.get(id(each), len(each)) and not _is_bounded(each)
            }
            self._lengths = None
        for number, growing in list(self._growing.items()):
            if not _grew(growing, iterations):
                del self._growing[number]
        # A profiler that is on already stays on: some cannot be put back from Python.
        if self._growing and sys.getprofile() is None:
            self._profiling = True
            sys.setprofile(self._on_event)

    def _on_event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event != "c_call" or argument.__name__ not in _ADDING:
            return
        assert self._growing is not None
        growing = self._growing.get(id(argument.__self__))
        if growing is not None and growing.place is None:
            growing.place = user_place(frame)

    def advice(self, watched: Watched) -> list[Advice]:
        """The containers that certainly grow."""
        found = []
        for growing in (self._growing or {}).values():
            items = mean_interval(np.array(growing.items))
            if len(growing.items) < LEAST_LOOKS or growing.place is None or not items.low > 0:
                continue
            found.append(_advice(watched, growing, growing.place, items))
        return found


def _advice(watched: Watched, growing: Growing, place: Place, items: Interval) -> Advice:
    kind = type(growing.container).__name__
    graph = ", each with the operations that computed it" if growing.graph else ""
    return watched.advice(
        "growing container",
        place,
        f"a {kind} grows here in every iteration, and keeps arrays or tensors alive{graph}",
        "keep numbers (float(loss.detach())) and not tensors, or only the newest ones "
        "(collections.deque(maxlen=…)); nothing needs to be done if it has a limit that is not "
        "reached yet",
        Unknown("it costs memory, and time only when the memory is used up"),
        ("items an iteration", items, ""),
        ("memory an iteration", mean_interval(np.array(growing.held_bytes)), "bytes"),
        ("items now", float(len(growing.container)), ""),
    )


def _containers() -> Iterator[Any]:
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is list or kind is dict or kind is deque or kind is set:
            yield thing


def _is_bounded(container: Any) -> bool:
    return isinstance(container, deque) and container.maxlen is not None


def _grew(growing: Growing, iterations: int) -> bool:
    """Note how much a container has grown; False if it has not, or by nothing that holds memory."""
    container, before = growing.container, growing.length
    growing.length = len(container)
    if growing.length <= before:
        return False
    added = list(itertools.islice(_newest_last(container), before, None))
    held = [array for item in added if _is_plain(item) for array in _arrays_of(item)]
    if not held:
        return False
    growing.items.append((growing.length - before) / iterations)
    growing.held_bytes.append(sum(_own_bytes(array) for array in held) / iterations)
    growing.graph |= any(is_tensor(each) and each.grad_fn is not None for each in held)
    return True


def _is_plain(thing: object) -> bool:
    """Whether an object can be looked at: a weak proxy raises when its object is gone."""
    return type(thing) not in weakref.ProxyTypes


def _newest_last(container: Any) -> Iterator[Any]:
    return iter(container.values() if isinstance(container, dict) else container)


def _arrays_of(item: object) -> Iterator[Any]:
    yield from arrays_in(item, _DEPTH)
    if not isinstance(item, tuple | list | dict):
        yield from arrays_in(getattr(item, "__dict__", None), 1)


def _own_bytes(array: Any) -> int:
    """The memory that an array keeps: all of what it is a part of."""
    if is_tensor(array):
        return int(array.untyped_storage().nbytes()) if is_strided(array) else 0
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.nbytes)


def _named_place(container: Any) -> Place | None:
    """The line that adds to a container without a call (`d[k] = v`, `x += …`), by its names."""
    names: set[str] = set()
    for holder in filter(_is_plain, gc.get_referrers(container)):
        # An object that keeps its attributes without a dictionary is itself the holder.
        held = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        names |= {key for key, value in held.items() if value is container}
    files: dict[str, None] = {}
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            files[frame.f_code.co_filename] = None
            names |= {key for key, value in frame.f_locals.items() if value is container}
        frame = frame.f_back
    for file in [*files, *_files_of_users_modules()]:
        for node in ast.walk(syntax_of(file)):
            if _adds_to(node, names):
                line: int = node.lineno  # type: ignore[attr-defined]  # a statement has a line
                return Place(file, line, function_at(file, line))
    return None


def _files_of_users_modules() -> list[str]:
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in named if isinstance(file, str) and is_users(file)]


def _adds_to(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return _name_of(node.target) in names
    if isinstance(node, ast.Assign):
        return any(
            isinstance(target, ast.Subscript) and _name_of(target.value) in names
            for target in node.targets
        )
    return False


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None
