"""The benchmark: warm up until stable, count the work once, then measure the steady state.

A measurement in the sense of `hotloop.loop.conduct`: it never calls the loop, it asks for blocks.
`record` holds at any time what it has measured so far, so that an interrupted run can be saved.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hotloop.benchmark.call_cost import CallCost, measure_call_cost
from hotloop.benchmark.peaks import Peaks, measure_peaks
from hotloop.benchmark.timeline import RunningTime, parents, time_and_calls, to_array
from hotloop.benchmark.warmup import WarmUp, warm_up
from hotloop.benchmark.work import Work, WorkCounter, count_work
from hotloop.errors import expect_positive
from hotloop.loop.arm import NAMED, REAL, RECORD, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.event import Event
from hotloop.loop.loop import Loop
from hotloop.loop.malloc import HeldMalloc

# The steady state is measured in blocks of this length; a block is one sample of stage times.
BLOCK_S = 0.1
WARM_UP_SHARE = 0.3  # of the time, at most
RECORDED_ITERATIONS = 2


@dataclass(frozen=True)
class BenchmarkSettings:
    """How long to measure."""

    seconds: float = 10.0
    """Time for warm-up and steady state together, in seconds; a script stops after it."""
    iterations: int | None = None
    """Stop after this many steady iterations instead."""
    price_per_hour: float | None = None
    """What the machine costs an hour, in any currency; overrides the loop's own."""

    def __post_init__(self) -> None:
        expect_positive("seconds", self.seconds)
        expect_positive("iterations", self.iterations)
        expect_positive("price per hour", self.price_per_hour)


@dataclass
class BenchmarkRecord:
    """Raw samples of one benchmark, growing while it runs."""

    loop: Loop | None = None
    price_per_hour: float | None = None
    warm_up: WarmUp | None = None
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    block_of: list[int] = field(default_factory=list)
    stage_ns: list[np.ndarray] = field(default_factory=list)
    stage_running_ns: list[np.ndarray] = field(default_factory=list)
    stage_calls: list[np.ndarray] = field(default_factory=list)
    block_cpu_ns: list[int] = field(default_factory=list)
    block_spinning_cpu_ns: list[int] = field(default_factory=list)
    block_switches: list[int] = field(default_factory=list)
    block_pressure_us: list[int] = field(default_factory=list)
    events: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    stages: list[dict[str, Any]] = field(default_factory=list)
    work: Work | None = None
    work_problem: str | None = None
    peaks: Peaks | None = None
    dropped_before: int = 0
    call_cost: CallCost | None = None  # where that can be known, and is something
    dropped_events: int = 0
    running: RunningTime = field(default_factory=RunningTime)

    def note_stages(self, control: SharedControl, events: Sequence[Event]) -> None:
        """Note the stages that were called, after those that are known."""
        called = {event.stage for event in events} - {stage["index"] for stage in self.stages}
        if not called:
            return
        names, inside = control.names(), parents(events)
        self.stages += [
            {
                "name": name,
                "kind": known.kind,
                "effect": known.effect,
                "inside": None if (p := inside.get(known.index)) is None else names[p],
                "bytes_per_call": known.bytes_per_call or known.tape.bytes_per_call(),
                "cpu_share": known.tape.cpu_share(),
                "index": known.index,
            }
            # As this loop made them, whatever other loops of the process have made before.
            for name, known in sorted(control.stages.items(), key=lambda item: item[1].made)
            if known.index in called
        ]

    def keep(self, block: Block, control: SharedControl) -> None:
        """Keep the samples of a block of steady iterations."""
        number = len(self.stage_ns)
        self.note_stages(control, block.events)  # some are called once in a long while
        self.start_ns += block.start_ns
        self.duration_ns += block.duration_ns
        self.units += block.units
        self.block_of += [number] * len(block.duration_ns)
        count = len(control.names())
        time_ns, calls = time_and_calls(block.events, count)
        columns = [stage["index"] for stage in self.stages]
        self.stage_ns.append(time_ns[columns])
        self.stage_running_ns.append(self.running.add(block.events, count)[columns])
        self.stage_calls.append(calls[columns])
        self.block_cpu_ns.append(block.cpu_ns)
        self.block_spinning_cpu_ns.append(block.spinning_cpu_ns)
        self.block_switches.append(block.switches)
        self.block_pressure_us.append(block.pressure_us)
        self.events = to_array(block.events)
        self.dropped_events = control.workers.dropped_events - self.dropped_before

    def facts(self) -> dict[str, Any]:
        """Return everything that is not an array, for a run file."""
        loop = self.loop
        return {
            "unit": loop.unit if loop else "iterations",
            "batches_per_iteration": loop.batches if loop else 1,
            "price_per_hour": self.price_per_hour,
            "warm_up": asdict(self.warm_up) if self.warm_up else None,
            "stages": self.stages,
            "work": asdict(self.work) if self.work else None,
            "work_problem": self.work_problem,
            "peaks": asdict(self.peaks) if self.peaks else None,
            "dropped_events": self.dropped_events,
            "measuring_ns": asdict(self.call_cost.iteration_ns) if self.call_cost else None,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the raw samples: one row for each iteration, or for each block."""
        return {
            "start_ns": np.array(self.start_ns, np.int64),
            "duration_ns": np.array(self.duration_ns, np.int64),
            "units": np.array(self.units, np.float64),
            "block_of": np.array(self.block_of, np.int64),
            "stage_ns": _stacked(self.stage_ns, len(self.stages)),
            "stage_running_ns": _stacked(self.stage_running_ns, len(self.stages)),
            "stage_calls": _stacked(self.stage_calls, len(self.stages)),
            "block_cpu_ns": np.array(self.block_cpu_ns, np.int64),
            "block_spinning_cpu_ns": np.array(self.block_spinning_cpu_ns, np.int64),
            "block_switches": np.array(self.block_switches, np.int64),
            "block_pressure_us": np.array(self.block_pressure_us, np.int64),
            "events": self.events,
        }


class Benchmark:
    """Measures one loop; `run` is the measurement, `record` what it has found so far."""

    def __init__(self, control: SharedControl, settings: BenchmarkSettings) -> None:
        self.settings = settings
        self.record = BenchmarkRecord()
        self._control = control
        self._now = control.clock.now_ns
        self.record.dropped_before = control.workers.dropped_events

    def run(self, loop: Loop) -> Measurement[None]:
        """Warm up, count, then measure until the time or the iterations are used up."""
        record, settings, control = self.record, self.settings, self._control
        record.loop = loop
        record.price_per_hour = settings.price_per_hour or loop.price_per_hour
        begin = self._now()
        record.warm_up = yield from warm_up(self._now, settings.seconds * WARM_UP_SHARE)
        malloc = HeldMalloc(control.in_own_process)
        malloc.hold()
        yield from self._count_work()
        yield from self._record_stages(loop.in_flight)
        record.call_cost = yield from measure_call_cost(
            control, record.warm_up.ns_per_iteration, settings.seconds
        )
        # What is entered around calls, as for a trace, is entered around those that have a name.
        arm = Arm("steady", rest=REAL if control.annotate is None else NAMED)
        while not self._enough(begin):
            malloc.fill()
            left = settings.iterations and settings.iterations - len(record.duration_ns)
            block = yield Request(arm, iterations=left, seconds=BLOCK_S, phase="steady state")
            record.keep(block, control)
        malloc.release()

    def _enough(self, begin: int) -> bool:
        done = len(self.record.duration_ns)
        if self.settings.iterations is not None:
            return done >= self.settings.iterations
        return done >= 2 and (self._now() - begin) * 1e-9 >= self.settings.seconds

    def _count_work(self) -> Measurement[None]:
        record = self.record
        if not WorkCounter.available():
            record.work_problem = "the loop has not loaded torch; nothing else can be counted"
            return
        record.peaks = measure_peaks()
        record.work = yield from count_work(self._control)
        if not record.work.counted_calls:
            record.work_problem = "torch ran no operation that there is a rule for"

    def _record_stages(self, in_flight: int) -> Measurement[None]:
        """Record a few calls, to learn the bytes that they move and their processor time."""
        control = self._control
        block = yield Request(
            Arm("recording", rest=RECORD),
            # Of a loop with queues, so many iterations may pass without a producer's call.
            iterations=RECORDED_ITERATIONS + in_flight,
            phase="recording",
        )
        self.record.note_stages(control, block.events)
        for known in control.stages.values():
            known.tape.clear()


def _stacked(rows: list[np.ndarray], columns: int) -> np.ndarray:
    """The rows of blocks (blocks, columns); a stage that a block did not know yet had no call."""
    found = np.zeros((len(rows), columns))
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found
