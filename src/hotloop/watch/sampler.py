"""What is measured of a training that goes on: nothing most of the time, a window now and then.

The sampler is called at each recognised call that is measured. First all calls are, until their
order shows the iterations. Then none is: the calls of one stage are counted. When something is due,
which an alarm on a thread of its own looks after, the next call of that stage is measured, and it
may begin to measure all for a few iterations: a window, or two blocks of which one has a delay.
"""

import logging
import os
import random
import threading
from collections.abc import Callable, Collection

from hotloop.loop.arm import COUNTED, OFF, REAL, Arm
from hotloop.loop.conduct import Conductor
from hotloop.loop.gauges import NoGauges
from hotloop.loop.stage_types import StageView
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.period import Iteration
from hotloop.recognise.places import (
    ACT,
    BACKWARD,
    CLIP,
    DATA,
    ENV_RESET,
    ENV_STEP,
    FORWARD,
    FORWARD_AND_BACKWARD,
    OPTIMISER_STEP,
)
from hotloop.recognise.recognition import Recognition
from hotloop.simplify.watched import WatchRecord
from hotloop.watch.windows import WINDOW, Delays, Windows

NEARLY = 0.15  # a mean number of calls is whole up to so much
# From window to window at least so long, and this share of the time so far: a training of days has
# thousands of windows, not millions.
LEAST_GAP_NS, GAP_SHARE = 500_000_000, 0.001
# The first windows come whatever they cost: something is to be shown soon.
FIRST = 5
# A window that takes so many times longer than it should is given up; after so many the iterations
# are looked for again.
LATE, LATE_NS, MOST_LATE = 10, 1_000_000_000, 3
# The iterations are looked for so long, longer each time, and in between not at all for so many
# times as long.
SEARCH_NS, SEARCH_GROWTH, REST = 60_000_000_000, 2, 9
# Places of which the library's own functions are put back between windows, and the stages that they
# have: even idle functions there would cost more than all the rest. The others stay, for what they
# make is used for long, or they are called too seldom to cost anything.
AWAY_BETWEEN = {
    "torch_modules": {ACT, FORWARD},
    "torch_backward": {BACKWARD, FORWARD_AND_BACKWARD},
    "torch_clip": {CLIP},
    "torch_loaders": {DATA},
    "gymnasium_envs": {ENV_STEP, ENV_RESET},
    "library_envs": {ENV_STEP, ENV_RESET},
}
# What is due is looked after no sooner again.
SHORTEST_S = 0.01
_LOG = logging.getLogger("hotloop")
_SEARCH, _OFF = Arm("search", rest=REAL), Arm("off", rest=OFF)


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
        # What a window costs: a machine that stands still for a while must not keep the next away.
        self._spent = self._control.clock.thread_cpu_ns
        self._name, self._every_ns = name, round(every_s * 1e9)
        self._on_found, self._on_line = on_found, on_line
        self._pid = os.getpid()
        self._thread = self._control.main_thread = threading.get_ident()
        self._random = random.Random(0)  # its own: the training's numbers stay as they are
        self._windows = Windows(recognition, record, delays, self._random)
        self._lock = threading.RLock()  # for what `look_after` changes from another thread
        self._state: Callable[[StageView], None] = self._search
        self._conductor: Conductor | None = None
        self._begin_ns = self._now()
        self._search_ns = SEARCH_NS
        self._iteration_ns = 0.0
        self._opened = 0  # windows
        self._counted_ns = self._rest_until = self._tally = 0
        self._is_shown = True  # the next call of the stage that counts, to `called`
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
        if os.getpid() != self._pid:
            return  # a forked child's copy, whose lock may be held by a thread that it has not
        with self._lock:
            self._add_tally()
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
        return self._windows.units_per_iteration

    def look_after(self) -> None:
        """Have what is due done at the next call; to be called now and then, from any thread.

        If the iterations that were found have ended, they are looked for again.
        """
        with self._lock:
            now = self._now()
            if self._state == self._rest and now >= self._rest_until:
                self._start_search()
            elif self._state == self._count:
                if self._add_tally():
                    self._counted_ns = now
                if now - self._counted_ns > LATE * (self._iteration_ns + LATE_NS):
                    self._start_search()
                elif not self._is_shown and now >= self._next_due:
                    self._is_shown = True
                    self._control.set(self._shown)

    def due_in_s(self, longest: float) -> float:
        """Return when to look after it again, in seconds."""
        if self._state != self._count or self._is_shown:
            return longest
        return min(max((self._next_due - self._now()) * 1e-9, SHORTEST_S), longest)

    @property
    def _next_due(self) -> int:
        return min(self._next_line, self._next_window)

    def _add_tally(self) -> bool:
        """Add the iterations that were counted since the last time; return whether any were."""
        if self._state != self._count or self._tallied is None:
            return False
        with self._lock:
            # Read once: the training's thread goes on counting.
            counted = self._tallied.counting.number
            calls, self._tally = counted - self._tally, counted
            self.iterations += calls / self._calls
        return bool(calls)

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
        self._counting = Arm("counting", dict.fromkeys(counted, COUNTED), rest=OFF)
        self._shown = Arm("shown", dict.fromkeys(counted, REAL), rest=OFF)
        marking = self._control.marking
        self._marking = None if marking is None else marking.union(counted)
        # Of a stage that is marked in the script, each call is shown.
        self._tallied = self.recognition.stages.get(self._counted)
        self._windows.begin(self._iteration_ns)
        self._late = 0
        self._next_window = now
        self._next_line = now + self._every_ns
        self._counted_ns = now
        self._search_ns = SEARCH_NS
        self._on_found(mark)
        self._go_on()

    def _rest(self, _called: StageView) -> None:
        """Nothing repeats: `look_after` says when to look for it again."""

    def _nothing(self, _called: StageView) -> None:
        """The watch has ended."""

    # --- counting ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Measure nothing, and count the calls of one stage."""
        with self._lock:
            self._conductor = None
            self._state = self._count
            self._tally = 0 if self._tallied is None else self._tallied.counting.number
            self._hide()
            self._leave_out_but({self._counted})

    def _hide(self) -> None:
        """Have calls counted only, until something is due."""
        self._is_shown = False
        self._control.set(self._counting)

    def _leave_out_but(self, needed: Collection[str]) -> None:
        """Leave out the places of `AWAY_BETWEEN` that have none of these stages."""
        out = {place for place, stages in AWAY_BETWEEN.items() if not stages & set(needed)}
        self.recognition.leave_out(out)

    def _count(self, called: StageView) -> None:
        if called.name != self._counted:
            return
        with self._lock:
            now = self._counted_ns = self._now()
            self._add_tally()
            self.iterations += 1 / self._calls
        if now >= self._next_line:
            self._next_line = now + self._every_ns
            self._on_line()
            self._spend(now)
        with self._lock:
            if self._state != self._count:
                return
            if now >= self._next_window:
                self._open(now)
            elif self._is_shown:
                self._hide()

    # --- windows -------------------------------------------------------------------------------

    def _open(self, now: int) -> None:
        """Look for the start of an iteration, which few stages mark, to begin a window there."""
        began = self._spent()
        self._control.drain_events()
        measurement, length = self._windows.following()
        self._conductor = Conductor(
            measurement,
            self._control,
            name=self._name,
            unit=self._found.unit,
            gauges=NoGauges(),
        )
        self._begun = False
        self._deadline = now + LATE * (length + 1) * self._iteration_ns + LATE_NS
        self._state = self._sample
        if self._marking is None:
            self.recognition.leave_out(())
            self._control.set(WINDOW)
        else:
            self._leave_out_but(self._marking)
            self._control.set(Arm("approach", dict.fromkeys(self._marking, REAL), rest=OFF))
        self._windows.spent_ns = self._spent() - began

    def _sample(self, called: StageView) -> None:
        now = self._counted_ns = self._now()
        if called.name == self._counted:
            self.iterations += 1 / self._calls
        if called.name == OPTIMISER_STEP and not self._updates:
            self._give_up(again=True)  # what repeated was the part before the first update
        elif self._found.begins(called):
            self._boundary()
        elif now > self._deadline:
            self._late += 1
            self._give_up(again=self._late >= MOST_LATE)

    def _boundary(self) -> None:
        conductor = self._conductor
        assert conductor is not None
        began = self._spent()
        units = self._found.units()
        if self._begun:
            conductor.boundary(units)
        else:
            self._begun = True
            self.recognition.leave_out(())
            conductor.begin()
        if conductor.finished:
            self._late = 0
            self._go_on()
        self._windows.spent_ns += self._spent() - began
        if conductor.finished:
            end = self._now()
            gap = self._windows.spent_ns / self._windows.share
            self.record.spent_s += self._windows.spent_ns * 1e-9
            self._opened += 1
            if self._opened < FIRST:
                gap = 0.0
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
