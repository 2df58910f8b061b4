"""Running a loop until its speed is stable; the first iteration is reported on its own."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Measurement, Request

# Warm-up ends when three neighbouring windows agree this well, two by two.
STABLE = 0.05
WINDOW_S = 0.2


@dataclass
class WarmUp:
    """The start of a loop: its first iteration, and how long it took to be stable."""

    first_iteration_s: float
    iterations: int = 1
    seconds: float = 0.0
    stable: bool = False
    ns_per_iteration: float = 0.0


def warm_up(
    now_ns: Callable[[], int], limit_s: float, window_s: float = WINDOW_S
) -> Measurement[WarmUp]:
    """Run until stable, for `limit_s` at most but never less than two iterations.

    window_s: the length of the windows that must agree.
    """
    begin = now_ns()
    first = yield Request(Arm("first", rest=REAL), iterations=1, phase="first iteration")
    found = WarmUp(first_iteration_s=sum(first.duration_ns) * 1e-9)
    arm = Arm("warm-up", rest=REAL)
    last: float | None = None
    agreeing = 0
    while not found.stable:
        window = yield Request(arm, seconds=window_s, phase="warm-up")
        found.iterations += len(window.duration_ns)
        found.ns_per_iteration = float(np.median(window.duration_ns))
        agreeing = agreeing + 1 if last and abs(found.ns_per_iteration / last - 1) < STABLE else 0
        last = found.ns_per_iteration
        found.stable = agreeing == 2
        if (now_ns() - begin) * 1e-9 >= limit_s:
            break
    found.seconds = (now_ns() - begin) * 1e-9
    return found
