"""What detectors share: the phases of watching a loop, and what was seen in each of them."""

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

import numpy as np

from hotloop.loop.conduct import Block
from hotloop.loop.figures import Figure, Unknown, rate_interval
from hotloop.optimize.advice import Advice, Evidence, Unit
from hotloop.optimize.operations import Operations
from hotloop.optimize.places import Place
from hotloop.optimize.samples import Samples
from hotloop.optimize.tracer import Tracer


class Phase(enum.Enum):
    """A part of the watching, with instruments that do not disturb each other."""

    TIMES = "times"
    """Instruments that cost next to nothing: only here are times taken as the loop's own."""
    OPERATIONS = "operations of torch"
    LINES = "lines of Python"
    GROWTH = "growing containers"
    GARBAGE = "reference cycles"


@dataclass(frozen=True)
class Span:
    """A piece of time on the clock of `time.perf_counter_ns`."""

    start_ns: int
    end_ns: int


@dataclass
class Watched:
    """A loop while it is watched: the findings of the phases so far, and the shared instruments.

    thread: the loop's. iterations: of each phase. times: the iterations of the phase of that name.
    own_threads: the system's numbers of the threads that watch.
    """

    thread: int
    samples: Samples = field(default_factory=Samples)
    operations: Operations = field(default_factory=Operations)
    tracer: Tracer = field(default_factory=Tracer)
    iterations: dict[Phase, int] = field(default_factory=dict)
    times: Block | None = None
    own_threads: set[int] = field(default_factory=set)
    boundaries: list[Callable[[int], None]] = field(default_factory=list)
    """Called in the loop's thread after each block of a phase, with its number of iterations."""

    def per_iteration(self, amount: float, phase: Phase) -> float:
        """An amount that was counted in a phase, by iteration."""
        return amount / max(self.iterations.get(phase, 1), 1)

    def share_of(self, spans: Sequence[Span]) -> Figure:
        """The share of the loop's time in these pieces of it, with the interval of iterations."""
        if self.times is None or not self.times.duration_ns:
            return Unknown("no iteration ended while times were taken")
        starts = np.array(self.times.start_ns)
        within = np.zeros(len(starts))
        noted_until_ns = 0
        for span in sorted(spans, key=attrgetter("start_ns")):
            start_ns = max(span.start_ns, noted_until_ns)  # of two threads they may overlap
            at = int(np.searchsorted(starts, start_ns, side="right")) - 1
            if at >= 0 and span.end_ns > start_ns:
                within[at] += (span.end_ns - start_ns) * 1e-9
            noted_until_ns = max(span.end_ns, noted_until_ns)
        return rate_interval(within, np.array(self.times.duration_ns)).at_most(1.0)

    def advice(
        self,
        detector: str,
        place: Place,
        sentence: str,
        action: str,
        at_most: Figure,
        *evidence: tuple[str, Figure, Unit],
    ) -> Advice:
        """Advice about a place, with the hottest lines of its function."""
        return Advice(
            detector,
            sentence,
            place.file,
            place.line,
            place.function,
            tuple(Evidence(*each) for each in evidence),
            action,
            at_most,
            self.samples.hottest(place.function, place.file),
        )


Instrument = Callable[[Watched], AbstractContextManager[None] | None]


class Detector(Protocol):
    """Watches a loop for one fault.

    phases: for each phase that it takes part in, a function that returns its instrument, or None
    where there is nothing to watch in this loop. The instrument is entered in the loop's thread
    before an iteration, and left after one, also after an error.
    """

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """Its instruments."""
        ...

    def advice(self, watched: Watched) -> list[Advice]:
        """What it found, after all phases."""
        ...
