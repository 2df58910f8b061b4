"""The answer of a comparison: faster, slower, the same within a margin, or cannot say."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.repeat.estimate import FEWEST_LAUNCHES, Look, launches_of, looks_of
from hotloop.repeat.record import Record

ALPHA = 0.05
"""The probability that the interval of a comparison does not hold the truth at some look."""
FASTER, SLOWER, SAME, CANNOT_SAY = "faster", "slower", "same", "cannot say"


@dataclass(frozen=True)
class Measured:
    """What a comparison and a gate have both measured.

    rate_a, rate_b: units per second of quiet machine. needed_s: about how long it takes to know,
    None if it is known. stolen: the share of the wall time that other programs took.
    bound_by_processor: whether both sides compute all the time.
    """

    rate_a: Figure
    rate_b: Figure
    unit: str
    launches: int
    seconds: float
    needed_s: float | None
    stolen: float
    bound_by_processor: bool


@dataclass(frozen=True)
class Verdict(Measured):
    """B against A.

    verdict: "faster", "slower", "same" or "cannot say". ratio: the time of B for one unit over
    that of A.
    """

    verdict: str
    ratio: Figure
    margin: float


def said(look: Look, margin: float) -> str:
    """What a look says."""
    low, high = look.slowdown.low, look.slowdown.high
    if -margin < low and high < margin:
        return SAME
    if low > 0:
        return SLOWER
    return FASTER if high < 0 else CANNOT_SAY


def judge(record: Record, margin: float) -> Verdict:
    """The verdict on what was measured."""
    look = None
    for look in looks_of(record, ALPHA / 2, ALPHA / 2):  # noqa: B007 - the last one counts
        pass
    found = CANNOT_SAY if look is None else said(look, margin)
    gap = too_few(record) if look is None else look.slowdown
    return Verdict(
        verdict=found,
        ratio=ratio_of(gap) if isinstance(gap, Interval) else gap,
        margin=margin,
        **measured(record, needed_s(record, look, margin) if found == CANNOT_SAY else None),
    )


def ratio_of(slowdown: Interval) -> Interval:
    """The time of B over that of A."""
    return Interval(1 + slowdown.value, 1 + slowdown.low, 1 + slowdown.high)


def too_few(record: Record) -> Unknown:
    """The slowdown of a record with too few launches for an interval."""
    return Unknown(
        f"{len(record.ended_s)} of the {FEWEST_LAUNCHES} launches that an interval needs were made"
    )


def measured(record: Record, needed: float | None) -> dict[str, Any]:
    """The fields of `Measured`. needed: the time that it takes to know, in seconds."""
    launches = launches_of(record)
    first, second = (_rate(launches.units[:, side], launches.seconds[:, side]) for side in (0, 1))
    return {
        "rate_a": first,
        "rate_b": second,
        "unit": record.unit,
        "launches": len(launches.seconds),
        "seconds": record.ended_s[-1] if record.ended_s else 0.0,
        "needed_s": needed,
        "stolen": launches.stolen,
        "bound_by_processor": launches.bound_by_processor,
    }


def needed_s(record: Record, look: Look | None, margin: float) -> float | None:
    """About how many seconds such a comparison takes until it is known, None without a guess.

    The interval shrinks with the root of the launches. It must leave out 0, or lie within the
    margin, whichever is sooner; for a difference of half the margin it takes longest.
    """
    count = len(record.ended_s)
    if not count:
        return None
    launch_s = record.ended_s[-1] / count
    if look is None:
        return launch_s * 2 * FEWEST_LAUNCHES
    away = abs(look.slowdown.value)
    wanted = max(away, margin - away)
    return launch_s * max(count + 1, math.ceil(count * (look.slowdown.half_width / wanted) ** 2))


def _rate(units: np.ndarray, seconds: np.ndarray) -> Figure:
    if not seconds.sum():
        return Unknown("nothing was measured")
    return float(units.sum() / seconds.sum())
