"""What timing a call costs in the loop itself, where other work has filled the caches.

Blocks in which all calls are timed and blocks in which only those are that say where iterations
begin take turns. What an iteration takes less in the second kind is the cost of timing the others.
Where there are hardly any others, it is the cost of timing calls that follow each other, and what
watching them takes in the loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.cost import probe_cost
from hotloop.loop.figures import Interval, median_interval
from hotloop.loop.stage_types import StageView
from hotloop.loop.watchdog import Watchdog

SHARE = 0.05  # of the budget
FEWEST_PAIRS = 6
BLOCK_NS, DRAINED = 15_000_000, 2
# A call costs no more than this; where all together are less of an iteration, it is not asked.
MOST_NS, WORTH_A_LOOK = 30_000, 0.005
# The longest iterations are left out: rare work, and other programs.
USUAL = 0.9
# Below this share of all calls, the others are too few to divide a difference by.
OTHERS = 0.5
# Calls come as often in both kinds of blocks, or their iterations are not the same.
ALIKE = 0.05
PATIENCE = 2  # so many times as long as was planned


@dataclass(frozen=True)
class CallCost:
    """What measuring takes of an iteration.

    call_ns: of timing one call, on average. calls: that are timed in an iteration. end_ns: of
    seeing that an iteration has ended.
    """

    call_ns: Interval
    calls: float
    end_ns: float

    @property
    def iteration_ns(self) -> Interval:
        """All of it."""
        every = self.call_ns.scaled(self.calls)
        return Interval(*(ns + self.end_ns for ns in (every.value, every.low, every.high)))


def measure_call_cost(
    control: SharedControl, iteration_ns: float, budget_s: float
) -> Measurement[CallCost | None]:
    """Measure what timing a call costs; None where that cannot be known, or is next to nothing.

    iteration_ns: about what an iteration takes; budget_s: of the whole measurement, of which this
    takes a small share.
    """
    known = control.marking is not None and iteration_ns > 0
    if not known or control.obeyed_in_step or control.annotate is not None:
        return None
    turns = _Turns(control, iteration_ns)
    time_ns = SHARE * budget_s * 1e9
    if FEWEST_PAIRS * turns.pair_ns > time_ns:
        return None  # of iterations so long, timing the calls is next to nothing
    # Where not all that marks an iteration is known, it would never be seen to end.
    watchdog = Watchdog(control, PATIENCE * time_ns * 1e-9)
    try:
        yield from turns.run(control.clock.now_ns() + round(time_ns))
    finally:
        watchdog.stop()
    if watchdog.has_ended_an_arm:
        return None
    if turns.has_few_others:
        return turns.cost_with_few_others()
    return turns.cost() if len(turns.timed) >= FEWEST_PAIRS and turns.are_alike() else None


class _Turns:
    """Pairs of blocks: all calls timed, and only those that say where iterations begin."""

    def __init__(self, control: SharedControl, iteration_ns: float) -> None:
        assert control.marking is not None
        self._control, self._iteration_ns = control, iteration_ns
        self._iterations = max(2, round(BLOCK_NS / iteration_ns))
        self.pair_ns = 2 * (DRAINED + self._iterations) * iteration_ns  # about
        self._watching = _Watching(control)
        self._marks = {control.index(name) for name in control.marking}
        self._arms = {
            True: Arm("all calls", rest=REAL),
            False: Arm("marks only", dict.fromkeys(control.marking, REAL), rest=OFF),
        }
        self.timed: list[Block] = []
        self.untimed: list[Block] = []

    def run(self, until_ns: int) -> Measurement[None]:
        """Take turns until the time is up, or it is seen that it is not worth it."""
        now = self._control.clock.now_ns
        try:
            while now() + self.pair_ns < until_ns and self._is_worth_it():
                start = now()
                for timed in (True, False) if len(self.timed) % 2 else (False, True):
                    found = yield self._request(timed=timed)
                    (self.timed if timed else self.untimed).append(found)
                self.pair_ns = now() - start
                if self.has_few_others:
                    break
            if self.has_few_others or len(self.timed) >= FEWEST_PAIRS:
                yield self._request(timed=self.has_few_others, watching=True)
        finally:
            self._watching.stop()
            self._control.marks_only = False

    def _is_worth_it(self) -> bool:
        """Whether timing the calls may be something, as far as the first blocks say."""
        most_ns = self._often(self.timed[:FEWEST_PAIRS], self._others) * MOST_NS
        return not self.timed or most_ns >= WORTH_A_LOOK * self._iteration_ns

    def _request(self, *, timed: bool, watching: bool = False) -> Request:
        self._control.marks_only = not timed
        return Request(
            self._arms[timed],
            iterations=self._iterations,
            drain=DRAINED,
            before=self._watching.start if watching else None,
            phase="measuring what measuring costs",
        )

    @property
    def has_few_others(self) -> bool:
        """Whether most calls say where iterations begin, as the first pair shows."""
        others, every = (self._often(self.timed[:1], each) for each in (self._others, self._leaves))
        return bool(self.timed) and others < OTHERS * every

    def are_alike(self) -> bool:
        """Whether the stages that are timed in both kinds of blocks are called equally often."""
        often = [self._often(blocks, self._marks) for blocks in (self.timed, self.untimed)]
        return abs(often[0] - often[1]) <= ALIKE * max(often)

    def cost(self) -> CallCost:
        """What the blocks say."""
        calls = self._calls(others=True)
        pairs = zip(self.timed, self.untimed, strict=True)
        more_ns = np.array([_usual_ns(timed) - _usual_ns(other) for timed, other in pairs]) / calls
        return CallCost(median_interval(more_ns), self._calls(others=False), self._watching.end_ns)

    def cost_with_few_others(self) -> CallCost:
        """What calls cost that follow each other, and how long each is watched: the least."""
        watching = self._watching
        call_ns = probe_cost(self._control.clock).timed_ns + watching.call_ns
        calls = self._calls(others=False)
        return CallCost(Interval(call_ns, call_ns, call_ns), calls, watching.end_ns)

    def _calls(self, *, others: bool) -> float:
        """Calls of an iteration. others: without those that say where iterations begin."""
        return self._often(self.timed, self._others if others else self._leaves)

    @property
    def _leaves(self) -> set[int]:
        return {s.index for s in self._control.stages.values() if not s.is_whole}

    @property
    def _others(self) -> set[int]:
        return self._leaves - self._marks

    def _often(self, blocks: Sequence[Block], stages: set[int]) -> float:
        main = self._control.main_thread
        calls = sum(e[0] in stages and e[3] == main for block in blocks for e in block.events)
        return calls / max(1, sum(len(block.duration_ns) for block in blocks))


class _Watching:
    """Times what watches the calls: it takes longer where it sees that an iteration ends."""

    def __init__(self, control: SharedControl) -> None:
        self._control, self._watcher = control, control.watcher
        self._spent_ns: dict[str, list[int]] = {}

    def start(self) -> None:
        """Begin to time, if anything watches."""
        if self._watcher is not None:
            self._control.watcher = self._watch

    def stop(self) -> None:
        """End it."""
        self._control.watcher = self._watcher

    def _watch(self, called: StageView) -> None:
        assert self._watcher is not None
        clock = self._control.clock
        cpu, begin = clock.thread_cpu_ns(), clock.now_ns()
        self._watcher(called)
        took_ns, cpu_ns = clock.now_ns() - begin, clock.thread_cpu_ns() - cpu
        # Few iterations fit into a block where they are long, and in each of them another program
        # may have had the core. Reading processor time takes long itself, and would count.
        self._spent_ns.setdefault(called.name, []).append(min(took_ns, cpu_ns))

    @property
    def call_ns(self) -> float:
        """How long a call is watched with which no iteration ends."""
        usual = self._usual_by_stage()
        return min(usual) if len(usual) > 1 else 0.0

    @property
    def end_ns(self) -> float:
        """How much longer a call takes to watch with which an iteration ends."""
        usual = self._usual_by_stage()
        return max(usual) - min(usual) if len(usual) > 1 else max(usual, default=0.0)

    def _usual_by_stage(self) -> list[float]:
        return [float(np.median(spent)) for spent in self._spent_ns.values()]


def _usual_ns(block: Block) -> float:
    durations = np.sort(np.array(block.duration_ns, float))
    return float(durations[: max(1, round(USUAL * len(durations)))].mean())
