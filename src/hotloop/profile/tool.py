"""The field's profilers: whether one can be used here, and what it costs."""

import importlib.util
from dataclasses import dataclass, field

from hotloop.loop.figures import Interval

EXTRA = "pip install 'hotloop[profile]'"


class ToolError(Exception):
    """A profiler that does not work here; the message says why, and what would make it work."""


@dataclass(frozen=True)
class NotUsed:
    """A profiler that was not used, with the reason."""

    tool: str
    why: str


@dataclass
class Overhead:
    """What a profiler cost: an iteration with it over one without it."""

    tool: str
    slowdown: Interval
    iterations: int
    not_used: list[NotUsed] = field(default_factory=list)


def expect_module(module: str, tool: str) -> None:
    """Refuse a tool whose package is not installed.

    Raises: ToolError.
    """
    if importlib.util.find_spec(module) is None:
        raise ToolError(f"{tool} is not installed: {EXTRA}")
