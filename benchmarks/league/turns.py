"""Two measurements of one loop at the same time: they take turns, block by block.

A machine that others share changes its speed within seconds, so what is to be compared must run at
the same time.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hotloop.loop.conduct import Measurement, Request

# The first iterations of a turn are not timed: queues and caches are as the other has left them.
DRAIN, DRAIN_S = 8, 0.02


def in_turns(
    first: Measurement[Any],
    second: Measurement[Any],
    begins: Callable[[Request], bool],
    on_iterations: Callable[[int], None],
) -> Measurement[None]:
    """Run `first` alone until it `begins`; from then on who has had less time has the next block.

    on_iterations: told how many there were of which the second does not know.
    """
    measurements, requests, spent_s = (first, second), {0: next(first)}, [0.0, 0.0]
    alone, last = True, 0
    while requests:
        if alone and begins(requests[0]):
            alone, requests[1], spent_s = False, next(second), [0.0, 0.0]
        turn = min(requests, key=lambda k: spent_s[k])
        request = asked = requests[turn]
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
                elif not (asked.drain or asked.drain_s):
                    on_iterations(block.drained)
                requests[turn] = measurements[turn].send(block)
        except StopIteration:
            del requests[turn]
        spent_s[turn] += time.perf_counter() - start
