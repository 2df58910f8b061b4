"""How much more a measured call of a stage costs than one that is not measured."""

import statistics
from dataclasses import dataclass

from hotloop.loop.arm import FREE, OFF, REAL, RECORD, Arm
from hotloop.loop.clock import Clock
from hotloop.loop.control import SharedControl
from hotloop.loop.stage import Stage

CALLS, REPETITIONS = 100, 15
# What a probe takes depends on the caches of the loop that it stands in.
ERROR_SHARE = 0.3


@dataclass(frozen=True)
class ProbeCost:
    """In ns a call: the cost of timing it, and of replaying it.

    Both are of calls that follow each other. more_ns: how much more either costs in the loop
    itself. iteration_ns: what it takes in an iteration to see that it has ended. error_share: by
    how much all of this may be off.
    """

    timed_ns: float = 0.0
    replayed_ns: float = 0.0
    more_ns: float = 0.0
    iteration_ns: float = 0.0
    error_share: float = ERROR_SHARE


def probe_cost(clock: Clock) -> ProbeCost:
    """Measure the cost of the probe on this machine as it is now; takes some 10 ms.

    The calls follow each other here. Where a loop fills the caches between two of them they cost
    more: up to 5 µs after a sweep through all of a level 2 cache.
    """
    control = SharedControl(clock)
    call = Stage("nothing", effect="pure", control=control)(lambda: None)
    control.set(Arm("recording", rest=RECORD))
    call()
    found: dict[str, list[int]] = {}
    arms = [Arm("off", rest=OFF), Arm("timed", rest=REAL), Arm("free", rest=FREE)]
    for _ in range(REPETITIONS):
        for arm in arms:
            control.set(arm)
            begin = clock.now_ns()
            for _ in range(CALLS):
                call()
            found.setdefault(arm.name, []).append(clock.now_ns() - begin)
            control.drain_events()
    off, timed, free = (statistics.median(found[arm.name]) / CALLS for arm in arms)
    return ProbeCost(max(0.0, timed - off), max(0.0, free - off))
