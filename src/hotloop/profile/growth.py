"""What is allocated and not freed, line by line: which of it makes the loop grow.

What memray calls kept is what it saw being allocated and not freed. Some of that takes the place of
memory that was there before and is freed meanwhile, unseen: in a queue or a ring that is full. By
how much malloc's own count grows says how much.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval, student_interval
from hotloop.profile.places import Site

# Of each turn: what the first part allocates may replace what was there before, unseen.
SKIPPED, SEGMENTS = 0.25, 3
LEAST_SEGMENTS = 3
LEAST_BYTES = 1024  # an iteration; what grows by less is not named
# Of what lines keep: a smaller difference to malloc's count is taken for rounding.
REPLACED_SHARE = 0.05
_MAPPED = ("MMAP",)


@dataclass(frozen=True)
class GrowingLine:
    """A line of a stage whose allocations are not freed, with the bytes that an iteration adds."""

    stage: str
    function: str
    file: str
    line: int
    growth_bytes: Interval


class Growth:
    """The bytes that each line keeps, segment by segment of the turns.

    Mappings are told from what malloc gives out: Python's pools of small objects are mappings, and
    use their own freed places again, so that they grow by no more than they have to.
    """

    def __init__(self) -> None:
        self._segments = 0
        self._given: dict[Site, list[float]] = {}  # by malloc
        self._mapped: dict[Site, list[float]] = {}

    def add(
        self,
        reader: Any,
        begun: tuple[float, int],
        start_ns: np.ndarray,
        sites: Callable[[Any], Iterable[tuple[Site, Any]]],
    ) -> None:
        """Take in one turn: begun, when it was by both clocks; start_ns: (n,) of its iterations."""
        from memray import AllocatorType

        count = len(start_ns)
        first = round(SKIPPED * count)
        marks = np.unique(np.linspace(first, count - 1, SEGMENTS + 1).round().astype(int))
        if count < 2 or len(marks) < 2:
            return
        mapped = {int(kind) for kind in AllocatorType if kind.name in _MAPPED}
        snapshots = np.array([snapshot.time for snapshot in reader.get_memory_snapshots()], float)
        at_ms = begun[0] + (start_ns[marks] - begun[1]) * 1e-6
        at = np.minimum(np.searchsorted(snapshots, at_ms), len(snapshots))
        before, self._segments = self._segments, self._segments + len(marks) - 1
        for site, record in sites(reader.get_temporal_allocation_records(merge_threads=True)):
            grown = np.diff(_live_bytes(record, at)) / np.diff(marks)
            by_site = self._mapped if record.allocator in mapped else self._given
            kept = by_site.setdefault(site, [])
            kept += [0.0] * (self._segments - len(kept))
            for number, value in enumerate(grown):
                kept[before + number] += value

    def whole(self, net: Interval | None) -> Interval | None:
        """The growth of the loop; None with too few segments.

        net: by how much malloc's own count grows in an iteration, which is right where lines that
        are seen to keep something replace what is not seen; None where nothing counts it.
        """
        if net is None or self._segments < LEAST_SEGMENTS:
            return self._sum(self._given, self._mapped)
        mapped = self._sum(self._mapped)
        assert mapped is not None
        reach = float(np.hypot(net.half_width, mapped.half_width))
        value = net.value + mapped.value
        return Interval(value, value - reach, value + reach)

    def replaced(self, net: Interval | None) -> float:
        """The bytes that lines keep in an iteration in place of what was there before."""
        given = self._sum(self._given)
        if net is None or given is None or not net.high < given.value:
            return 0.0
        more = given.value - max(net.value, 0.0)
        return more if more >= max(REPLACED_SHARE * given.value, LEAST_BYTES) else 0.0

    def lines(self, net: Interval | None) -> list[GrowingLine]:
        """The lines that certainly grow, the fastest first.

        A single line that malloc serves has what the heap grows by. Of several, each has what it
        keeps. Where the heap does not grow, they only replace what was there before.
        """
        mapped, given = self._certain(self._mapped), self._certain(self._given)
        if net is not None and self.replaced(net):
            if not is_growth(net):
                given = {}
            elif len(given) == 1:
                given = dict.fromkeys(given, net)
        found = []
        for site in {*mapped, *given}:
            parts = [each[site] for each in (mapped, given) if site in each]
            ends = (sum(getattr(part, end) for part in parts) for end in ("value", "low", "high"))
            found.append(GrowingLine(*site, Interval(*ends)))
        return sorted(found, key=lambda line: -line.growth_bytes.value)

    def _certain(self, by_site: dict[Site, list[float]]) -> dict[Site, Interval]:
        found = {site: self._mean(values) for site, values in by_site.items()}
        return {
            site: growth
            for site, growth in found.items()
            if growth is not None and is_growth(growth)
        }

    def _sum(self, *kinds: dict[Site, list[float]]) -> Interval | None:
        total = np.zeros(self._segments)
        for by_site in kinds:
            for values in by_site.values():
                total[: len(values)] += values
        return mean_of(list(total))

    def _mean(self, values: list[float]) -> Interval | None:
        return mean_of([*values, *[0.0] * (self._segments - len(values))])


def is_growth(growth: Interval) -> bool:
    """Whether a loop certainly grows: hotloop's own notes are some tens of bytes an iteration."""
    return growth.low > 0 and growth.value >= LEAST_BYTES


def mean_of(values: list[float]) -> Interval | None:
    """The mean with its interval by Student's t; None for too few values."""
    if len(values) < LEAST_SEGMENTS:
        return None
    array = np.array(values)
    error = float(array.std(ddof=1)) / len(values) ** 0.5
    return student_interval(float(array.mean()), error, len(values) - 1)


def _live_bytes(record: Any, at: np.ndarray) -> np.ndarray:
    """The bytes of a record that are there at these snapshots, (n,)."""
    live = np.zeros(len(at))
    for interval in record.intervals:
        freed = interval.deallocated_before_snapshot
        there = at >= interval.allocated_before_snapshot
        if freed is not None:
            there &= at < freed
        live += interval.n_bytes * there
    return live
