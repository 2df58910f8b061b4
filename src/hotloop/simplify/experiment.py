"""The stage-substitution experiment: what would the loop gain if a stage cost nothing?

Rounds are randomised complete blocks: every arm runs once in each, in a random order, from the
same snapshot of the loop's state and for the same number of iterations; the next round goes on from
where one of the unchanged arms ended, so that what was learned from replayed data is forgotten.
Arms that cannot matter are dropped at a fixed number of looks, and the time goes to the rest. Like
the benchmark this is a generator of block requests, and its `record` is valid at any time.
"""

import dataclasses
import math
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numpy as np
import numpy.ma
import psutil

from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.warmup import warm_up
from hotloop.benchmark.work import WorkCounter, count_work
from hotloop.loop.arm import Arm
from hotloop.loop.board import LONGEST_WAIT_NS, TAPE_BYTES, Board
from hotloop.loop.clock import shortest_wait_ns
from hotloop.loop.conduct import MOST_DRAINED, Block, Measurement, Request
from hotloop.loop.cost import probe_cost
from hotloop.loop.host import usable_cores
from hotloop.loop.lanes import current_lane
from hotloop.loop.loop import Loop
from hotloop.loop.state import Snapshot, unsupported_parts
from hotloop.loop.tape import MUTATED
from hotloop.simplify.arms import (
    Pace,
    delays,
    first_arms,
    only_and_all,
    replaced_in,
    second_arms,
)
from hotloop.simplify.blame import raised_by
from hotloop.simplify.blocks import BlockPlan, plan_blocks
from hotloop.simplify.estimate import MIN_ROUNDS
from hotloop.simplify.names import ALL_FREE, BASELINE, free_name, is_aa, is_free, only_name
from hotloop.simplify.pilot import Pilot, Stretch, learn, pilot_of, stretch_of
from hotloop.simplify.promises import check_promises
from hotloop.simplify.rare import longest_period
from hotloop.simplify.record import Record
from hotloop.simplify.recording import in_flight, record_stages
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import aa_test
from hotloop.simplify.watchdog import Watchdog

WARM_UP_SHARE = 0.15  # of the budget, at most
CHECK_SHARE = 0.05  # of the budget, at most, goes into checking what the stages promise
RECORD_SHARE = 0.25  # of the budget, at most, goes into filling the tapes
ENOUGH_SHARE = 0.1  # of the budget, at most, goes into more outputs than are needed
PLANNED_SHARE = 0.85  # of the budget; the rest is for extending a run whose A/A failed
LIMIT_SHARE = 1.1  # of the budget: what is not measured then is not measured
MAX_DOUBLINGS = 4
PILOT_ROUNDS = 3
PILOT_SHARE = 0.15  # of what is left of the budget, at most, goes into choosing the block
MOST_PROBES = 6
STRETCH_NS, STRETCH_ITERATIONS, LEAST_STRETCH, MOST_STRETCH = 100_000_000, 20, 4, 4096
KEPT_DURATIONS = 200_000
# No stage is delayed or padded for longer than so many times the longest iteration seen.
LONGEST_WAIT = 4
# The fractional part of the golden ratio: multiples of it fill [0, 1) evenly.
GOLDEN = 0.6180339887498949

T = TypeVar("T")


class _OutOfTime(Exception):
    """The limit has passed in the middle of something; what is measured by then is judged."""


class Experiment:
    """One experiment on one loop; `run` is the measurement, `record` what it has found so far."""

    def __init__(
        self,
        board: Board,
        settings: SimplifySettings,
        *,
        announce: Callable[[Sequence[str]], None] | None = None,
        undeclared: Callable[[], Sequence[str]] | None = None,
        focus: frozenset[str] = frozenset(),
    ) -> None:
        """announce is told, before anything is replaced, what is not covered by the state;
        undeclared names what a script holds and did not declare; focus names the only stages to
        look at, all if empty.
        """
        self.settings = settings
        self.record = Record(focus=sorted(focus), faster=list(settings.faster))
        self.under_way: Arm | None = None  # the arm that is being tried
        self.may_extend = True  # whether a failed A/A may use what is left of the budget
        self._board = board
        self._now = board.clock.now_ns
        self._announce = announce or (lambda _notices: None)
        self._undeclared = undeclared or (lambda: ())
        self._rng = np.random.default_rng(settings.seed)
        self._state: list[object] = []
        self._snapshot: Snapshot | None = None
        self._live: dict[str, Arm] = {}
        self._durations: list[int] = []  # of iterations in which nothing was changed
        self._heard = False  # whether the first iteration is over
        self._plan = BlockPlan()
        self._iteration_ns = 0.0
        self._typical_ns: dict[str, float] = {}  # of an iteration of each arm
        self._round = 0

    def run(self, loop: Loop) -> Measurement[None]:
        """Warm up, check, record, choose the block, then rounds and looks within the budget."""
        record, settings = self.record, self.settings
        begin = self._now()
        self._end = begin + round(settings.budget * 1e9)
        self._limit = begin + round(LIMIT_SHARE * settings.budget * 1e9)
        record.unit, record.name = loop.unit, loop.name
        record.price_per_hour = settings.price_per_hour or loop.price_per_hour
        record.usable_cores = usable_cores()
        record.probe_cost = probe_cost(self._board.clock)
        self._look_at_state(loop)
        declared = max(loop.in_flight, settings.in_flight or 0)
        watchdog = Watchdog(self._board, LIMIT_SHARE * settings.budget)
        try:
            yield from self._prepare(declared)
            yield from self._choose_blocks(declared)
            yield from self._rounds()
        except _OutOfTime:
            record.out_of_time = True
        finally:
            watchdog.stop()
            # Also when interrupted in the middle of an arm: the loop goes on from the baseline.
            if self._snapshot is not None:
                self._snapshot.restore()
            record.tell_stages()
            record.seconds = (self._now() - begin) * 1e-9
            record.missed_replays = sum(s.tape.missed for s in self._board.stages.values())
            self._leave_board()

    def _prepare(self, declared: int) -> Measurement[None]:
        """Everything before the first arm that differs from the baseline."""
        record, settings, board = self.record, self.settings, self._board
        record.warm_up = yield from self._hear(warm_up(self._now, WARM_UP_SHARE * settings.budget))
        board.longest_wait_ns[0] = LONGEST_WAIT * max(self._durations)
        checked_by = self._now() + round(CHECK_SHARE * settings.budget * 1e9)
        yield from self._hear(check_promises(board, record, self._state, checked_by), keep=False)
        if record.broken:
            self._announce([f"{b['stage']} {b['what']}: {b['remedy']}" for b in record.broken])
        memory = settings.tape_memory * psutil.virtual_memory().available
        board.tape_bytes[0] = int(memory / max(1, len(board.stages)))
        now, budget_ns = self._now(), settings.budget * 1e9
        deadline = now + round(RECORD_SHARE * budget_ns)
        enough = now + round(ENOUGH_SHARE * budget_ns)
        yield from self._hear(
            record_stages(board, record, self._state_complete, deadline, enough, declared)
        )
        board.longest_wait_ns[0] = LONGEST_WAIT * max(self._durations)
        record.in_flight = declared or in_flight(board, record)
        record.shortest_wait_ns = shortest_wait_ns(board.clock)
        if WorkCounter.available():
            record.peaks = measure_peaks()
            record.work = yield from self._hear(count_work(board), keep=False)
            record.iterations_kept += 2
        for stage in record.stages:
            if stage.beside_main:
                board.paces[stage.index] = stage.calls_per_iteration
        self._save_state()

    def _leave_board(self) -> None:
        board = self._board
        board.longest_wait_ns[0], board.tape_bytes[0] = LONGEST_WAIT_NS, TAPE_BYTES
        board.state, board.broken_promises = (), []
        for known in board.stages.values():
            board.paces[known.index] = 0
            known.tape.clear()

    # --- asking for blocks ---------------------------------------------------------------------

    def _ask(self, request: Request) -> Generator[Request, Block, Block]:
        """One block, ended at the limit at the latest."""
        block = yield dataclasses.replace(request, until_ns=self._limit)
        if block.cut:
            raise _OutOfTime
        return block

    def _hear(self, measurement: Measurement[T], *, keep: bool = True) -> Measurement[T]:
        """Run another measurement, ended at the limit; keep the durations of its iterations."""
        try:
            request = next(measurement)
            while True:
                block = yield from self._ask(request)
                # The first iteration compiles and fills caches: it says nothing of the others.
                if keep and self._heard:
                    self._durations += block.duration_ns
                    del self._durations[:-KEPT_DURATIONS]
                self._heard = True
                request = measurement.send(block)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            measurement.close()

    # --- before the experiment ---------------------------------------------------------------

    def _look_at_state(self, loop: Loop) -> None:
        faults = unsupported_parts(loop.state)
        bad = {fault.path.split("]")[0] + "]" for fault in faults}
        self._state = [
            declared
            for position, declared in enumerate(loop.state)
            if f"state[{position}]" not in bad
        ]
        notices = [f"cannot be saved and put back: {fault}" for fault in faults]
        notices += [
            f"not declared as state, so it will go on from experimental steps: {name}"
            for name in self._undeclared()
        ]
        self._state_complete = bool(loop.state) and not faults
        self.record.notices = notices
        if notices:
            self._announce(notices)

    # --- the length of a block ---------------------------------------------------------------

    def _choose_blocks(self, declared: int) -> Measurement[None]:
        """Long enough for the loop's own rare work, its queues and what a switch leaves."""
        record, settings = self.record, self.settings
        durations = np.array(self._durations, float)
        record.period = longest_period(durations)
        iteration_ns = float(durations.mean())
        arms = first_arms(record, settings.aa_pairs)
        begin = self._now()
        block = max(1, round(plan_blocks(record, arms, iteration_ns, self._end - begin).length))
        pilot: Pilot | None = None
        if any(stage.replaceable for stage in record.looked_at()):
            pilot = yield from self._pilot_until_settled(block, iteration_ns, begin)
            known = self._board.stages.values()
            ahead = {stage.name: stage.reads_ahead for stage in known if stage.reads_ahead}
            learn(record, pilot, declared, ahead)
            arms = first_arms(record, settings.aa_pairs)
        self._iteration_ns = iteration_ns
        self._live = arms
        left = PLANNED_SHARE * (self._end - begin) - (self._now() - begin)
        self._plan_again(left)
        # What is found out first leaves half of the time for how it comes about.
        shorter = plan_blocks(record, self._live, iteration_ns, 0.5 * left)
        self._plan = BlockPlan(shorter.length, self._live, shorter.drain_s)
        record.block_iterations, record.drain_s = shorter.length, shorter.drain_s

    def _plan_again(self, time_ns: float) -> None:
        """Choose the length of blocks, and the arms that there is time for, of those alive."""
        self._plan = plan_blocks(self.record, self._live, self._iteration_ns, time_ns)
        self.record.block_iterations = self._plan.length
        self.record.drain_s = self._plan.drain_s
        for name in self._live.keys() - self._plan.arms.keys():
            self.record.dropped[name] = "there was no time for it"
        self._live = dict(self._plan.arms)

    def _pilot_until_settled(
        self, block: int, iteration_ns: float, begin: int
    ) -> Measurement[Pilot]:
        stages = [s for s in self.record.looked_at() if s.replaceable]
        share = PILOT_SHARE * (self._end - begin)
        affordable = int(share / (2 * PILOT_ROUNDS * LEAST_STRETCH * iteration_ns))
        stages = sorted(stages, key=lambda s: -s.share)[: min(max(1, affordable), MOST_PROBES)]
        probes = {free_name(s.name): s.name for s in stages}
        # Half of the time for the first try: a longer one may be needed.
        most = share / (2 * 2 * PILOT_ROUNDS * len(probes))
        stretch = min(max(STRETCH_NS, STRETCH_ITERATIONS * iteration_ns), most)
        stretch = max(stretch, LEAST_STRETCH * iteration_ns)
        for doubling in range(MAX_DOUBLINGS + 1):
            pilot = yield from self._pilot(probes, stretch, block)
            spent = self._now() - begin
            if pilot.settled or doubling == MAX_DOUBLINGS or 3 * spent > share:
                break
            stretch *= 2
        return pilot

    def _pilot(self, probes: dict[str, str], stretch_ns: float, block: int) -> Measurement[Pilot]:
        """Switch between the baseline and arms with a free stage, and see what a switch leaves."""
        arms = first_arms(self.record, self.settings.aa_pairs)
        outermost = [stage.index for stage in self.record.stages if stage.inside is None]
        found: dict[tuple[str, str], list[Stretch]] = {}
        for repetition in range(PILOT_ROUNDS):
            for probe in list(probes):
                for before, name in ((BASELINE, probe), (probe, BASELINE)):
                    if probe not in probes:
                        continue
                    request = Request(
                        arms[name],
                        iterations=MOST_STRETCH,
                        seconds=stretch_ns * 1e-9,
                        before=self._put_back,
                        phase="choosing the block length",
                    )
                    measured = yield from self._try(request, (repetition * GOLDEN) % 1)
                    if measured is None:
                        del probes[probe]
                        continue
                    found.setdefault((before, name), []).append(
                        stretch_of(measured, outermost, current_lane())
                    )
                    if name == BASELINE:
                        self.record.iterations_kept += len(measured.duration_ns)
                        self._snapshot = Snapshot(self._state)
        found = {pair: rows for pair, rows in found.items() if {*pair} & {*probes}}
        numbers = {stage.name: stage.index for stage in self.record.stages}
        return pilot_of(found, probes, numbers, block)

    def _put_back(self) -> None:
        assert self._snapshot is not None
        self._snapshot.restore()

    # --- rounds ------------------------------------------------------------------------------

    def _rounds(self) -> Measurement[None]:
        settings = self.settings
        begin = self._now()
        planned = begin + PLANNED_SHARE * (self._end - begin)
        for look in range(settings.looks):
            until = begin + (planned - begin) * (look + 1) / settings.looks
            yield from self._rounds_until(until, MIN_ROUNDS if look <= 1 else 1)
            if look < settings.looks - 1:
                paces = self._paces()
                self._drop_arms()
                second = second_arms(self.record, set(self._live), paces, settings.faster)
                if look == 0:
                    self._live |= second
                elif self._settled():
                    self.record.stopped_early = True
                    break
                else:
                    # Replayed durations follow what a call is known to take by now.
                    self._live |= {name: arm for name, arm in second.items() if name in self._live}
                self._plan_again(planned - self._now())
        while self.may_extend and not self._aa_holds() and self._now() < self._end:
            self.record.extended = True
            done = self._round
            yield from self._rounds_until(min(self._end, self._now() + 2e9), 1)
            if self._round == done:
                break

    def _rounds_until(self, until_ns: float, at_least: int) -> Measurement[None]:
        """Whole rounds, until another one would end later than asked."""
        done, round_ns = 0, 0
        while done < at_least or self._now() + round_ns / 2 < until_ns:
            start = self._now()
            if start + round_ns > self._end:
                break
            yield from self._one_round()
            round_ns = self._now() - start
            done += 1

    def _one_round(self) -> Measurement[None]:
        """Every live arm once, all from the same state and replayed from the same output on."""
        length = int(self._rng.integers(self._plan.length, 2 * self._plan.length + 1))
        # Which of the unchanged arms the loop goes on from is left to chance: none is special.
        same = [name for name in self._live if name == BASELINE or is_aa(name)]
        goes_on = str(self._rng.choice(same))
        kept, next_snapshot = 0, self._snapshot
        for name in self._rng.permutation(list(self._live)):
            arm = self._live.get(str(name))
            if arm is None:
                continue  # dropped earlier in this round
            request = self._request(arm, length, f"round {self._round + 1}")
            block = yield from self._try(request, (self._round * GOLDEN) % 1)
            if block is None:
                continue
            self.record.keep(self._round, block, current_lane())
            self._typical_ns.setdefault(arm.name, float(np.median(block.duration_ns)))
            if arm.name == goes_on:
                lead_in = 1 if self.record.concurrent else block.drained
                kept = lead_in + len(block.duration_ns)
                next_snapshot = Snapshot(self._state)
        assert next_snapshot is not None
        self._snapshot = next_snapshot
        next_snapshot.restore()
        self.record.iterations_kept += kept
        self._round += 1

    def _try(self, request: Request, phase: float) -> Generator[Request, Block, Block | None]:
        """One block, replayed from a share `phase` of the tapes on; None if a replay cannot be."""
        arm = request.arm
        replaced = replaced_in(arm)
        self._rewind(replaced, phase)
        self.under_way = arm
        try:
            block = yield from self._ask(request)
        except _OutOfTime:
            raise
        except Exception as error:
            if not replaced:
                raise
            yield from self._blame(arm, error, request)
            return None
        self.under_way = None
        self._look_for_mutations(replaced)
        return block

    def explain(self, error: BaseException) -> str | None:
        """What to know of an exception that ended a script in an arm with a replaced stage.

        A function that is called for each iteration is tried again without the replay; a script
        is gone.
        """
        arm = self.under_way
        if arm is None or not replaced_in(arm) or not isinstance(error, Exception):
            return None
        names = " and ".join(replaced_in(arm))
        return (
            f"{raised_by(arm.name, error)}. In this block {names} returned what had been recorded "
            "before, and the declared state had been put back at its start. If the script does not "
            "raise this by itself, declare the stage effectful, or all that it changes as state"
        )

    def _request(self, arm: Arm, length: int, phase: str) -> Request:
        # With queues, the first iterations eat what other arms had made: what they taught is
        # forgotten when they are over. Without, they are the arm's own.
        record = self.record
        queues = record.concurrent
        drain = record.drain_iterations if replaced_in(arm) else record.drain_base
        drain_s = record.drain_s
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
            at_start=None if queues else self._put_back,
            before_last_drained=self._put_back if queues else None,
            phase=phase,
        )

    def _save_state(self) -> None:
        start = self._now()
        self._snapshot = Snapshot(self._state)
        self._snapshot.restore()
        self.record.snapshot_s = (self._now() - start) * 1e-9

    def _rewind(self, replaced: Sequence[str], phase: float) -> None:
        self._board.replay_phase[0] = phase
        for name in replaced:
            known = self._board.stages.get(name)
            if known is not None:
                known.tape.rewind(phase)

    def _look_for_mutations(self, replaced: Sequence[str]) -> None:
        for name in replaced:
            known = self._board.stages.get(name)
            if known is None:
                continue
            known.tape.rewind()
            in_workers = any(f & MUTATED for _, f in self._board.worker_tapes(known.index))
            if (known.tape.mutated or in_workers) and name not in self.record.mutated:
                self.record.mutated.append(name)

    def _blame(self, arm: Arm, error: Exception, request: Request) -> Measurement[None]:
        """An arm raised: if the loop raises without any replay too, the error is its own."""
        self._put_back()
        yield from self._ask(
            dataclasses.replace(request, arm=Arm(BASELINE), phase="trying without a replay")
        )
        self._put_back()
        reason = raised_by(arm.name, error)
        stages = replaced_in(arm)
        self._live.pop(arm.name, None)
        self.record.dropped[arm.name] = reason
        if arm.name == free_name(stages[0]) and len(stages) == 1:
            stage = self.record.stage(stages[0])
            stage.not_replaced = f"a replayed output does not fit the loop ({reason})"
            for name, other in list(self._live.items()):
                if stage.name in replaced_in(other):
                    self._live.pop(name)
                    self.record.dropped[name] = f"{stage.name} cannot be replaced"
            self._live |= delays(self.record, stage)
            if not self.record.focus:
                self._live |= only_and_all(self.record)

    def _paces(self) -> dict[str, Pace]:
        """How recorded calls compare with those of the rounds so far, and with those alone."""
        record = self.record
        found: dict[str, Pace] = {}
        samples = record.samples(self.settings.seed)
        record.tell_stages()
        for stage in record.looked_at():
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

    # --- looks -------------------------------------------------------------------------------

    def _drop_arms(self) -> None:
        """Successive elimination: stop measuring what cannot be worth it, or is known."""
        settings, record = self.settings, self.record
        samples = record.samples(settings.seed)
        # Several looks at one arm: each has its part of the error.
        confidence = 1 - 0.05 / settings.looks
        for name in list(self._live):
            if name == BASELINE or is_aa(name) or not samples.has(name, BASELINE):
                continue
            gain = samples.means([BASELINE, name]).gain(name, BASELINE, confidence)
            precise = gain.half_width < settings.worth / 4
            if is_free(name) and name != ALL_FREE and gain.high < settings.worth:
                del self._live[name]
                record.dropped[name] = "its gain is below what is worth knowing"
            elif (name == ALL_FREE or not is_free(name)) and precise:
                del self._live[name]
                record.dropped[name] = "known well enough"

    def _settled(self) -> bool:
        """Whether every arm left is known better than the gain worth knowing asks for."""
        samples = self.record.samples(self.settings.seed)
        return all(
            samples.has(name, BASELINE)
            and samples.means([BASELINE, name]).gain(name, BASELINE).half_width
            < self.settings.worth / 8
            for name in self._live
            if name != BASELINE and not is_aa(name)
        )

    def _aa_holds(self) -> bool:
        return aa_test(self.record, self.settings.seed, self.settings.worth).holds
