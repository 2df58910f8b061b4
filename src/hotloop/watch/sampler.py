"""What is measured of a training that goes on: nothing most of the time, a window now and then.

The sampler is called at each recognised call that is measured. First all calls are, until their
order shows the iterations. Then only one stage of an iteration is, which counts them; and at times
all are for a few iterations: a window, or two blocks of which one has a delay.
"""

import bisect
import logging
import math
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hotloop.loop.arm import DELAY, OFF, REAL, Arm
from hotloop.loop.conduct import Block, Conductor, Measurement, Request
from hotloop.loop.stage_types import StageView
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.period import Iteration
from hotloop.recognise.places import ACT, ENV_RESET, ENV_STEP, FORWARD, OPTIMISER_STEP
from hotloop.recognise.recognition import Recognition
from hotloop.simplify.arms import DELAY_SHARES, MIN_DELAY_NS
from hotloop.simplify.watched import WatchRecord

# Samples take this share of the time at most: what a timed call adds, and reading what was logged.
# Beside delays it is a part of what those may take, if that is more.
SAMPLED_SHARE, PART_OF_DELAYS = 0.002, 0.2
TIMED_CALL_NS = 3_000
NEARLY = 0.15  # a mean number of calls is whole up to so much
# A window is so long, and has so many iterations.
WINDOW_NS, FEWEST, MOST = 20_000_000, 2, 20
# A block beside a delayed one, and the iterations before it that are not timed.
BLOCK_NS, MOST_IN_BLOCK = 50_000_000, 50
# From window to window at least so long, and this share of the time so far: a training of days has
# thousands of windows, not millions.
LEAST_GAP_NS, GAP_SHARE = 500_000_000, 0.001
# A window that takes so many times longer than it should is given up; after so many the iterations
# are looked for again.
LATE, LATE_NS, MOST_LATE = 10, 1_000_000_000, 3
# The iterations are looked for so long, longer each time, and in between not at all for so many
# times as long.
SEARCH_NS, SEARCH_GROWTH, REST = 60_000_000_000, 2, 9
# Places whose calls are mostly within other calls, and the stages that they have: outside of
# windows even the idle functions there would cost more than all the rest. The others stay, for what
# they make, such as the iterator of a loader, is used for long.
NESTED = {"torch_modules": (ACT, FORWARD), "gymnasium_envs": (ENV_STEP, ENV_RESET)}
_LOG = logging.getLogger("hotloop")
_SEARCH, _OFF = Arm("search", rest=REAL), Arm("off", rest=OFF)
_WINDOW = Arm("window", rest=REAL)


@dataclass(frozen=True)
class Delays:
    """How stages are delayed: the share of the time that delays take at most."""

    share: float


class Sampler:
    """Decides at each recognised call what is measured next; `called` is the control's watcher.

    on_found: called with what an iteration is. on_line: called every `every_s` once iterations are
    counted; both on the training's own thread.
    """

    def __init__(
        self,
        recognition: Recognition,
        record: WatchRecord,
        *,
        name: str,
        every_s: float,
        delays: Delays | None = None,
        on_found: Callable[[str], None],
        on_line: Callable[[], None],
    ) -> None:
        self.recognition, self.record = recognition, record
        self.iterations = 0.0  # since they were found
        self._control = recognition.control
        self._now = self._control.clock.now_ns
        self._name, self._every_ns, self._delays = name, round(every_s * 1e9), delays
        part = 0.0 if delays is None else PART_OF_DELAYS * delays.share
        self._sampled_share = max(SAMPLED_SHARE, part)
        self._on_found, self._on_line = on_found, on_line
        self._thread = threading.get_ident()
        self._random = random.Random(0)  # its own: the training's numbers stay as they are
        self._lock = threading.Lock()  # for what `look_again` changes from another thread
        self._state: Callable[[StageView], None] = self._search
        self._conductor: Conductor | None = None
        self._begin_ns = self._now()
        self._search_ns = SEARCH_NS
        self._sampled = np.zeros(2)
        self._delayed_ns = 0.0
        self._spent_ns = 0
        self._iteration_ns = 0.0
        self._counted_ns = self._rest_until = 0
        self._start_search()

    def called(self, called: StageView) -> None:
        """Note that a stage is called; a fault ends the watch, and never the training."""
        if threading.get_ident() != self._thread:
            return
        try:
            self._state(called)
        except Exception as error:
            self.stop()
            _LOG.warning("the watch has stopped (%s): training goes on without it", error)

    def stop(self) -> None:
        """Measure nothing more. Idempotent."""
        self._control.watcher = None
        self._state = self._nothing
        if self._conductor is not None and not self._conductor.finished:
            self._conductor.abandon()
        self._control.set(_OFF)
        self._control.drain_events()
        if isinstance(self._found.iteration, Iteration) or self.record.iteration is not None:
            return
        self.record.why_not = self._found.why_not()

    @property
    def units_per_iteration(self) -> float:
        """The mean over the windows since the iterations were found."""
        units, iterations = self._sampled
        return float(units / iterations) if iterations else 1.0

    def look_again(self) -> None:
        """Look for the iterations again if those that were found have ended; from any thread."""
        with self._lock:
            now = self._now()
            longest = LATE * (self._iteration_ns + LATE_NS)
            rested = self._state == self._rest and now >= self._rest_until
            ended = self._state == self._count and now - self._counted_ns > longest
            if rested or ended:
                self._start_search()

    # --- looking for the iterations ------------------------------------------------------------

    def _start_search(self) -> None:
        # An optimiser may have been made before the watch began.
        self._found = FoundIterations(self.recognition, expects_updates=True)
        self._search_until = self._now() + self._search_ns
        self._state = self._search
        self.recognition.leave_out(())
        self._control.drain_events()
        self._control.set(_SEARCH)

    def _search(self, called: StageView) -> None:
        now = self._now()
        mark = self._found.look(called, now)
        if mark is not None:
            assert isinstance(self._found.iteration, Iteration)
            self._take(self._found.iteration, mark, now)
        elif now >= self._search_until:
            with self._lock:
                self.record.why_not = self._found.why_not()
                self._rest_until = now + REST * self._search_ns
                self._search_ns *= SEARCH_GROWTH
                self._state = self._rest
                self._control.set(_OFF)
                self._control.drain_events()

    def _take(self, iteration: Iteration, mark: str, now: int) -> None:
        """Count these iterations from now on."""
        record = self.record
        if self._found.unit != record.unit and record.periods:
            record.periods.clear()  # in another unit: of another phase of the training
        record.unit, record.iteration, record.why_not = self._found.unit, mark, None
        self._iteration_ns = iteration.duration_s * 1e9
        self._counted, self._calls = counted_stage(iteration)
        self._updates = OPTIMISER_STEP in iteration.calls
        # Whether a module acts or has a gradient to keep is known only where both are measured.
        counted = (FORWARD, ACT) if self._counted == FORWARD else (self._counted,)
        self._counting = Arm("counting", dict.fromkeys(counted, REAL), rest=OFF)
        self._sampled = np.zeros(2)  # units, and the iterations that had them
        self._late = 0
        self._next_window = now
        self._next_line = now + self._every_ns
        self._counted_ns = now
        self._search_ns = SEARCH_NS
        self._on_found(mark)
        self._go_on()

    def _rest(self, _called: StageView) -> None:
        """Nothing repeats: `look_again` says when to look for it again."""

    def _nothing(self, _called: StageView) -> None:
        """The watch has ended."""

    # --- counting ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Measure nothing but the stage that counts."""
        with self._lock:
            self._conductor = None
            self._state = self._count
            self._control.set(self._counting)
            self._leave_out(place for place in NESTED if self._counted not in NESTED[place])

    def _leave_out(self, places: Iterable[str]) -> None:
        start = self._now()
        self.recognition.leave_out(frozenset(places))
        self._spent_ns += self._now() - start

    def _count(self, called: StageView) -> None:
        if called.name != self._counted:
            return
        self.iterations += 1 / self._calls
        now = self._counted_ns = self._now()
        if now >= self._next_line:
            self._next_line = now + self._every_ns
            self._on_line()
            self._spend(now)
        if now >= self._next_window:
            with self._lock:
                if self._state == self._count:
                    self._open(now)

    # --- windows -------------------------------------------------------------------------------

    def _open(self, now: int) -> None:
        self._control.drain_events()
        self._opened = now
        self._spent_ns = 0
        self._leave_out(())
        measurement, length = self._next_measurement(now)
        self._conductor = Conductor(
            measurement, self._control, name=self._name, unit=self._found.unit
        )
        self._begun = False
        self._deadline = now + LATE * (length + 1) * self._iteration_ns + LATE_NS
        self._state = self._sample
        self._control.set(_WINDOW)

    def _sample(self, called: StageView) -> None:
        now = self._counted_ns = self._now()
        if called.name == self._counted:
            self.iterations += 1 / self._calls
        if called.name == OPTIMISER_STEP and not self._updates:
            self._give_up(again=True)  # what repeated was the part before the first update
        elif self._found.starts(called):
            self._boundary(now)
        elif now > self._deadline:
            self._late += 1
            self._give_up(again=self._late >= MOST_LATE)

    def _boundary(self, now: int) -> None:
        conductor = self._conductor
        assert conductor is not None
        units = self._found.units()
        if self._begun:
            conductor.boundary(units)
        else:
            self._begun = True
            conductor.begin()
        self._spent_ns += self._now() - now
        if conductor.finished:
            self._late = 0
            self._go_on()
            end = self._now()
            gap = self._spent_ns / self._sampled_share
            self.record.spent_s += self._spent_ns * 1e-9
            least = max(LEAST_GAP_NS, GAP_SHARE * (end - self._begin_ns))
            self._next_window = end + round(max(gap, least) * self._random.uniform(0.8, 1.2))

    def _give_up(self, *, again: bool) -> None:
        assert self._conductor is not None
        self._conductor.abandon()
        self._next_window = self._now() + 2 * LEAST_GAP_NS
        if again:
            with self._lock:
                self._conductor = None
                self._start_search()
        else:
            self._go_on()

    def _spend(self, since_ns: int) -> None:
        self.record.spent_s += (self._now() - since_ns) * 1e-9

    # --- what is measured ----------------------------------------------------------------------

    def _next_measurement(self, now: int) -> tuple[Measurement[None], int]:
        """A window, or a pair of blocks if a delay can be afforded; and its iterations."""
        length = _clipped(WINDOW_NS / self._iteration_ns, FEWEST, MOST)
        if self._delays is None or not self.record.sampled.stage_calls:
            return self._window(length), length
        stage = self._least_tried()
        block = _clipped(BLOCK_NS / self._iteration_ns, FEWEST, MOST_IN_BLOCK)
        if stage is not None:
            name, index, calls = stage
            per_call = max(MIN_DELAY_NS, DELAY_SHARES[0] * self._iteration_ns / calls)
            expected = 2 * block * calls * per_call
            afforded = self._delays.share * (now - self._begin_ns)
            if self._delayed_ns + expected <= afforded:
                self._delayed_ns += expected
                return self._pair(name, index, per_call * 1e-9, block), 4 * block
        return self._window(length), length

    def _window(self, length: int) -> Measurement[None]:
        # The first iteration is not timed: the caches are as the time without a window left them.
        block = yield Request(_WINDOW, iterations=length, drain=1)
        self._keep(block)

    def _pair(self, name: str, index: int, delay_s: float, length: int) -> Measurement[None]:
        """One block with a delay and one without, in an order that is drawn."""
        arms = [_WINDOW, Arm("delayed", {name: DELAY(delay_s)}, rest=REAL)]
        self._random.shuffle(arms)
        blocks: dict[str, Block] = {}
        for arm in arms:
            blocks[arm.name] = yield Request(arm, iterations=length, drain=length)
        self._keep(blocks[_WINDOW.name])
        self._spent_ns += self._timing_ns(blocks["delayed"])
        self.record.add_pair(index, name, blocks[_WINDOW.name], blocks["delayed"])

    def _keep(self, block: Block) -> None:
        """Keep a block in which nothing was delayed."""
        sampled = self.record.sampled
        sampled.note_stages(self._control, block.events)
        sampled.keep(block, self._control)
        self._sampled += np.array([sum(block.units), len(block.units)])
        self._spent_ns += self._timing_ns(block)

    def _timing_ns(self, block: Block) -> int:
        """What timing the calls of a block took, those of its drained iterations too."""
        iterations = len(block.duration_ns)
        return TIMED_CALL_NS * len(block.events) * (iterations + block.drained) // iterations

    def _least_tried(self) -> tuple[str, int, float] | None:
        """A stage with the fewest pairs so far, its number, and its calls in an iteration.

        One that is called in every iteration: a delay of rare calls would be felt in few of them.
        """
        sampled = self.record.sampled
        last = bisect.bisect_left(sampled.block_of, len(sampled.stage_calls) - 1)
        calls = sampled.stage_calls[-1] / (len(sampled.block_of) - last)
        tried = np.array([pair[0] for pair in self.record.pairs], np.int64)
        wholes = {name for name, stage in self.recognition.stages.items() if stage.is_whole}
        found = [
            (int((tried == stage["index"]).sum()), self._random.random(), stage, float(called))
            for stage, called in zip(sampled.stages, calls, strict=True)
            if called >= 1 and stage["name"] not in wholes
        ]
        if not found:
            return None
        _, _, stage, called = min(found, key=lambda each: each[:2])
        return stage["name"], stage["index"], called


def counted_stage(iteration: Iteration) -> tuple[str, float]:
    """The stage whose calls count iterations, and how many an iteration has.

    A whole number of them if any has; then the update, for a validation has data and passes of its
    own, but learns nothing; then the one with the fewest. `FORWARD` only where there is no other:
    it cannot be measured without measuring what acts.
    """
    # Where a few iterations of a validation were among those that were seen, they are nearly whole.
    nearly = {name: _whole(calls) for name, calls in iteration.calls.items()}
    often = {name: calls for name, calls in nearly.items() if calls >= 1}
    candidates = often or iteration.calls

    def fitness(name: str) -> tuple[bool, bool, bool, float]:
        calls = candidates[name]
        return name == FORWARD, calls != round(calls), name != OPTIMISER_STEP, calls

    chosen = min(candidates, key=fitness)
    return chosen, candidates[chosen]


def _whole(calls: float) -> float:
    """The whole number that this is up to `NEARLY`; else as it is."""
    nearest = max(round(calls), 1)
    return float(nearest) if abs(calls - nearest) <= NEARLY else calls


def recent_shares(record: WatchRecord, since_block: int) -> dict[str, float]:
    """The share of each outermost stage in the windows from a number on; in the last without."""
    sampled = record.sampled
    if not sampled.stage_running_ns:
        return {}
    first = min(since_block, len(sampled.stage_running_ns) - 1)
    time_ns = sum(sampled.duration_ns[bisect.bisect_left(sampled.block_of, first) :])
    running = np.zeros(len(sampled.stages))
    for row in sampled.stage_running_ns[first:]:
        running[: len(row)] += row
    return {
        stage["name"]: min(float(ran / time_ns), 1.0)
        for stage, ran in zip(sampled.stages, running, strict=True)
        if stage["inside"] is None and time_ns
    }


def _clipped(count: float, least: int, most: int) -> int:
    return min(max(math.ceil(count), least), most)
