"""The answer of a comparison: faster, slower, the same within a margin, or cannot say."""

import math
from dataclasses import dataclass

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.repeat.estimate import FEWEST_LAUNCHES, Look, launches_of, looks_of
from hotloop.repeat.record import Record

ALPHA = 0.05
"""The probability that the interval of a comparison does not hold the truth at some look."""
FASTER, SLOWER, SAME, CANNOT_SAY = "faster", "slower", "same", "cannot say"


@dataclass(frozen=True)
class Verdict:
    """B against A.

    verdict: "faster", "slower", "same" or "cannot say". ratio: the time of B for one unit over
    that of A. rate_a, rate_b: units per second of quiet machine. needed_s: about how long it takes
    to know, None if it is known. stolen: the share of the wall time that other programs took.
    bound_by_processor: whether both sides compute all the time.
    """

    verdict: str
    ratio: Figure
    margin: float
    rate_a: Figure
    rate_b: Figure
    unit: str
    launches: int
    seconds: float
    needed_s: float | None
    stolen: float
    bound_by_processor: bool


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
    return described(record, look, margin, found)


def described(record: Record, look: Look | None, margin: float, verdict: str) -> Verdict:
    """A verdict with its figures.

    look: the last one, None if too few launches were made for one.
    """
    launches = launches_of(record)
    count = len(launches.seconds)
    rates = [_rate(launches.units[:, side], launches.seconds[:, side]) for side in (0, 1)]
    few = Unknown(f"{count} of the {FEWEST_LAUNCHES} launches that an interval needs were made")
    ratio: Figure = few
    if look is not None:
        gap = look.slowdown
        ratio = Interval(1 + gap.value, 1 + gap.low, 1 + gap.high)
    return Verdict(
        verdict=verdict,
        ratio=ratio,
        margin=margin,
        rate_a=rates[0],
        rate_b=rates[1],
        unit=record.unit,
        launches=count,
        seconds=record.ended_s[-1] if count else 0.0,
        needed_s=needed_s(record, look, margin) if verdict == CANNOT_SAY else None,
        stolen=launches.stolen,
        bound_by_processor=launches.bound_by_processor,
    )


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
