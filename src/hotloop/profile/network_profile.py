"""What goes over the wire: bytes and waiting by stage, way and line, beside the kernel's sums."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import psutil

from hotloop.loop.conduct import Measurement
from hotloop.loop.control import SharedControl
from hotloop.profile.kernel_traffic import KernelCounter, KernelTraffic
from hotloop.profile.ray_traffic import write_timeline
from hotloop.profile.segments import Segment, shared_segments
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.stacks import REST
from hotloop.profile.stage_clock import StageClock
from hotloop.profile.tool import Overhead
from hotloop.profile.traffic import Amount, Source, Traffic
from hotloop.profile.turns import Turns, in_turns
from hotloop.profile.under_way import innermost

NAME = "hotloop's own count"
MOST_PLACES = 40


@dataclass(frozen=True)
class Wire:
    """What was moved in an iteration, and the time within the calls that do it."""

    calls: float
    sent_bytes: float
    received_bytes: float
    waited_ns: float


@dataclass(frozen=True)
class StageTraffic:
    """A stage with its inner ones. The rest is what is in no stage, on any thread.

    time_ns: of all its calls in an iteration. blocked_ns: how long the kernel let its threads wait;
    queued_ns: how long they were ready, while others had the processor; both None where that is not
    known: of asyncio's stages, and of the rest. declared_bytes: those that the stage says it moves.
    """

    stage: str
    wire: Wire
    time_ns: float | None
    blocked_ns: float | None
    queued_ns: float | None
    declared_bytes: float | None

    @property
    def working_ns(self) -> float | None:
        """Its time less its waiting in calls that send, receive or wait."""
        return None if self.time_ns is None else max(self.time_ns - self.wire.waited_ns, 0.0)


@dataclass(frozen=True)
class KindTraffic:
    """What goes one way, in the innermost stage."""

    stage: str
    kind: str
    wire: Wire


@dataclass(frozen=True)
class PlaceTraffic:
    """What a line of the user's code moves, or waits for, in the innermost stage."""

    stage: str
    kind: str
    function: str
    file: str
    line: int
    wire: Wire


@dataclass
class NetworkProfile:
    """What goes over the wire in an iteration.

    tcp: of Python's calls on TCP sockets alone, to compare with the kernel's sums; kernel: None
    where it does not tell. processes: children of this one, in which nothing is seen. knows_queue:
    whether the kernel tells the time in its run queue. ray_timeline: the file of Ray's timeline.
    """

    overhead: Overhead
    tcp: Wire
    processes: int
    knows_queue: bool
    kernel: KernelTraffic | None = None
    ray_timeline: str | None = None
    stages: list[StageTraffic] = field(default_factory=list)
    kinds: list[KindTraffic] = field(default_factory=list)
    places: list[PlaceTraffic] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)


def profile_network(
    control: SharedControl, settings: ProfileSettings
) -> Measurement[NetworkProfile]:
    """Count what is sent and received, in turns with iterations in which nothing is counted."""
    window = _Window(control)
    turns = yield from in_turns(
        settings.seconds, window.start, window.stop, phase="profiling the network"
    )
    timeline = write_timeline()
    sums = _Sums(window.traffic.amounts(), turns)
    return NetworkProfile(
        overhead=Overhead(NAME, turns.slowdown, turns.iterations),
        tcp=sums.by(lambda source: [source.kind.startswith("TCP")]).get(True, Wire(0, 0, 0, 0)),
        processes=len(psutil.Process().children(recursive=True)),
        knows_queue=window.clock.knows_queue,
        kernel=window.kernel.traffic(turns.seen_iterations) if window.kernel is not None else None,
        ray_timeline=None if timeline is None else str(timeline),
        stages=_stages(control, sums, window.clock),
        kinds=sums.kinds(),
        places=sums.places(),
        segments=shared_segments(),
    )


class _Window:
    """What is counted between `start` and `stop`, each time."""

    def __init__(self, control: SharedControl) -> None:
        self.traffic, self.clock = Traffic(control.clock), StageClock(control.clock)
        self.kernel = KernelCounter() if KernelCounter.available() else None
        self._control = control

    def start(self) -> None:
        """Begin to count."""
        self._control.annotate = self.clock.annotate
        if self.kernel is not None:
            self.kernel.start()
        self.traffic.start()

    def stop(self) -> None:
        """End counting; may be called twice."""
        self.traffic.stop()
        if self.kernel is not None:
            self.kernel.stop()
        self._control.annotate = None


K = TypeVar("K", bound=Hashable)


class _Sums:
    """The traffic of an iteration, by stage, kind and place."""

    def __init__(self, amounts: dict[Source, Amount], turns: Turns) -> None:
        self.turns = turns
        self._amounts = amounts

    def by(self, keys: Callable[[Source], Iterable[K]]) -> dict[K, Wire]:
        """Add up what has a key in common."""
        found: dict[K, Amount] = defaultdict(Amount)
        for source, amount in self._amounts.items():
            for key in keys(source):
                found[key].add(amount)
        return {key: self._wire(amount) for key, amount in found.items()}

    def kinds(self) -> list[KindTraffic]:
        """By the innermost stage and kind, what moves the most first."""
        found = self.by(lambda source: [(innermost(source.stages), source.kind)])
        return [KindTraffic(*key, wire) for key, wire in _largest(found)]

    def places(self) -> list[PlaceTraffic]:
        """By place, those that move the most, and those that wait the most."""
        found = self.by(lambda source: [(innermost(source.stages), source.kind, *source.site)])
        by_bytes = _largest(found)[: MOST_PLACES // 2]
        by_waiting = sorted(found.items(), key=lambda item: -item[1].waited_ns)
        chosen = dict([*by_bytes, *by_waiting[: MOST_PLACES // 2]])
        return [PlaceTraffic(*key, wire) for key, wire in chosen.items()]

    def _wire(self, amount: Amount) -> Wire:
        count = self.turns.seen_iterations
        return Wire(
            amount.calls / count,
            amount.sent / count,
            amount.received / count,
            amount.waited_ns / count,
        )


def _largest(found: dict[K, Wire]) -> list[tuple[K, Wire]]:
    return sorted(found.items(), key=lambda item: -(item[1].sent_bytes + item[1].received_bytes))


def _stages(control: SharedControl, sums: _Sums, clock: StageClock) -> list[StageTraffic]:
    """All stages that were called, and the rest if anything moves there."""
    wires = sums.by(lambda source: {*source.stages} or {REST})
    names, count, seen = control.names(), sums.turns.iterations, sums.turns.seen_iterations
    took: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for block in sums.turns.profiled:
        for event in block.events:
            took[names[event.stage]] += event.end_ns - event.start_ns
            calls[names[event.stage]] += 1
    found = []
    for name in {*took, *wires}:
        timed = clock.times.get(name)
        known = control.stages.get(name)
        each = None if known is None else known.bytes_per_call
        found.append(
            StageTraffic(
                name,
                wires.get(name, Wire(0, 0, 0, 0)),
                took[name] / count if name in took else None,
                None if timed is None else timed.blocked_ns / seen,
                None if timed is None or not clock.knows_queue else timed.queued_ns / seen,
                None if each is None else float(each) * calls[name] / count,
            )
        )
    return sorted(found, key=lambda stage: -stage.wire.waited_ns)
