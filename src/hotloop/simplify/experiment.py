"""The stage-substitution experiment: what would the loop gain if a stage cost nothing?

Rounds are randomised complete blocks: every arm runs once in each, in a random order, from the
same snapshot of the loop's state; the next round goes on from where the baseline ended, so that
what was learned from replayed data is forgotten. Arms that cannot matter are dropped at a fixed
number of looks, and the time goes to the rest. Like the benchmark this is a generator of block
requests, and its `record` is valid at any time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.warmup import warm_up
from hotloop.benchmark.work import WorkCounter, count_work
from hotloop.errors import expect_positive
from hotloop.loop.arm import Arm
from hotloop.loop.board import Board
from hotloop.loop.clock import shortest_wait_ns
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.state import Snapshot, unsupported_parts
from hotloop.loop.tape import MUTATED
from hotloop.simplify.arms import (
    ALL_FREE,
    BASELINE,
    Pace,
    delays,
    first_arms,
    free_name,
    is_aa,
    is_free,
    only_and_all,
    only_name,
    replaced_in,
    second_arms,
)
from hotloop.simplify.estimate import MIN_ROUNDS, smooth_median
from hotloop.simplify.pilot import Pilot, pilot_of
from hotloop.simplify.record import Record
from hotloop.simplify.recording import BaselineCalls, in_flight, record_stages
from hotloop.simplify.verdict import aa_test

RECORD_SHARE = 0.25  # of the budget, at most, goes into filling the tapes
PLANNED_SHARE = 0.8  # of the budget; the rest is for extending a run whose A/A failed
MAX_DOUBLINGS = 5
PILOT_ROUNDS = 4
PILOT_SHARE = 0.25  # of what is left of the budget, at most, goes into choosing the block
MANY_CALLS = 4
# Blocks with which the cost of a block's start is found; what of it is small enough to ignore.
START_BLOCKS, START_ITERATIONS = 10, 4
START_WORTH = 0.003
# A block shorter than this is mostly clock and bookkeeping.
SHORTEST_BLOCK_NS = 300_000


@dataclass(frozen=True)
class SimplifySettings:
    """What to look for, and for how long."""

    budget: float = 30.0
    """Time for the whole experiment, in seconds."""
    worth: float = 0.03
    """The smallest gain worth knowing of, as a share of the loop's time."""
    aa_pairs: int = 3
    """How many arms are the same as the baseline, to see what the method makes of no difference."""
    looks: int = 4
    """How often arms may be dropped."""
    in_flight: int | None = None
    """Items between the first stage and the loop; default: what the loop says, or what is seen."""
    seed: int = 0
    """Of the order of the arms and of the resampling."""
    price_per_hour: float | None = None
    """What the machine costs an hour; overrides the loop's own."""

    def __post_init__(self) -> None:
        for name in ("budget", "worth", "aa_pairs", "looks", "in_flight", "price_per_hour"):
            expect_positive(name.replace("_", " "), getattr(self, name))


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
        self.record = Record(focus=sorted(focus))
        self.may_extend = True  # whether a failed A/A may use what is left of the budget
        self._board = board
        self._now = board.clock.now_ns
        self._announce = announce or (lambda _notices: None)
        self._undeclared = undeclared or (lambda: ())
        self._rng = np.random.default_rng(settings.seed)
        self._state: list[object] = []
        self._snapshot: Snapshot | None = None
        self._live: dict[str, Arm] = {}
        self._baseline = BaselineCalls()
        self._round = 0

    def run(self, loop: Loop) -> Measurement[None]:
        """Warm up, record, choose the block, then rounds and looks within the budget."""
        record, settings = self.record, self.settings
        begin = self._now()
        self._end = begin + round(settings.budget * 1e9)
        record.unit, record.name = loop.unit, loop.name
        record.price_per_hour = settings.price_per_hour or loop.price_per_hour
        record.usable_cores = usable_cores()
        self._look_at_state(loop)
        try:
            record.warm_up = yield from warm_up(self._now, 0.15 * settings.budget)
            deadline = self._now() + round(RECORD_SHARE * settings.budget * 1e9)
            declared = max(loop.in_flight, settings.in_flight or 0)
            yield from record_stages(self._board, record, self._state_complete, deadline, declared)
            record.in_flight = declared or in_flight(self._board, record)
            record.shortest_wait_ns = shortest_wait_ns(self._board.clock)
            if WorkCounter.available():
                record.peaks = measure_peaks()
                record.work = yield from count_work(self._board)
                record.iterations_kept += 2
            self._save_state()
            yield from self._choose_block()
            yield from self._rounds()
        finally:
            # Also when interrupted in the middle of an arm: the loop goes on from the baseline.
            if self._snapshot is not None:
                self._snapshot.restore()
            self._baseline.tell(record)
            record.seconds = (self._now() - begin) * 1e-9
            record.missed_replays = sum(s.tape.missed for s in self._board.stages.values())
            for known in self._board.stages.values():
                known.tape.clear()

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

    def _choose_block(self) -> Measurement[None]:
        """1 iteration if the loop is serial, else doubled until the estimates stop moving."""
        record = self.record
        assert record.warm_up is not None
        shortest = max(SHORTEST_BLOCK_NS, record.snapshot_s * 1e9)
        length = max(1, math.ceil(shortest / max(record.warm_up.ns_per_iteration, 1)))
        if not record.concurrent:
            yield from self._choose_serial_block(length)
            return
        length = max(length, 4 * record.in_flight)
        begin = self._now()
        deadline = begin + PILOT_SHARE * (self._end - begin)
        for doubling in range(MAX_DOUBLINGS + 1):
            pilot = yield from self._pilot(length)
            record.in_flight = max(record.in_flight, pilot.transient)
            record.carry_over = pilot.carry_over
            record.drain_iterations = record.in_flight + 1
            record.block_iterations = max(2 * record.in_flight, (length - pilot.transient) // 2)
            record.block_settled = pilot.transient < length // 2 and pilot.moved < max(
                0.02, self.settings.worth
            )
            # The next length takes twice as long as this one did.
            spent = self._now() - begin
            if record.block_settled or doubling == MAX_DOUBLINGS or begin + 3 * spent > deadline:
                break
            length *= 2

    def _choose_serial_block(self, length: int) -> Measurement[None]:
        """The shortest block, after an untimed iteration if a block's start can be felt in it.

        Between blocks state is put back and arms are chosen; the next iteration finds its caches
        used by others. That adds the same to every arm, and so would take from every gain.
        """
        record = self.record
        times = []
        for _ in range(START_BLOCKS):
            block = yield Request(
                Arm(BASELINE),
                iterations=START_ITERATIONS,
                before=self._put_back,
                phase="choosing the block length",
            )
            times.append(block.duration_ns)
            self._go_on_from_here(block)
            if self._now() > self._end - 0.8 * self.settings.budget * 1e9:
                break
        first, *rest = np.median(np.array(times), axis=0)
        felt = max(0.0, float(first) / float(np.median(rest)) - 1)
        record.block_iterations = length
        record.drain_iterations = int(felt / length > START_WORTH)
        record.carry_over = 0.0 if record.drain_iterations else felt / length

    def _pilot(self, length: int) -> Measurement[Pilot]:
        """Switch between the baseline and the largest free arms, and see what a switch leaves."""
        arms = first_arms(self.record, self.settings.aa_pairs)
        largest = sorted(
            (s for s in self.record.looked_at() if s.replaceable), key=lambda s: -s.share
        )
        probes = [arms[free_name(stage.name)] for stage in largest[:2]] or [arms[BASELINE]]
        times: dict[tuple[str, str], list[list[int]]] = {}
        for _ in range(PILOT_ROUNDS):
            for probe in probes:
                for before, arm in ((probe, arms[BASELINE]), (arms[BASELINE], probe)):
                    block = yield Request(
                        arm,
                        iterations=length,
                        before=self._put_back,
                        phase="choosing the block length",
                    )
                    times.setdefault((before.name, arm.name), []).append(block.duration_ns)
                    if arm.name == BASELINE:
                        self._go_on_from_here(block)
                    self._rewind(arm)
        return pilot_of({pair: np.array(rows, float) for pair, rows in times.items()})

    def _put_back(self) -> None:
        assert self._snapshot is not None
        self._snapshot.restore()

    # --- rounds ------------------------------------------------------------------------------

    def _rounds(self) -> Measurement[None]:
        settings = self.settings
        self._live = first_arms(self.record, self.settings.aa_pairs)
        begin = self._now()
        planned = begin + PLANNED_SHARE * (self._end - begin)
        for look in range(settings.looks):
            until = begin + (planned - begin) * (look + 1) / settings.looks
            yield from self._rounds_until(until, MIN_ROUNDS if look <= 1 else 1)
            if look < settings.looks - 1:
                paces = self._paces()
                self._drop_arms()
                if look == 0:
                    self._live |= second_arms(self.record, set(self._live), paces)
                elif self._settled():
                    self.record.stopped_early = True
                    break
        while self.may_extend and not self._aa_holds() and self._now() < self._end:
            self.record.extended = True
            yield from self._rounds_until(min(self._end, self._now() + 2e9), 1)

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
        record = self.record
        next_snapshot: Snapshot | None = None
        for name in self._rng.permutation(list(self._live)):
            arm = self._live.get(str(name))
            if arm is None:
                continue  # dropped earlier in this round
            try:
                block = yield self._request(arm, f"round {self._round + 1}")
            except Exception as error:
                if not replaced_in(arm):
                    raise
                self._give_up(arm, error)
                continue
            record.keep(self._round, block)
            if arm.name == BASELINE:
                lead_in = 0 if record.concurrent else record.drain_iterations
                record.iterations_kept += lead_in + len(block.duration_ns)
                next_snapshot = Snapshot(self._state)
                self._baseline.add(block)
            self._rewind(arm)
        if next_snapshot is not None:
            self._snapshot = next_snapshot
            next_snapshot.restore()
        self._round += 1

    def _request(self, arm: Arm, phase: str) -> Request:
        # With queues, the first iterations eat what other arms had made: what they taught is
        # forgotten when the drain is over. Without, they are the arm's own.
        queues = self.record.concurrent
        return Request(
            arm,
            iterations=self.record.block_iterations,
            drain=self.record.drain_iterations,
            at_start=None if queues else self._put_back,
            before=self._put_back if queues else None,
            phase=phase,
        )

    def _save_state(self) -> None:
        start = self._now()
        self._snapshot = Snapshot(self._state)
        self._snapshot.restore()
        self.record.snapshot_s = (self._now() - start) * 1e-9

    def _go_on_from_here(self, block: Block) -> None:
        self.record.iterations_kept += len(block.duration_ns)
        self._snapshot = Snapshot(self._state)

    def _rewind(self, arm: Arm) -> None:
        for name in replaced_in(arm):
            known = self._board.stages.get(name)
            if known is None:
                continue
            known.tape.rewind()
            in_workers = any(f & MUTATED for _, f in self._board.worker_tapes(known.index))
            if (known.tape.mutated or in_workers) and name not in self.record.mutated:
                self.record.mutated.append(name)

    def _give_up(self, arm: Arm, error: Exception) -> None:
        """An arm raised: its replayed outputs do not fit this loop."""
        assert self._snapshot is not None
        self._snapshot.restore()
        reason = f"{arm.name} raised {type(error).__name__}: {error}"
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
        found: dict[str, Pace] = {}
        samples = self.record.samples(self.settings.seed)
        for stage in self.record.looked_at():
            if not stage.replaceable or not self._baseline.latest_ns.get(stage.index):
                continue
            # With few calls in an iteration its median is theirs; with many it is their sum's.
            typical = np.mean if stage.calls_per_iteration >= MANY_CALLS else smooth_median
            recorded = float(typical(np.array(stage.tape_ns)))
            drift = recorded / float(typical(np.array(self._baseline.latest_ns[stage.index])))
            stretch = drift
            alone = only_name(stage.name)
            if self.record.concurrent and samples.has(alone, ALL_FREE):
                ceiling = samples.medians([alone, ALL_FREE]).difference(alone, ALL_FREE).value
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
            gain = samples.medians([BASELINE, name]).gain(name, BASELINE, confidence)
            precise = gain.half_width < settings.worth / 2
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
            and samples.medians([BASELINE, name]).gain(name, BASELINE).half_width
            < self.settings.worth / 4
            for name in self._live
            if name != BASELINE
        )

    def _aa_holds(self) -> bool:
        return aa_test(self.record, self.settings.seed).holds
