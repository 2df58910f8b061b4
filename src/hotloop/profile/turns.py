"""A loop with a profiler and without it, in turns: what the profiler sees, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hotloop.loop.arm import NAMED, REAL, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.figures import Interval, paired_ratio

TURNS = 4


@dataclass
class Turns:
    """The blocks of a loop without a profiler and with it, one after the other.

    growth: of a gauge, an iteration, over each block without the profiler.
    """

    plain: list[Block] = field(default_factory=list)
    growth: list[float] = field(default_factory=list)
    profiled: list[Block] = field(default_factory=list)

    @property
    def slowdown(self) -> Interval:
        """An iteration with the profiler over one without it, of the same time."""
        mine, base = (
            np.array([block.ns_per_iteration for block in blocks[: len(self.profiled)]])
            for blocks in (self.profiled, self.plain)
        )
        return paired_ratio(mine, base).above_zero()

    @property
    def iterations(self) -> int:
        """How many ran with the profiler."""
        return sum(len(block.duration_ns) for block in self.profiled)

    @property
    def seen_iterations(self) -> int:
        """How many the profiler has seen: also those of each turn that were not timed."""
        return self.iterations + sum(block.drained for block in self.profiled)

    @property
    def all_iterations(self) -> int:
        """How many ran with the profiler, and without it."""
        return sum(len(block.duration_ns) + block.drained for block in self.plain + self.profiled)

    @property
    def ns_per_iteration(self) -> float:
        """Mean duration of an iteration without the profiler."""
        took = [time for block in self.plain for time in block.duration_ns]
        return float(np.mean(took))


def in_turns(
    seconds: float,
    start: Callable[[], None],
    stop: Callable[[], None],
    *,
    phase: str,
    turns: int = TURNS,
    gauge: Callable[[], float] = lambda: 0.0,
) -> Measurement[Turns]:
    """Run for so long, half of it with a profiler; start and stop are called between iterations.

    gauge: is read before and after each block without it.
    """
    found = Turns()
    each_s = seconds / (2 * turns)
    for _ in range(turns):
        before = gauge()
        plain = yield Request(Arm("plain", rest=REAL), seconds=each_s, drain=1, phase=phase)
        found.growth.append((gauge() - before) / (len(plain.duration_ns) + plain.drained))
        found.plain.append(plain)
        start()
        try:
            profiled = yield Request(
                Arm("profiled", rest=NAMED), seconds=each_s, drain=1, phase=phase
            )
        finally:
            stop()
        found.profiled.append(profiled)
    return found
