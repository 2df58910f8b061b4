"""Two measurements of one loop at the same time: they take turns, block by block.

A machine that others share changes its speed within seconds, so what is to be compared must run at
the same time.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from statistics import median
from typing import Any

from hotloop.loop.conduct import Measurement, Request

# The first iterations of a turn are not timed: queues and caches are as the other has left them.
DRAIN, DRAIN_S = 8, 0.02


def in_turns(
    first: Measurement[Any],
    second: Measurement[Any],
    begins: tuple[Callable[[Request], bool], Callable[[Request], bool]],
    on_iterations: Callable[[int], None],
) -> Measurement[None]:
    """Let each prepare alone; then who has had less time has the next block, until one is through.

    begins: which request of each is the first of those that count. on_iterations: told how many
    iterations there were of which the second does not know.
    A block of the first that is to take some time gets a number of iterations instead: what ends
    by the clock ends in a long iteration more often than not, and the ones after it are drained.
    """
    measurements = (first, second)
    requests = [next(measurement) for measurement in measurements]
    preparing, spent_s, last = [0, 1], [0.0, 0.0], 0
    paces_ns: list[int] = []  # of iterations of the first, while it prepares
    while True:
        while preparing and begins[preparing[0]](requests[preparing[0]]):
            del preparing[0]
            spent_s = [0.0, 0.0]
        turn = preparing[0] if preparing else int(spent_s[1] < spent_s[0])
        request = asked = requests[turn]
        if turn == 0 and not preparing and request.seconds is not None:
            iterations = ceil(request.seconds * 1e9 / median(paces_ns))
            request = replace(request, seconds=None, iterations=iterations)
        if turn != last:
            request = replace(
                request, drain=max(request.drain, DRAIN), drain_s=max(request.drain_s, DRAIN_S)
            )
        last, start = turn, time.perf_counter()
        try:
            try:
                block = yield request
            except Exception as error:
                requests[turn] = measurements[turn].throw(error)
            else:
                if turn == 0:
                    on_iterations(block.drained + len(block.duration_ns))
                    paces_ns += block.duration_ns if preparing else []
                elif not (asked.drain or asked.drain_s):
                    on_iterations(block.drained)
                requests[turn] = measurements[turn].send(block)
        except StopIteration:
            measurements[1 - turn].close()
            return
        spent_s[turn] += time.perf_counter() - start
