"""Where the policy acts, by measurement: the same learner with each place, in turns.

What counts is how many env steps a second are learned from: acting and learning share the machine.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hotloop.learn.settings import AUTO, PLACES
from hotloop.loop.race import Race, fastest, is_settled, ratio_of

if TYPE_CHECKING:
    from hotloop.learn.learner import Learner

TURN_S = 0.25  # of each learner in a round, and at least a fragment of every actor
ROUNDS, MIN_ROUNDS = 8, 3  # where time allows, and at least
TIME_S = 20.0
CLOSE = 0.05  # a gain below it, and not proved, is not worth more processes
S = TypeVar("S", bound=Any)
_LOG = logging.getLogger("hotloop")


def placed(kind: "Callable[[S], Learner]", settings: S) -> S:
    """Return settings that say where the policy acts; `auto` is decided by measurement.

    For about eight seconds; for up to twenty where two are close, longer where an iteration takes
    more than a quarter of one. The log says what was measured, at level INFO. Nothing that is
    learned meanwhile is kept.
    Raises: as making the learner and its iterations.
    """
    if settings.policy_at != AUTO:
        return settings
    rates = race(kind, [settings.at(place) for place in PLACES])
    place = PLACES[first_as_fast(rates)]
    measured = ", ".join(
        f"{name} {rate:,.0f}" for name, rate in zip(PLACES, rates.mean(axis=0), strict=True)
    )
    _LOG.info("the policy acts at: %s (env steps a second: %s)", place, measured)
    decided: S = settings.at(place)
    return decided


def first_as_fast(rates: NDArray[np.float64]) -> int:
    """Return the number of the variant to take: the first that is about as fast as the fastest.

    That is, not proved slower, and slower by less than `CLOSE` as it was measured.
    rates: (rounds, variants), those with the fewest processes first.
    """
    best = fastest(rates)
    for variant in range(best):
        ratio = ratio_of(rates, best, variant)
        if ratio.low <= 1 and ratio.value < 1 + CLOSE:
            return variant
    return best


def race(
    kind: "Callable[[S], Learner]", variants: Sequence[S], *, time_s: float | None = None
) -> NDArray[np.float64]:
    """Let learners of several settings work in turns.

    time_s: TIME_S if None; no round begins then, if there were enough, nor when one is proved
    the fastest.
    Returns: the env steps a second of each in each round, (rounds, variants).
    """
    with ExitStack() as stack:
        racers = []
        for settings in variants:
            racers.append(_Racer(kind(settings)))
            stack.callback(racers[-1].close)
        begin, turns = time.monotonic(), Race([racer.rate for racer in racers])
        while True:
            rounds = len(turns.rates)
            if rounds >= MIN_ROUNDS and time.monotonic() - begin > (time_s or TIME_S):
                break
            if rounds >= ROUNDS and is_settled(turns.rates):
                break
            turns.round()
    return turns.rates


class _Racer:
    """A learner that works only in its turns."""

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self._rest = ExitStack()
        try:
            learner.wait_until_started()
            self._pause()
        except BaseException:
            learner.close()
            raise

    def rate(self) -> float:
        """Env steps a second over a turn."""
        self._rest.close()
        # What waits was made before: neither its steps nor its time are of this turn.
        for _ in range(1 + self._learner.in_flight):
            self._learner.iterate()
        begin, steps = time.perf_counter(), 0
        # Actors with envs that wait send their fragments at the same time, in bursts: one that
        # were cut in two would be counted wrong.
        left = max(1, self._learner.in_flight)
        while left > 0 or time.perf_counter() - begin < TURN_S:
            steps += self._learner.iterate()
            left -= 1
        seconds = time.perf_counter() - begin
        self._pause()
        return steps / seconds

    def _pause(self) -> None:
        self._rest.enter_context(self._learner.paused())

    def close(self) -> None:
        """End the learner."""
        self._learner.close()
        self._rest.close()
