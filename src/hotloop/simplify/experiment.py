"""The stage-substitution experiment: what would the loop gain if a stage cost nothing?

Like the benchmark this is a generator of block requests, and its `record` is valid at any time.
First the loop warms up, its stages are checked and recorded; then come the pilot and the rounds
(`hotloop.simplify.rounds`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.ma  # loaded here, and not by the first median in the middle of a block
import psutil

from hotloop.benchmark.call_cost import measure_call_cost
from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.warmup import warm_up
from hotloop.benchmark.work import WorkCounter, count_work
from hotloop.loop.clock import shortest_wait_ns
from hotloop.loop.conduct import Measurement
from hotloop.loop.control import LONGEST_WAIT_NS, TAPE_BYTES, SharedControl
from hotloop.loop.cost import probe_cost
from hotloop.loop.declared_state import DeclaredState, sort_state
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.watchdog import Watchdog
from hotloop.simplify.effect_check import check_effects
from hotloop.simplify.probing import in_the_loop
from hotloop.simplify.record import Record
from hotloop.simplify.recording import in_flight, record_stages
from hotloop.simplify.rest import sample_rest
from hotloop.simplify.rounds import Rounds
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.trials import OutOfTimeError, Trials

WARM_UP_SHARE = 0.15  # of the budget, at most
CHECK_SHARE = 0.05  # of the budget, at most, goes into checking what the stages declare
RECORD_SHARE = 0.25  # of the budget, at most, goes into filling the tapes
ENOUGH_SHARE = 0.1  # of the budget, at most, goes into more outputs than are needed
LOOK_AT_REST = 0.1  # of the time is in no stage: then it is looked at what it is
LIMIT_SHARE = 1.1  # of the budget: what is not measured then is not measured
# No stage is delayed or padded for longer than so many times the longest iteration seen.
LONGEST_WAIT = 4


class Experiment:
    """One experiment on one loop; `run` is the measurement, `record` what it has found so far."""

    def __init__(
        self,
        control: SharedControl,
        settings: SimplifySettings,
        *,
        announce: Callable[[Sequence[str]], None] | None = None,
        not_put_back: Callable[[], Sequence[str]] | None = None,
        focus: frozenset[str] = frozenset(),
        time_share: float = 1.0,
        look_at_rest: bool = True,
    ) -> None:
        """Prepare an experiment.

        Args:
            announce: is given, before anything is replaced, what the state does not cover.
            not_put_back: says what else of a script is not put back.
            focus: names of the only stages to look at; all if empty.
            time_share: the part of the time in which iterations run; the rest is left out.
            look_at_rest: whether to find what runs between the stages.
        """
        self.settings = settings
        self.record = Record(focus=sorted(focus), faster=list(settings.faster))
        self.may_extend = True  # whether a failed A/A may use what is left of the budget
        self._control = control
        self._time_share = time_share
        self._look_at_rest = look_at_rest and not focus
        self._trials = Trials(control, self.record)
        self._declared = DeclaredState()
        self._now = control.clock.now_ns
        self._announce = announce or (lambda _notices: None)
        self._not_put_back = not_put_back or (lambda: ())

    def run(self, loop: Loop) -> Measurement[None]:
        """Warm up, check, record, choose the block, then rounds and looks within the budget."""
        record, settings, trials = self.record, self.settings, self._trials
        begin = self._now()
        end = begin + round(settings.budget * 1e9)
        trials.limit_ns = begin + round(LIMIT_SHARE * settings.budget * 1e9)
        record.unit, record.name = loop.unit, loop.name
        record.price_per_hour = settings.price_per_hour or loop.price_per_hour
        record.usable_cores = usable_cores()
        record.probe_cost = probe_cost(self._control.clock)
        self._look_at_state(loop)
        declared = max(loop.in_flight, settings.in_flight or 0)
        rounds = Rounds(trials, settings, end, self._time_share)
        watchdog = Watchdog(self._control, LIMIT_SHARE * settings.budget)
        try:
            yield from self._prepare(declared)
            yield from rounds.choose_blocks(declared)
            yield from rounds.run(may_extend=self.may_extend)
        except OutOfTimeError:
            record.out_of_time = True
        finally:
            watchdog.stop()
            trials.malloc.release()
            # Also when interrupted in the middle of an arm: the loop goes on from the baseline.
            if trials.snapshot is not None:
                trials.put_back()
            record.update_stage_times()
            record.seconds = (self._now() - begin) * 1e-9
            record.missed_replays = sum(s.tape.missed for s in self._control.stages.values())
            self._leave_control()

    def explain(self, error: BaseException) -> str | None:
        """Say what to know of an exception that ended a script in an arm with a replaced stage."""
        return self._trials.explain(error)

    def _prepare(self, declared: int) -> Measurement[None]:
        """Everything before the first arm that differs from the baseline."""
        record, settings, trials = self.record, self.settings, self._trials
        control = self._control
        record.warm_up = yield from trials.forward(
            warm_up(self._now, WARM_UP_SHARE * settings.budget)
        )
        trials.malloc.hold()
        control.longest_wait_ns[0] = LONGEST_WAIT * max(trials.durations)
        checked_by = self._now() + round(CHECK_SHARE * settings.budget * 1e9)
        yield from trials.forward(
            check_effects(control, record, self._declared, checked_by), keep=False
        )
        if record.broken:
            self._announce([f"{b['stage']} {b['what']}: {b['remedy']}" for b in record.broken])
        memory = settings.tape_memory * psutil.virtual_memory().available
        control.tape_bytes[0] = int(memory / max(1, len(control.stages)))
        now, budget_ns = self._now(), settings.budget * 1e9
        deadline = now + round(RECORD_SHARE * budget_ns)
        enough = now + round(ENOUGH_SHARE * budget_ns)
        yield from trials.forward(
            record_stages(control, record, self._declared, deadline, enough, declared)
        )
        control.longest_wait_ns[0] = LONGEST_WAIT * max(trials.durations)
        record.in_flight = declared or in_flight(control, record)
        record.shortest_wait_ns = shortest_wait_ns(control.clock)
        iteration_ns = float(np.median(trials.durations))
        if not record.concurrent:
            cost = yield from trials.forward(
                measure_call_cost(control, iteration_ns, settings.budget), keep=False
            )
            record.probe_cost = in_the_loop(record.probe_cost, cost)
        yield from self._look_once()
        for stage in record.stages:
            if stage.beside_main:
                control.paces[stage.index] = stage.calls_per_iteration
        self._save_state()

    def _look_once(self) -> Measurement[None]:
        """Count the operations of an iteration, and find what runs between the stages."""
        record, control, trials = self.record, self._control, self._trials
        if WorkCounter.available():
            record.peaks = measure_peaks()
            record.work = yield from trials.forward(count_work(control), keep=False)
            record.iterations_kept += 2
        # All ranks of a job obey one arm, and each has a rest of its own.
        if self._look_at_rest and record.rest_share > LOOK_AT_REST and not control.obeyed_in_step:
            budget = self.settings.budget
            yield from trials.forward(sample_rest([record], budget), keep=False)

    def _leave_control(self) -> None:
        control = self._control
        control.longest_wait_ns[0], control.tape_bytes[0] = LONGEST_WAIT_NS, TAPE_BYTES
        control.state, control.violations = DeclaredState(), []
        for known in control.stages.values():
            control.paces[known.index] = 0
            known.tape.clear()

    def _look_at_state(self, loop: Loop) -> None:
        self._declared, notices = sort_state(loop.state, loop.may_go_on)
        self._trials.state = list(self._declared.put_back)
        notices += self._not_put_back()
        self.record.notices = notices
        if notices:
            self._announce(notices)

    def _save_state(self) -> None:
        start = self._now()
        self._trials.save_state()
        self._trials.put_back()
        self.record.snapshot_s = (self._now() - start) * 1e-9
