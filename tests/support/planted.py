"""Faults planted in test functions, marked with a comment at the line that a detector must name."""

import linecache
import time
import types
from collections.abc import Callable
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.optimize.advice import Advice
from hotloop.optimize.detect import detect


def line_of(function: Callable[..., Any], mark: str = "# fault") -> int:
    """The line with a mark in a function, or in one that is defined in it."""
    code = function.__code__
    lines = {line for each in _nested(code) for _, _, line in each.co_lines() if line}
    found = [line for line in sorted(lines) if mark in linecache.getline(code.co_filename, line)]
    assert len(found) == 1, (mark, found)
    return found[0]


def watch(body: Callable[[], Any], name: str, seconds: float = 0.6) -> list[Advice]:
    """What one detector says about a loop that is warm."""
    for _ in range(3):
        body()
    return detect(body, seconds=seconds, detectors=[name])


def the_advice(
    body: Callable[[], Any], name: str, seconds: float = 0.6, *, computes: bool = False
) -> Advice:
    """The one thing that a detector says; until it does, a busy machine is watched for longer.

    computes: the loop waits for nothing; it is watched until it had the core for most of `seconds`,
    as shares of less are decided by when the core was taken away.
    """
    for longer in (1, 4, 16):
        begin_s = time.thread_time()
        found = watch(body, name, longer * seconds)
        had_s = time.thread_time() - begin_s
        if found and (not computes or had_s > 0.7 * seconds):
            (advice,) = found
            return advice
    raise AssertionError(f"{name}: not found in {longer * seconds:.0f} s, {had_s:.1f} s on a core")


def figure(advice: Advice, name: str) -> float:
    """One figure of the evidence."""
    values = {each.name: each.value for each in advice.evidence}
    value = values[name]
    assert isinstance(value, Interval | float | int), value
    return value.value if isinstance(value, Interval) else float(value)


def share(advice: Advice) -> float:
    """What removing the fault could save at most, as a share of the loop's time."""
    assert isinstance(advice.at_most, Interval | float), advice.at_most
    return advice.at_most.value if isinstance(advice.at_most, Interval) else advice.at_most


def _nested(code: types.CodeType) -> list[types.CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [code, *(found for each in inner for found in _nested(each))]
