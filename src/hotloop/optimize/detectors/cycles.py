"""Finds reference cycles whose collection makes the loop pause.

The pauses are timed while the loop runs as it is. Only if they are worth it, everything that the
collector finds in a further phase is kept for a moment, with the line that allocated it.
"""

import gc
import sys
import time
import tracemalloc
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.loop.values import count_bytes
from hotloop.optimize.advice import Advice
from hotloop.optimize.places import Place, function_at, is_users
from hotloop.optimize.watched import Instrument, Phase, Span, Watched

LEAST_SHARE = 0.02
# Of the objects found, by the line that is named.
LEAST_PART = 0.2
_FRAMES = 1


class Cycles:
    """Times the collector, and then looks at what it collects."""

    def __init__(self) -> None:
        self._pauses: list[Span] = []
        self._collected = 0
        self._start = 0
        self._objects: Counter[Place] = Counter()
        self._bytes: Counter[Place] = Counter()
        self._kinds: dict[Place, Counter[str]] = {}

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It takes times, and then keeps garbage."""
        return {Phase.TIMES: self._time, Phase.GARBAGE: self._keep}

    @contextmanager
    def _time(self, _watched: Watched) -> Iterator[None]:
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._start = now
        elif self._start:
            self._pauses.append(Span(self._start, now))
            self._collected += info["collected"]

    def _keep(self, watched: Watched) -> Any:
        share = watched.share_of(self._pauses)
        if not self._collected or not isinstance(share, Interval) or share.value < LEAST_SHARE:
            return None
        return self._keeping()

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        gc.collect()
        flags, traced, known = gc.get_debug(), tracemalloc.is_tracing(), len(gc.garbage)
        if not traced:
            tracemalloc.start(_FRAMES)
        gc.set_debug(flags | gc.DEBUG_SAVEALL)
        try:
            yield
            gc.collect()
            gc.set_debug(flags)
            self._note(gc.garbage[known:])
        finally:
            gc.set_debug(flags)
            del gc.garbage[known:]
            if not traced:
                tracemalloc.stop()
            gc.collect()

    def _note(self, garbage: Sequence[object]) -> None:
        owners = _owners(garbage)
        for thing in garbage:
            place = owners.get(id(thing)) or _allocated_at(thing)
            if place is not None:
                self._objects[place] += 1
                self._bytes[place] += sys.getsizeof(thing) + count_bytes(_held_by(thing))
                self._kinds.setdefault(place, Counter())[type(thing).__qualname__] += 1

    def advice(self, watched: Watched) -> list[Advice]:
        """The classes and lines that most of the garbage comes from."""
        found = []
        total = sum(self._objects.values())
        share = watched.share_of(self._pauses)
        for place, objects in self._objects.most_common():
            if objects < LEAST_PART * total:
                break
            kinds = ", ".join(kind for kind, _ in self._kinds[place].most_common(3))
            paused_s = sum(span.end_ns - span.start_ns for span in self._pauses) * 1e-9
            found.append(
                watched.advice(
                    "reference cycles",
                    place,
                    f"objects that refer to each other ({kinds}) wait here for the collector, "
                    "which stops the loop",
                    "break the cycle when it is no longer needed, or make one of its references "
                    "weak (weakref.ref)",
                    share,
                    (
                        "objects an iteration",
                        watched.per_iteration(objects, Phase.GARBAGE),
                        "",
                    ),
                    (
                        "held an iteration",
                        watched.per_iteration(self._bytes[place], Phase.GARBAGE),
                        "bytes",
                    ),
                    ("pauses an iteration", watched.per_iteration(paused_s, Phase.TIMES), "s"),
                )
            )
        return found


def _owners(garbage: Sequence[object]) -> dict[int, Place]:
    """The user's class or function for each object of it, and for what these hold themselves."""
    owners: dict[int, Place] = {}
    for thing in garbage:
        place = _class_of(thing)
        if place is None:
            continue
        owners[id(thing)] = place
        for held in gc.get_referents(thing):
            owners.setdefault(id(held), place)
            if isinstance(held, dict | tuple):
                for inner in gc.get_referents(held):
                    owners.setdefault(id(inner), place)
    return owners


def _class_of(thing: object) -> Place | None:
    """Where the user defines a function, or the class of an object: its first method."""
    methods = vars(type(thing))
    for function in (thing, methods.get("__init__"), *methods.values()):
        if isinstance(function, types.FunctionType) and is_users(function.__code__.co_filename):
            code = function.__code__
            return Place(code.co_filename, code.co_firstlineno, code.co_qualname)
    return None


def _allocated_at(thing: object) -> Place | None:
    """The user's line that allocated an object; None if a library did, for itself."""
    trace = tracemalloc.get_object_traceback(thing)
    if not trace or not is_users(trace[-1].filename):
        return None
    file, line = trace[-1].filename, trace[-1].lineno
    return Place(file, line, function_at(file, line))


def _held_by(thing: object) -> Any:
    if isinstance(thing, list | tuple | dict):
        return thing
    return getattr(thing, "__dict__", None)
