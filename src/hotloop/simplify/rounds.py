"""The rounds of an experiment, and the looks between them.

A round is a randomised complete block: every arm runs once, in a random order, from the same
snapshot of the loop's state and for the same number of iterations. The next round goes on from
where one of the unchanged arms ended, so that what was learned from replayed data is forgotten.
At a fixed number of looks, arms that cannot matter are dropped, and the time goes to the rest.
"""

import math
from collections import Counter

import numpy as np

from hotloop.loop.arm import Arm
from hotloop.loop.conduct import MOST_DRAINED, Measurement, Request
from hotloop.loop.event import current_lane
from hotloop.simplify.aa import aa_test
from hotloop.simplify.arm_names import ALL_FREE, BASELINE, is_aa, is_free, only_name
from hotloop.simplify.arms import Pace, first_arms, second_arms
from hotloop.simplify.blocks import BlockPlan, drain_of, plan_blocks
from hotloop.simplify.estimate import MIN_ROUNDS
from hotloop.simplify.pilot import apply_pilot
from hotloop.simplify.pilot_blocks import GOLDEN, run_pilot
from hotloop.simplify.rare_work import longest_period
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.trials import Trials

PLANNED_SHARE = 0.85  # of the budget; the rest is for extending a run whose A/A failed


class Rounds:
    """The rounds of one experiment; `run` is the measurement, the record of `trials` its result."""

    def __init__(
        self, trials: Trials, settings: SimplifySettings, end_ns: int, time_share: float = 1.0
    ) -> None:
        self._trials = trials
        self._record = trials.record
        self._settings = settings
        self._time_share = time_share  # the part of the time in which iterations run
        self._end = end_ns
        self._now = trials.control.clock.now_ns
        self._rng = np.random.default_rng(settings.seed)
        self._plan = BlockPlan()
        self._iteration_ns = 0.0
        self._typical_ns: dict[str, float] = {}  # of an iteration of each arm
        self._round = 0
        self._rounds_of: Counter[str] = Counter()  # by arm

    def choose_blocks(self, in_flight: int) -> Measurement[None]:
        """Choose blocks that hold the loop's own rare work, its queues and what a switch leaves.

        in_flight: items in flight as they were given, 0 if they were not.
        """
        record, settings, trials = self._record, self._settings, self._trials
        durations = np.array(trials.durations, float)
        record.period = longest_period(durations)
        self._iteration_ns = iteration_ns = float(durations.mean())
        arms = first_arms(record, settings.aa_pairs)
        begin = self._now()
        block = max(1, round(self._planned(arms, self._end - begin).length))
        if any(stage.replaceable for stage in record.stages_in_focus()):
            pilot = yield from run_pilot(trials, settings, block, iteration_ns, begin, self._end)
            known = trials.control.stages.values()
            ahead = {stage.name: stage.reads_ahead for stage in known if stage.reads_ahead}
            apply_pilot(record, pilot, in_flight, ahead)
            arms = first_arms(record, settings.aa_pairs)
        trials.arms = arms
        left = PLANNED_SHARE * (self._end - begin) - (self._now() - begin)
        self._plan_again(left)
        # What is found out first leaves half of the time for how it comes about.
        shorter = self._planned(trials.arms, 0.5 * left)
        self._plan = BlockPlan(shorter.length, trials.arms, shorter.drain_s)
        record.block_iterations, record.drain_s = shorter.length, shorter.drain_s

    def run(self, *, may_extend: bool) -> Measurement[None]:
        """Run rounds and looks until the planned time is up, or all is known.

        may_extend: whether a failed A/A may use what is left of the budget.
        """
        settings, trials = self._settings, self._trials
        begin = self._now()
        planned = begin + PLANNED_SHARE * (self._end - begin)
        for look in range(settings.looks):
            until = begin + (planned - begin) * (look + 1) / settings.looks
            yield from self._rounds_until(until, MIN_ROUNDS if look <= 1 else 1)
            if look < settings.looks - 1:
                paces = self._paces()
                self._drop_arms()
                second = second_arms(self._record, set(trials.arms), paces, settings.faster)
                if look == 0:
                    trials.arms |= second
                elif self._settled():
                    self._record.stopped_early = True
                    break
                else:
                    # Replayed durations follow what a call is known to take by now.
                    trials.arms |= {n: arm for n, arm in second.items() if n in trials.arms}
                self._plan_again(planned - self._now())
        while may_extend and not self._aa_holds() and self._now() < self._end:
            self._record.extended = True
            done = self._round
            yield from self._rounds_until(min(self._end, self._now() + 2e9), 1)
            if self._round == done:
                break

    def _planned(self, arms: dict[str, Arm], time_ns: float) -> BlockPlan:
        """The blocks that fill so much time."""
        time_ns *= self._time_share
        return plan_blocks(self._record, arms, self._iteration_ns, time_ns, self._rounds_of)

    def _plan_again(self, time_ns: float) -> None:
        """Choose the length of blocks, and the arms that there is time for, of those left."""
        trials = self._trials
        self._plan = self._planned(trials.arms, time_ns)
        self._record.block_iterations = self._plan.length
        self._record.drain_s = self._plan.drain_s
        for name in trials.arms.keys() - self._plan.arms.keys():
            self._record.dropped[name] = "there was no time for it"
        trials.arms = dict(self._plan.arms)

    def _rounds_until(self, until_ns: float, at_least: int) -> Measurement[None]:
        """Run whole rounds, until another one would end later than asked."""
        done, round_ns = 0, 0
        while done < at_least or self._now() + round_ns / 2 < until_ns:
            start = self._now()
            if start + round_ns > self._end:
                break
            yield from self._one_round()
            round_ns = self._now() - start
            done += 1

    def _one_round(self) -> Measurement[None]:
        """Run every arm once, all from the same state and replayed from the same output on."""
        trials, record = self._trials, self._record
        trials.malloc.fill()
        length = int(self._rng.integers(self._plan.length, 2 * self._plan.length + 1))
        # Which of the unchanged arms the loop goes on from is left to chance: none is special.
        same = [name for name in trials.arms if name == BASELINE or is_aa(name)]
        goes_on = str(self._rng.choice(same))
        kept, next_snapshot = 0, trials.snapshot
        for name in self._rng.permutation(list(trials.arms)):
            arm = trials.arms.get(str(name))
            if arm is None:
                continue  # dropped earlier in this round
            request = self._request(arm, length, f"round {self._round + 1}")
            block = yield from trials.attempt(request, (self._round * GOLDEN) % 1)
            if block is None:
                continue
            record.keep(self._round, block, current_lane())
            self._rounds_of[arm.name] += 1
            self._typical_ns.setdefault(arm.name, float(np.median(block.duration_ns)))
            if arm.name == goes_on:
                lead_in = 1 if record.concurrent else block.drained
                kept = lead_in + len(block.duration_ns)
                next_snapshot = trials.taken()
        trials.keep(next_snapshot)
        trials.put_back()
        record.iterations_kept += kept
        self._round += 1

    def _request(self, arm: Arm, length: int, phase: str) -> Request:
        # With queues, the first iterations eat what other arms had made: what they taught is
        # forgotten when they are over. Without, they are the arm's own.
        record, put_back = self._record, self._trials.put_back
        queues = record.concurrent
        drain, drain_s = drain_of(record, arm), record.drain_s
        if arm.name in self._typical_ns:
            # What ends by the clock ends in a long iteration more often than not, and the timed
            # ones after it would have less of the loop's rare work.
            often = math.ceil(drain_s * 1e9 / max(self._typical_ns[arm.name], 1.0))
            drain, drain_s = max(drain, min(often, MOST_DRAINED)), 0.0
        return Request(
            arm,
            iterations=length,
            drain=drain,
            drain_s=drain_s,
            at_start=None if queues else put_back,
            before_last_drained=put_back if queues else None,
            phase=phase,
        )

    # --- looks ---------------------------------------------------------------------------------

    def _paces(self) -> dict[str, Pace]:
        """How recorded calls compare with those of the rounds so far, and with those alone."""
        record = self._record
        found: dict[str, Pace] = {}
        samples = record.samples(self._settings.seed)
        record.update_stage_times()
        for stage in record.stages_in_focus():
            if not stage.replaceable or not stage.tape_ns or not stage.ns_per_call:
                continue
            recorded = float(np.mean(stage.tape_ns))
            drift = recorded / stage.ns_per_call
            stretch = drift
            alone = only_name(stage.name)
            if record.concurrent and samples.has(alone, ALL_FREE):
                ceiling = samples.means([alone, ALL_FREE]).difference(alone, ALL_FREE).value
                # Several workers share a stage's calls: each takes its part of the time.
                calls = stage.calls_per_iteration / max(len(stage.lanes), 1)
                stretch = max(drift, recorded * calls / ceiling) if ceiling > 0 else drift
            found[stage.name] = Pace(drift, stretch)
        return found

    def _drop_arms(self) -> None:
        """Stop measuring what cannot be worth it, or is known: successive elimination."""
        settings, record, arms = self._settings, self._record, self._trials.arms
        samples = record.samples(settings.seed)
        # Several looks at one arm: each has its part of the error.
        confidence = 1 - 0.05 / settings.looks
        for name in list(arms):
            if name == BASELINE or is_aa(name) or not samples.has(name, BASELINE):
                continue
            gain = samples.means([BASELINE, name]).gain(name, BASELINE, confidence)
            precise = gain.half_width < settings.worth / 4
            if is_free(name) and name != ALL_FREE and gain.high < settings.worth:
                del arms[name]
                record.dropped[name] = "its gain is below what is worth knowing"
            elif (name == ALL_FREE or not is_free(name)) and precise:
                del arms[name]
                record.dropped[name] = "known well enough"

    def _settled(self) -> bool:
        """Whether every arm left is known better than the gain worth knowing asks for."""
        samples = self._record.samples(self._settings.seed)
        return all(
            samples.has(name, BASELINE)
            and samples.means([BASELINE, name]).gain(name, BASELINE).half_width
            < self._settings.worth / 8
            for name in self._trials.arms
            if name != BASELINE and not is_aa(name)
        )

    def _aa_holds(self) -> bool:
        return aa_test(self._record, self._settings.seed, self._settings.worth).holds
