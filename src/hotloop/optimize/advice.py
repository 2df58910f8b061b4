"""Advice about a loop's own code: what was seen, where, and how much of the time it can explain.

Advice is never applied: a fault in the user's code needs an edit by its user.
"""

from dataclasses import dataclass
from typing import Literal

from hotloop.loop.figures import Figure

Unit = Literal["", "s", "bytes", "share"]


@dataclass(frozen=True)
class Evidence:
    """One figure that was measured. unit: "" for a count; a share is between 0 and 1."""

    name: str
    value: Figure
    unit: Unit = ""


@dataclass(frozen=True)
class HotLine:
    """A line with the share of the loop's time in which it, or what it calls, was running."""

    file: str
    line: int
    function: str
    share: Figure


@dataclass(frozen=True)
class Advice:
    """One fault that a detector found.

    detector: its name in the table of detectors. sentence: what is wrong, without a full stop.
    file, line, function: where. evidence: figures with their units. action: what to do.
    at_most: the largest share of the loop's time that removing the fault could save.
    hottest: the lines of the same function with the largest shares of the loop's time.
    """

    detector: str
    sentence: str
    file: str
    line: int
    function: str
    evidence: tuple[Evidence, ...]
    action: str
    at_most: Figure
    hottest: tuple[HotLine, ...] = ()
