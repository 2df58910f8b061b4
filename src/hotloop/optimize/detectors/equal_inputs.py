"""Finds functions that compute the same from equal inputs: a cache would have had so many hits.

Only functions that take time are followed: the user's, and those of libraries that the user's code
calls itself. A function that once returned something else for equal inputs is no candidate.
"""

import hashlib
import inspect
import itertools
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotloop.loop.code import module_of
from hotloop.loop.figures import Figure, Interval, mean_interval
from hotloop.loop.values import ATOMS, is_strided, is_tensor
from hotloop.optimize.advice import Advice
from hotloop.optimize.places import Place, is_users, place_at
from hotloop.optimize.samples import Stack
from hotloop.optimize.watched import Instrument, Phase, Watched

LEAST_SHARE = 0.03
LEAST_HITS = 3
LEAST_HIT_RATE = 0.25
LEAST_CALL_S = (
    20e-6  # a call that takes less gains nothing by a cache, whose keys take time as well
)
MOST_BYTES = 1 << 26  # of arrays in one call: more would take longer to compare than to compute

_NOT_FOLLOWED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_DEPTH, _DEPTH_OF_OBJECTS = 4, 3


class NotComparableError(Exception):
    """A value that cannot be compared with an earlier one at a reasonable cost."""


@dataclass
class Calls:
    """The calls of one function, on one object if it is a method."""

    name: str
    code: types.CodeType
    results: dict[bytes, bytes] = field(default_factory=dict)
    hits: list[float] = field(default_factory=list)  # 1 for each call with equal inputs, else 0
    waited_ns: list[int] = field(default_factory=list)  # in each of those: not on a processor
    hit_at: Counter[Place] = field(default_factory=Counter)
    excluded: bool = False


class EqualInputs:
    """Compares the inputs and results of the functions that take time."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], Calls] = {}
        self._running: dict[int, tuple[Calls, bytes, Place, int]] = {}
        self._hot: dict[int, types.CodeType] = {}
        self._thread = 0

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It follows calls."""
        return {Phase.LINES: self._watch}

    def _watch(self, watched: Watched) -> Any:
        shares: dict[int, float] = {}
        for stack, share in watched.samples.shares():
            called = {id(code): code for code in _called_by_the_user(stack)}
            self._hot |= called
            shares |= {number: shares.get(number, 0.0) + share for number in called}
        self._hot = {n: code for n, code in self._hot.items() if shares[n] >= LEAST_SHARE}
        return self._following(watched) if self._hot else None

    @contextmanager
    def _following(self, watched: Watched) -> Iterator[None]:
        self._thread = threading.get_ident()
        watched.tracer.followers.append(self)
        yield
        self._running.clear()

    def wants_lines(self, _code: types.CodeType) -> bool:
        """Whether it follows lines: no."""
        return False

    def line(self, _frame: types.FrameType) -> None:
        """Take no note of lines."""

    def wants_call(self, frame: types.FrameType) -> bool:
        """Take the inputs of a call, if its function is followed."""
        code = frame.f_code
        if id(code) not in self._hot or code.co_flags & _NOT_FOLLOWED or _is_the_loop(frame):
            return False
        given = inspect.getargvalues(frame)
        owner = given.locals.get(given.args[0]) if given.args[:1] == ["self"] else None
        calls = self._calls.setdefault((id(code), id(owner)), Calls(_name_of(code, owner), code))
        if calls.excluded:
            return False
        names = [*given.args, *(each for each in (given.varargs, given.keywords) if each)]
        try:
            inputs = digest([given.locals[name] for name in names])
        except NotComparableError:
            calls.excluded = True
            return False
        self._running[id(frame)] = (calls, inputs, _place(frame), _waited_ns())
        return True

    def returned(self, frame: types.FrameType, value: Any) -> None:
        """Compare the result of a call with that of the last one with equal inputs."""
        waited_ns = _waited_ns()
        running = self._running.pop(id(frame), None)
        if running is None:
            return
        calls, inputs, place, waited_before_ns = running
        try:
            result = digest(value)
        except NotComparableError:
            calls.excluded = True
            return
        known = calls.results.get(inputs)
        # Without a result there is nothing to keep: the call is made for its effect.
        if value is None or (known is not None and known != result):
            calls.excluded = True
        calls.results[inputs] = result
        calls.hits.append(float(known is not None))
        if known is not None:
            calls.hit_at[place] += 1
            calls.waited_ns.append(waited_ns - waited_before_ns)

    def advice(self, watched: Watched) -> list[Advice]:
        """The functions with enough hits; of those that call each other, the outermost."""
        found: list[tuple[Calls, Interval]] = []
        for calls in self._calls.values():
            hits = sum(calls.hits)
            if calls.excluded or hits < LEAST_HITS or hits < LEAST_HIT_RATE * len(calls.hits):
                continue
            share = _share(watched, calls)
            if not isinstance(share, Interval) or share.value < LEAST_SHARE:
                continue
            if _seconds_of_a_call(watched, calls, share) >= LEAST_CALL_S:
                found.append((calls, share))
        candidates = [calls for calls, _ in found]
        return [
            _advice(watched, calls, share)
            for calls, share in found
            if not any(_within(watched, calls, other) for other in candidates)
        ]


def _advice(watched: Watched, calls: Calls, share: Interval) -> Advice:
    hit_rate = mean_interval(np.array(calls.hits))
    place = calls.hit_at.most_common(1)[0][0]
    return watched.advice(
        "equal inputs",
        place,
        f"{calls.name} is called again with equal inputs, and returns the same",
        "keep its results: compute it once before the loop, or functools.lru_cache, or a "
        "dictionary by what its input is made from",
        share.scaled(hit_rate.value),
        ("hit rate of a cache", hit_rate.at_most(1.0), "share"),
        ("calls that were followed", float(len(calls.hits)), ""),
        ("different inputs", float(len(calls.results)), ""),
    )


def _share(watched: Watched, calls: Calls) -> Figure:
    if is_users(calls.code.co_filename):
        return watched.samples.share(lambda stack: _has(stack, calls.code))
    lines = {(place.file, place.line) for place in calls.hit_at}
    return watched.samples.share(lambda stack: _called_at(stack, calls.code, lines))


def _called_at(stack: Stack, called: types.CodeType, lines: set[tuple[str, int]]) -> bool:
    """Whether a function runs that one of these lines has called, however that is done."""
    return any(
        code is called and (caller.co_filename, line) in lines
        for (code, _), (caller, line) in itertools.pairwise(stack)
    )


def _seconds_of_a_call(watched: Watched, calls: Calls, share: Interval) -> float:
    """What a call takes on average, as far as the times of usual iterations say.

    Usual ones: those in which another program had the processor say nothing of the calls. No more
    than the time of an iteration on a processor, and what a usual call waits. Where no core is
    free, most iterations are disturbed, and most samples are taken where a function begins.
    """
    times = watched.times
    if times is None or not times.duration_ns:
        return 0.0
    calls_per_iteration = watched.per_iteration(len(calls.hits), Phase.LINES)
    sampled_ns = share.value * float(np.median(times.duration_ns)) / calls_per_iteration
    computes_ns = times.cpu_ns / len(times.duration_ns) / calls_per_iteration
    return min(sampled_ns, computes_ns + float(np.median(calls.waited_ns))) * 1e-9


def _waited_ns() -> int:
    """The time that this thread was on no processor, since some moment."""
    return time.perf_counter_ns() - time.thread_time_ns()


def _within(watched: Watched, inner: Calls, outer: Calls) -> bool:
    """Whether all that a function takes is inside another candidate, which it does not contain."""
    if inner is outer or inner.code is outer.code:
        return False
    return not watched.samples.value(
        lambda stack: _has(stack, inner.code) and not _has(stack, outer.code)
    ) and _depth(watched, inner.code) > _depth(watched, outer.code)


def _has(stack: Stack, code: types.CodeType) -> bool:
    return any(each is code for each, _ in stack)


def _depth(watched: Watched, code: types.CodeType) -> float:
    """How far from the outermost frame a function runs, at the least."""
    depths = [
        len(stack) - next(k for k, (each, _) in enumerate(stack) if each is code)
        for stack, _ in watched.samples.shares()
        if _has(stack, code)
    ]
    return min(depths, default=0)


def _called_by_the_user(stack: Stack) -> Iterator[types.CodeType]:
    """The user's functions on a stack, and those of libraries that they call themselves."""
    for (code, _), (caller, _) in itertools.pairwise(stack):
        if is_users(caller.co_filename) or is_users(code.co_filename):
            yield code


def _is_the_loop(frame: types.FrameType) -> bool:
    """Whether a call is a whole iteration: that is repeated because it is the loop."""
    caller = frame.f_back
    return caller is not None and str(caller.f_globals.get("__name__")).startswith("hotloop.")


def _place(frame: types.FrameType) -> Place:
    """The line that calls a function; where a library does, the function itself."""
    caller, code = frame.f_back, frame.f_code
    if caller is not None and is_users(caller.f_code.co_filename):
        return place_at(caller)
    return Place(code.co_filename, code.co_firstlineno, code.co_qualname)


def _name_of(code: types.CodeType, owner: object) -> str:
    if is_users(code.co_filename) or owner is None:
        return code.co_qualname
    return type(owner).__qualname__


def digest(value: Any) -> bytes:
    """A short text that is equal for equal values, and for no others as far as can be expected.

    Other objects than arrays, numbers, texts and containers of them are equal if they are the same
    and hold the same.

    Raises: NotComparableError for a tensor that is not in the memory of the host, or too much data.
    """
    found = hashlib.blake2b(digest_size=16)
    _add(value, found, _DEPTH)
    return found.digest()


def _add(value: Any, found: Any, depth: int) -> None:
    found.update(type(value).__name__.encode())
    if is_tensor(value):
        if value.device.type != "cpu" or not is_strided(value) or value.is_quantized:
            raise NotComparableError
        data = value.detach()
        _add_array(data.float().numpy() if "bfloat16" in str(data.dtype) else data.numpy(), found)
    elif isinstance(value, np.ndarray):
        _add_array(value, found)
    elif isinstance(value, (*ATOMS, np.generic)):
        found.update(repr(value).encode())
    elif depth and isinstance(value, tuple | list):
        found.update(str(len(value)).encode())
        for item in value:
            _add(item, found, depth - 1)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            found.update(repr(key).encode())
            _add(item, found, depth - 1)
    else:
        found.update(str(id(value)).encode())
        if depth and module_of(type(value)) != "builtins" and hasattr(value, "__dict__"):
            _add(dict(vars(value)), found, min(depth, _DEPTH_OF_OBJECTS) - 1)


def _add_array(array: np.ndarray, found: Any) -> None:
    if array.dtype == object or array.nbytes > MOST_BYTES:
        raise NotComparableError
    found.update(f"{array.shape}{array.dtype}".encode())
    found.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
