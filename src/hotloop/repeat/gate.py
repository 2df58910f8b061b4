"""The decision of a gate: is the new version slower than its baseline, or surely not by much?

A gate runs again and again, at every change, so it must seldom be wrong: a version that is not
slower is blocked once in 400 gates at most, however often its measurement was looked at.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hotloop.errors import expect_positive
from hotloop.loop.figures import Figure
from hotloop.repeat.comparison import CompareSettings
from hotloop.repeat.estimate import FEWEST_LAUNCHES, Look, Looks, launches_of, looks_of
from hotloop.repeat.record import Record
from hotloop.repeat.verdict import Measured, measured, too_few

BLOCK_ALPHA = 0.0025
"""The probability that a version is blocked that is as fast as its baseline."""
PASS_ALPHA = 0.01
"""The probability that a version passes that is slower by `worse`."""
BLOCKED, PASSED, CANNOT_SAY = "blocked", "passed", "cannot say"


@dataclass(frozen=True)
class GateSettings:
    """How long to measure, and which slowdown must not pass."""

    budget: float = 240.0
    """Time for the whole gate, in seconds; clear cases need less."""
    worse: float = 0.03
    """The slowdown that must not pass, as a share of the baseline's time."""
    seed: int = 0
    """Of the order of the blocks, and of Python's hashes."""

    def __post_init__(self) -> None:
        expect_positive("budget", self.budget)
        expect_positive("worse", self.worse)

    @property
    def comparison(self) -> CompareSettings:
        """How the two sides are measured."""
        return CompareSettings(budget=self.budget, margin=self.worse, seed=self.seed)


@dataclass(frozen=True)
class GateVerdict(Measured):
    """The new version (B) against its baseline (A).

    verdict: "blocked", "passed" or "cannot say". slowdown: the time of B for one unit over that of
    A, less 1. worse: the slowdown that must not pass.
    """

    verdict: str
    slowdown: Figure
    worse: float


def decision(look: Look, worse: float) -> str:
    """What a look decides. worse: the slowdown that must not pass, as a share."""
    if look.slowdown.low > 0:
        return BLOCKED
    return PASSED if look.slowdown.high < worse else CANNOT_SAY


def looking(worse: float) -> Callable[[Record], bool]:
    """A function that looks at a growing record, and returns whether it is decided."""
    looks = Looks(BLOCK_ALPHA, PASS_ALPHA)

    def decided(record: Record) -> bool:
        look = looks.look(launches_of(record).ratio, float(record.shares[-1]))
        return look is not None and decision(look, worse) != CANNOT_SAY

    return decided


def judge_gate(record: Record, worse: float) -> GateVerdict:
    """The verdict on what was measured."""
    look, found = _first_decided(looks_of(record, BLOCK_ALPHA, PASS_ALPHA), worse)
    return GateVerdict(
        verdict=found,
        slowdown=too_few(record) if look is None else look.slowdown,
        worse=worse,
        **measured(record, needed_s(record, look, worse) if found == CANNOT_SAY else None),
    )


def needed_s(record: Record, look: Look | None, worse: float) -> float | None:
    """About how many seconds such a gate takes until it is decided, None without a guess.

    Either end of the interval comes closer with the root of the launches. The lower one must leave
    0 behind, or the upper one `worse`, whichever is sooner.
    """
    count = len(record.ended_s)
    if not count:
        return None
    launch_s = record.ended_s[-1] / count
    if look is None:
        return launch_s * 2 * FEWEST_LAUNCHES
    gap = look.slowdown
    # How far either end may lie from the value, and how far it does.
    ways = [(gap.value, gap.value - gap.low), (worse - gap.value, gap.high - gap.value)]
    factor = min((width / room) ** 2 for room, width in ways if room > 0)
    return launch_s * max(count + 1, math.ceil(count * factor))


def _first_decided(looks: Iterable[Look], worse: float) -> tuple[Look | None, str]:
    """The look at which the measurement ended, or the last one, and what it decides."""
    look = None
    for look in looks:
        found = decision(look, worse)
        if found != CANNOT_SAY:
            return look, found
    return look, CANNOT_SAY
