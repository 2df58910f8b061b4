"""Looking for common faults in a loop's own code: what runs the detectors on a warmed-up loop.

Instruments disturb a loop and each other, so they are on in turns: first those that cost next to
nothing, which give the shares of time; then one phase for each of the heavy ones. After every phase
its instruments are taken off again, also after an error and after Ctrl-C.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from hotloop.benchmark.stack_sampler import StackSampler
from hotloop.benchmark.warmup import warm_up
from hotloop.errors import SettingError, expect_positive, nearest
from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Block, Measurement, Request, drive
from hotloop.loop.control import SharedControl
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.loop import Loop
from hotloop.optimize.advice import Advice
from hotloop.optimize.detectors import DETECTORS
from hotloop.optimize.watched import Detector, Phase, Watched

DEFAULT_S = 10.0


@dataclass(frozen=True)
class Plan:
    """How a phase is run: its part of the seconds, in blocks of so many iterations at most."""

    share: float
    blocks: int = 1
    most_iterations: int | None = None


PLANS = {
    Phase.TIMES: Plan(0.35),
    Phase.OPERATIONS: Plan(0.15),
    Phase.LINES: Plan(0.25),
    Phase.GROWTH: Plan(0.15, blocks=8),
    # All garbage of these iterations is kept, and looked at one by one.
    Phase.GARBAGE: Plan(0.10, most_iterations=5),
}


def detect(
    iterate: Callable[[], Any],
    *,
    seconds: float = DEFAULT_S,
    detectors: Sequence[str] = tuple(DETECTORS),
) -> list[Advice]:
    """Watch a warmed-up loop for common faults; return advice, the largest share of time first.

    iterate: runs one iteration. seconds: for how long to watch, in whole iterations; a phase runs
    at least one. detectors: names in the table of detectors.

    Raises: SettingError for an unknown name, or seconds that are not above 0; whatever the loop
    raises. Nothing stays patched, whatever is raised.
    """

    def body() -> int:
        iterate()
        return 1

    loop = Loop(body)
    # A control of its own: the stages of the loop go on as they are.
    return drive(loop, Detection(seconds=seconds, detectors=detectors).run(loop), SharedControl())


class Detection:
    """The detectors as a measurement, for a loop or a script; `advice` is what they found.

    warm_up_s: run the loop until it is stable before it is watched, for so long at most; 0 for one
    that is warm.
    """

    def __init__(
        self,
        *,
        seconds: float = DEFAULT_S,
        detectors: Sequence[str] = tuple(DETECTORS),
        warm_up_s: float = 0.0,
    ) -> None:
        expect_positive("seconds", seconds)
        expect_positive("warm_up_s", warm_up_s or None)
        for name in detectors:
            if name not in DETECTORS:
                raise SettingError(f"there is no detector {name!r}{nearest(name, DETECTORS)}")
        self.advice: list[Advice] = []
        self._seconds = seconds
        self._warm_up_s = warm_up_s
        self._names = list(dict.fromkeys(detectors))

    def run(self, loop: Loop) -> Measurement[list[Advice]]:
        """Watch the loop, phase by phase."""
        del loop  # a script has no body to look at: what is known of a loop is what is watched
        if self._warm_up_s:
            yield from warm_up(time.perf_counter_ns, self._warm_up_s)
        detectors = [DETECTORS[name]() for name in self._names]
        watched = Watched(threading.get_ident())
        for phase, plan in PLANS.items():
            yield from _watch(phase, plan, watched, detectors, plan.share * self._seconds)
        found = [each for detector in detectors for each in detector.advice(watched)]
        self.advice = sorted(found, key=_share_of, reverse=True)
        return self.advice


def _watch(
    phase: Phase, plan: Plan, watched: Watched, detectors: Sequence[Detector], seconds: float
) -> Measurement[None]:
    """Run one phase, if a detector has something to watch in it; times are always needed."""
    with ExitStack() as stack:
        wanted = [detector.phases[phase] for detector in detectors if phase in detector.phases]
        instruments = [instrument for make in wanted if (instrument := make(watched)) is not None]
        if not instruments and phase is not Phase.TIMES:
            return
        watched.iterations[phase] = 0
        for instrument in instruments:
            stack.enter_context(instrument)
        # Last on and first off: it sees the loop, and not the instruments being put up.
        if phase in _SHARED:
            stack.enter_context(_SHARED[phase](watched, seconds))
        for _ in range(plan.blocks):
            block = yield Request(
                Arm(phase.value, rest=REAL),
                iterations=plan.most_iterations,
                seconds=seconds / plan.blocks,
                phase=phase.value,
            )
            _note(phase, watched, block)


def _note(phase: Phase, watched: Watched, block: Block) -> None:
    iterations = len(block.duration_ns)
    watched.iterations[phase] += iterations
    if phase is Phase.TIMES:
        watched.times = block
    for boundary in watched.boundaries:
        boundary(iterations)


@contextmanager
def _sampling(watched: Watched, _seconds: float) -> Iterator[None]:
    sampler = StackSampler(watched.samples.take)
    sampler.start()
    watched.own_threads.add(sampler.thread_number)
    try:
        yield
    finally:
        sampler.stop()


_SHARED: Mapping[Phase, Callable[[Watched, float], AbstractContextManager[None]]] = {
    Phase.TIMES: _sampling,
    Phase.OPERATIONS: lambda watched, seconds: watched.operations.watching(seconds),
    Phase.LINES: lambda watched, seconds: watched.tracer.watching(seconds),
}


def _share_of(advice: Advice) -> float:
    share = advice.at_most
    if isinstance(share, Unknown):
        return -1.0
    return share.value if isinstance(share, Interval) else share
