"""Running a loop in blocks, whether hotloop or a user's script runs its iterations.

A measurement is a generator: it yields a `Request` (run so many iterations under this arm) and is
sent the `Block` that was measured. The `Conductor` turns that into what happens at the end of each
iteration, so that the same measurement works on a `Loop` whose body hotloop calls, and on a user's
script that only says where its iterations end.
"""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hotloop.errors import LoopError
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.control import SharedControl
from hotloop.loop.event import Event
from hotloop.loop.gauges import AllGauges, Gauges
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop, checked_units

# The observer is called no more often than this.
TICK_NS = 400_000_000
# At most so many iterations are drained until a time has passed: they may take no time at all.
MOST_DRAINED = 1_000


@dataclass(frozen=True)
class Request:
    """One block to run.

    iterations: how many are timed; seconds: or as many as start within this time; with both, what
    comes first.
    drain: iterations before them, under the same arm, that are not timed: they use up what is
    still in flight from the arm before. drain_s: and as many as start within this time and one
    more, up to `MOST_DRAINED`: what the arm before left in the caches is gone then.
    at_start: called before the drain; before_last_drained: before the last iteration of it;
    before: after it, before the first timed iteration. What other threads do during that call, the
    first timed iteration need not do: where they run beside the loop, it must be short.
    at_end: called when the last timed iteration has ended, within its time.
    until_ns: when to end the block even if it is not complete, on the control's clock.
    """

    arm: Arm
    iterations: int | None = None
    seconds: float | None = None
    drain: int = 0
    drain_s: float = 0.0
    at_start: Callable[[], None] | None = None
    before_last_drained: Callable[[], None] | None = None
    before: Callable[[], None] | None = None
    at_end: Callable[[], None] | None = None
    phase: str = ""
    until_ns: int | None = None


@dataclass
class Block:
    """The samples of one block: a duration and a number of units for each iteration."""

    request: Request
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    drained: int = 0  # iterations that were not timed
    cut: bool = False  # ended by `until_ns`, drained and timed iterations may be missing
    cpu_ns: int = 0  # processor time of the main thread
    process_cpu_ns: int = 0  # of all threads of this process
    helpers_cpu_ns: int = 0  # of those of them that help the main thread, see `HelperThreads`
    spinning_cpu_ns: int = 0  # of those helpers that spin between two tasks
    stolen_ns: int = 0  # the main thread was ready to run, and another program had its core
    descendants_cpu_ns: int = 0  # of the processes that this one has started
    wall_ns: int = 0
    switches: int = 0  # involuntary context switches of this process
    waits: int = 0  # voluntary context switches of the main thread: it had to wait for something
    pressure_us: int = 0  # time in which some task of the machine waited for a core
    delayed_ns: dict[str, int] = field(default_factory=dict)

    @property
    def ns_per_iteration(self) -> float:
        """Mean duration of an iteration, in ns."""
        return sum(self.duration_ns) / len(self.duration_ns)


T = TypeVar("T")
Measurement = Generator[Request, Block, T]
Observer = Callable[["Conductor"], None]


class StoppedByMeasurement(BaseException):
    """Ends a user's script when the measurement has what it needs; no error."""


class Conductor:
    """Gives a measurement its blocks, at the boundaries between iterations.

    `begin` once, then `boundary` at the end of every iteration until `finished`.
    """

    def __init__(
        self,
        measurement: Measurement[Any],
        control: SharedControl,
        *,
        name: str,
        unit: str,
        observer: Observer | None = None,
        gauges: Gauges | None = None,
    ) -> None:
        """Prepare it. gauges: what is read around each block; None reads all that there is."""
        self.name, self.unit = name, unit
        self.control = control
        self.finished = False
        self.result: Any = None
        self.iterations_done = 0
        self.units_done = 0.0
        self.first_iteration_end_ns: int | None = None
        self.block: Block | None = None
        self._measurement = measurement
        self._observer = observer
        self._now = control.clock.now_ns
        self._gauges = AllGauges(control.clock, control.helpers) if gauges is None else gauges
        self._drain_left = 0  # iterations; stays at 2 while the time is not up
        self._drain_end = 0
        self._opened = 0  # when the block's timing began
        self._iteration_start = 0
        self._deadline: int | None = None
        self._until: int | None = None
        self._next_tick = 0
        self.paused = False
        self._paused_at = 0

    def begin(self) -> None:
        """Start the first block, just before the first iteration."""
        self.control.main_thread = threading.get_ident()
        self._advance(None)
        self._iteration_start = self._now()

    def boundary(self, units: object) -> None:
        """Note that an iteration has ended, with so many units; the next starts on return.

        Raises: LoopError for units that cannot be counted.
        """
        self._before_end()
        end = self._now()
        count = float(units) if type(units) is int else checked_units(units, self.name, self.unit)
        block = self.block
        if block is None:
            return
        self.iterations_done += 1
        self.control.iteration[0] += 1
        self.units_done += count
        if self.first_iteration_end_ns is None:
            self.first_iteration_end_ns = end
        if self._drain_left:
            block.drained += 1
            late = end >= self._drain_end or block.drained >= MOST_DRAINED - 1
            if self._drain_left != 2 or late:
                self._drain_left -= 1
            if self._until is not None and end >= self._until:
                block.cut = True
                self._advance(block)
            elif self._drain_left == 1:
                self._before_last_drained(block)
            elif not self._drain_left:
                self._open(block)
        else:
            block.start_ns.append(self._iteration_start)
            block.duration_ns.append(end - self._iteration_start)
            block.units.append(count)
            block.cut = self._until is not None and end >= self._until
            if (
                len(block.duration_ns) == block.request.iterations
                or (self._deadline is not None and end >= self._deadline)
                or block.cut
            ):
                self._advance(self._closed(block))
        if self._observer is not None and end >= self._next_tick:
            self._next_tick = end + TICK_NS
            self._observer(self)
        self._iteration_start = self._now()

    def pause(self) -> None:
        """Leave out what follows, until `resume`: it is no part of the loop that is measured.

        The iteration that had begun is left out with it. Nothing is changed meanwhile.
        """
        block = self.block
        if block is None or self.paused:
            return
        self.paused = True
        if not self._drain_left:
            begun = self._iteration_start
            block.events += [e for e in self.control.drain_events() if e.start_ns < begun]
            self._read(block, +1)
        self._paused_at = self._now()
        self.control.set(Arm("paused", rest=REAL))

    def resume(self) -> None:
        """Go on with the block, at the start of an iteration."""
        block = self.block
        if block is None or not self.paused:
            return
        self.paused = False
        away = self._now() - self._paused_at
        self.control.set(block.request.arm)
        self.control.drain_events()
        if not self._drain_left:
            self._read(block, -1)
            if self._deadline is not None:
                self._deadline += away
        self._iteration_start = self._now()

    def _before_end(self) -> None:
        """Do what a request asks for at the end of its last iteration."""
        block = self.block
        if block is None or block.request.at_end is None or self._drain_left:
            return
        if len(block.duration_ns) + 1 == block.request.iterations:
            block.request.at_end()

    def abandon(self) -> None:
        """Stop measuring because the loop will not go on, and let the measurement clean up."""
        self._measurement.close()
        self._stop()

    def fail(self, error: BaseException) -> bool:
        """Offer the error that an iteration raised to the measurement.

        Returns: whether the measurement took it and asked for another block; else the caller
        raises the error.
        """
        if self.block is None:
            return False
        try:
            request = self._measurement.throw(error)
        except StopIteration as stop:
            self.result = stop.value
            self._stop()
            return True
        self._start(request)
        self._iteration_start = self._now()
        return True

    def _advance(self, block: Block | None) -> None:
        try:
            request = next(self._measurement) if block is None else self._measurement.send(block)
        except StopIteration as stop:
            self.result = stop.value
            self._stop()
            return
        self._start(request)

    def _start(self, request: Request) -> None:
        self.block = block = Block(request)
        self.control.set(request.arm)
        if request.at_start is not None:
            request.at_start()
        self._drain_left = max(request.drain, 2 if request.drain_s else 0)
        self._drain_end = self._now() + round(request.drain_s * 1e9)
        self._until = request.until_ns
        if self._drain_left == 1:
            self._before_last_drained(block)
        elif not self._drain_left:
            self.control.drain_events()
            self._open(block)

    def _before_last_drained(self, block: Block) -> None:
        if block.request.before_last_drained is not None:
            block.request.before_last_drained()
        self.control.drain_events()

    def _open(self, block: Block) -> None:
        """Begin to time. The loop's other threads run meanwhile, so it must be short."""
        if block.request.before is not None:
            block.request.before()
        self.control.fetch_reports()
        for known in self.control.stages.values():
            known.delayed_ns = 0
        self._gauges.search()
        block.delayed_ns = {
            name: -self.control.workers.delay_ns(known.index)
            for name, known in self.control.stages.items()
        }
        self._read(block, -1)
        self._opened = self._now()
        seconds = block.request.seconds
        self._deadline = None if seconds is None else self._opened + round(seconds * 1e9)

    def _closed(self, block: Block) -> Block:
        self._read(block, +1)
        block.stolen_ns = self._stolen_ns(block)
        # A GPU is waited for here and nowhere else; what it still had to do belongs to the block.
        if self.control.gpu is not None:
            before = self._now()
            self.control.gpu.synchronize()
            block.duration_ns[-1] += self._now() - before
        self.control.fetch_reports()
        for name, known in self.control.stages.items():
            block.delayed_ns[name] = (
                block.delayed_ns.get(name, 0)
                + known.delayed_ns
                + self.control.workers.delay_ns(known.index)
            )
        # Those that had ended before are of the last drained iteration.
        block.events += [e for e in self.control.drain_events() if e.end_ns > self._opened]
        return block

    def _read(self, block: Block, sign: int) -> None:
        """Add all gauges to a block's sums: with -1 where something begins, with +1 at its end."""
        for name, value in self._gauges.read()._asdict().items():
            setattr(block, name, getattr(block, name) + sign * value)

    def _stolen_ns(self, block: Block) -> int:
        """What other programs took at least, of the time that the main thread stood in the queue.

        Some kernels count more than the time in which it did not run. While it stands there, every
        core that it may use is taken: the loop's own other threads and processes have had no more
        of that time than what they have used of all cores together.
        """
        queued_ns = min(block.stolen_ns, block.wall_ns - block.cpu_ns)
        if queued_ns <= 0:
            return 0
        others_ns = block.process_cpu_ns - block.cpu_ns + block.descendants_cpu_ns
        return max(0, queued_ns - round(others_ns / max(1.0, usable_cores())))

    def _stop(self) -> None:
        self.finished = True
        self.block = None
        self.control.set(Arm("off", rest=OFF))
        self._gauges.close()


def drive(
    loop: Loop,
    measurement: Measurement[T],
    control: SharedControl,
    observer: Observer | None = None,
) -> T:
    """Run a loop's body under a measurement until it has what it needs; return its result.

    Raises: LoopError if the body returns no countable units, or ends (StopIteration) too early;
    whatever the body raises, with the stage's name as a note.
    """
    conductor = Conductor(measurement, control, name=loop.name, unit=loop.unit, observer=observer)
    body = loop.body
    try:
        conductor.begin()
        while not conductor.finished:
            try:
                units = body()
            except StopIteration:
                done = conductor.iterations_done
                raise ended_early(loop.name, done) from None
            except Exception as error:
                if not conductor.fail(error):
                    raise
                continue
            conductor.boundary(units)
    finally:
        if not conductor.finished:
            conductor.abandon()
    return conductor.result  # type: ignore[no-any-return]


def ended_early(name: str, iterations: int) -> LoopError:
    """The error for a loop that has no more iterations while the measurement needs some."""
    return LoopError(
        f"{name} ended after {iterations} iterations, before the measurement had what it needs; "
        "let it run longer, or ask for less with --seconds or --budget"
    )
