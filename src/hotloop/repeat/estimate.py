"""How much slower B is than A, from the blocks of all launches.

Within a launch the two sides take turns block by block, so what a machine does for longer than a
second is in both. Between launches everything is drawn anew that a process draws when it starts:
where its memory lies, the order of its sets. So a launch is one sample, and the spread of launches
is the error: blocks of one pair of processes would say very exactly how these two differ.

A launch's ratio is one of sums, as rare work of a loop counts with all its weight; only whole
launches that lie far from the others are left out, on both sides alike.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hotloop.loop.figures import Interval, student_quantile
from hotloop.repeat.record import Record
from hotloop.repeat.sequential import Spending

FEWEST_LAUNCHES = 3
TRIMMED, TRIMMED_FROM = 0.2, 10
WAITING = 0.05  # of its own time; a loop that waits more is not bound by the processor
# After many launches one more says little: the next look is a tenth later.
_LOOKS_GROW = 1.1
# The logarithm of a ratio that nobody tells from a larger one. The first looks of a long budget may
# use so little of the error probability that the end of the interval is no number any more.
_LARGEST = 20.0


@dataclass(frozen=True)
class Look:
    """What is known after some launches.

    slowdown: the time of B over that of A, less 1, with an interval that may be looked at again
    and again. error: the standard error of its logarithm. share: of the budget that is used.
    """

    launches: int
    share: float
    slowdown: Interval
    error: float


class Looks:
    """The looks at one comparison, one after the other.

    alpha_low, alpha_high: the probability that the lower, or the upper, end is wrong at any look.
    """

    def __init__(self, alpha_low: float, alpha_high: float) -> None:
        self._low, self._high = Spending(alpha_low), Spending(alpha_high)
        self._next = FEWEST_LAUNCHES
        self.last: Look | None = None

    def look(self, ratio: np.ndarray, share: float) -> Look | None:
        """Look once more, if it is time to, or at the last one (share 1).

        ratio: the logarithm of each launch's ratio, (launches,); share: of the budget.
        """
        count = len(ratio)
        if count < FEWEST_LAUNCHES or (count < self._next and share < 1):
            return None
        if self.last is not None and count == self.last.launches:
            return None
        self._next = max(count + 1, math.ceil(count * _LOOKS_GROW))
        mean, error, degrees = trimmed_mean(ratio)
        below, above = (
            student_quantile(1 - side.level(count, share), degrees) * error
            for side in (self._low, self._high)
        )
        high = math.expm1(min(mean + above, _LARGEST))
        slowdown = Interval(math.expm1(mean), math.expm1(mean - below), high)
        self.last = Look(count, share, slowdown, error)
        return self.last


def trimmed_mean(values: np.ndarray) -> tuple[float, float, int]:
    """The mean without the largest and the smallest fifth, its standard error, its degrees.

    One process in twenty may be a tenth slower than all others from its start to its end, by the
    luck of where its memory lies; a few such launches must not decide. The error is that of the
    values in which the outer fifths are set to the nearest one left (Tukey and McLaughlin 1963,
    with Student's t). Of fewer than 10 values none is left out.
    """
    count = len(values)
    left_out = int(TRIMMED * count) if count >= TRIMMED_FROM else 0
    inner = np.sort(values)[left_out : count - left_out]
    spread = np.clip(values, inner[0], inner[-1]).std(ddof=1)
    error = float(spread) * math.sqrt(count) / len(inner)
    return float(inner.mean()), error, len(inner) - 1


@dataclass(frozen=True)
class Launches:
    """The launches of a record, each with its totals: (launches, 2), A and B.

    waiting: the share of its own time in which a side waited, for a device or another process.
    stolen: the share of the wall time in which other programs had the core.
    """

    seconds: np.ndarray
    units: np.ndarray
    waiting: np.ndarray
    stolen: float

    @property
    def seconds_per_unit(self) -> np.ndarray:
        """(launches, 2)."""
        found: np.ndarray = self.seconds / self.units
        return found

    @property
    def ratio(self) -> np.ndarray:
        """The logarithm of B's time over A's: (launches,)."""
        found: np.ndarray = np.log(self.seconds_per_unit[:, 1] / self.seconds_per_unit[:, 0])
        return found

    @property
    def bound_by_processor(self) -> bool:
        """Whether both sides compute nearly all the time, so that what was stolen is known."""
        shares = np.median(self.waiting, axis=0) if len(self.waiting) else np.ones(2)
        return bool((shares <= WAITING).all())


def launches_of(record: Record) -> Launches:
    """Sum the blocks of each launch, without the time that other programs have taken.

    While a thread is ready to run and another one has its core, time passes and nothing of it
    happens. A user's quiet machine is what is meant.
    """
    columns = record.arrays()
    count = len(record.ended_s)
    cell = (columns["launch"] * 2 + columns["side"]).astype(np.int64)
    whole = columns["launch"] < count

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell[whole], values[whole], 2 * count).reshape(count, 2)

    own = own_ns(columns)
    wall_ns = total(columns["wall_ns"])
    return Launches(
        seconds=total(own) * 1e-9,
        units=total(columns["units"]),
        waiting=total(own - columns["cpu_ns"]) / np.maximum(total(own), 1.0),
        stolen=float(1 - own[whole].sum() / max(wall_ns.sum(), 1.0)),
    )


def spreads(record: Record) -> tuple[float | None, float]:
    """The variances of the logarithm of the ratio: from launch to launch, and from round to round.

    The first is None before the third launch; both without the outer fifths.
    """
    columns = record.arrays()
    per_unit = own_ns(columns) / columns["units"]
    # The blocks of a round follow each other in the record, in the order in which they ran.
    pairs, sides = per_unit.reshape(-1, 2), columns["side"].reshape(-1, 2)
    ratio = np.log(pairs[:, 1] / pairs[:, 0]) * np.where(sides[:, 0] == 0, 1, -1)
    launch = columns["launch"].reshape(-1, 2)[:, 0].astype(np.int64)
    counts = np.bincount(launch)
    means = np.bincount(launch, ratio) / counts
    within = float(((ratio - means[launch]) ** 2).sum() / max(len(ratio) - len(counts), 1))
    if len(counts) < FEWEST_LAUNCHES:
        return None, within
    _, error, _ = trimmed_mean(means)
    return max(0.0, error**2 * len(counts) - within * float((1 / counts).mean())), within


def own_ns(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The time of each block less what other programs took of it: (blocks,).

    A thread that never waited either ran or had lost its core: its processor time is its own time.
    One that did wait has the kernel's count of the time in which it was ready and did not run; on
    some kernels that counts too much, and its own time is never less than its processor time.
    """
    ready = np.maximum(columns["wall_ns"] - columns["stolen_ns"], columns["cpu_ns"])
    found: np.ndarray = np.where(columns["waits"] > 0, ready, columns["cpu_ns"])
    return found


def looks_of(record: Record, alpha_low: float, alpha_high: float) -> Iterator[Look]:
    """All looks at a record, in order, as they were made while it grew."""
    ratio, shares = launches_of(record).ratio, record.shares
    looks = Looks(alpha_low, alpha_high)
    for count in range(1, len(ratio) + 1):
        look = looks.look(ratio[:count], float(shares[count - 1]))
        if look is not None:
            yield look
