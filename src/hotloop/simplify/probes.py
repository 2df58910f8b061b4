"""What measuring a call costs in the loop itself, where other work has filled the caches.

Blocks in which all calls are timed and blocks in which only those are that say where iterations
begin take turns. What an iteration takes less in the second kind is the cost of timing the others.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.cost import ProbeCost
from hotloop.loop.figures import Interval, student_interval
from hotloop.loop.stage_types import StageView
from hotloop.simplify.arm_names import BASELINE
from hotloop.simplify.record import Record
from hotloop.simplify.watchdog import Watchdog

FEWEST_PAIRS = 6
BLOCK_NS = 15_000_000
# A call costs no more than this; where all together are less of an iteration, it is not asked.
MOST_NS, WORTH_A_LOOK = 30_000, 0.005
# The longest iterations are left out: rare work, and other programs.
USUAL = 0.9
# Those that say where iterations begin are taken to cost as much as the others.
LEAST_ERROR = 0.15
# Calls come as often in both kinds of blocks, or their iterations are not the same.
ALIKE = 0.05
PATIENCE = 2  # so many times as long as was planned


def measure_probes(
    control: SharedControl, record: Record, iteration_ns: float, until_ns: int
) -> Measurement[None]:
    """Measure what timing a call costs here; nothing changes where that cannot be known.

    iteration_ns: about what an iteration takes; until_ns: when to have ended.
    """
    marking = control.marking
    if marking is None or record.concurrent or control.obeyed_in_step:
        return
    untimed = [
        stage
        for stage in record.stages
        if stage.name not in marking and not stage.beside_main and not stage.is_whole
    ]
    calls = sum(stage.calls_per_iteration for stage in untimed)
    if calls * MOST_NS < WORTH_A_LOOK * iteration_ns:
        return
    # Where not all that marks an iteration is known, it would never be seen to end.
    watchdog = Watchdog(control, PATIENCE * (until_ns - control.clock.now_ns()) * 1e-9)
    try:
        pairs, watching = yield from _take_turns(control, iteration_ns, until_ns)
    finally:
        watchdog.stop()
    if watchdog.has_ended_an_arm or len(pairs) < FEWEST_PAIRS or not _is_alike(control, pairs):
        return
    more_ns = np.array([_usual_ns(timed) - _usual_ns(off) for timed, off in pairs]) / calls
    error = float(more_ns.std(ddof=1)) / math.sqrt(len(pairs))
    here = student_interval(float(more_ns.mean()), error, len(pairs) - 1)
    record.probe_cost = replace(_cost(record.probe_cost, here), iteration_ns=watching.end_ns)


def _cost(alone: ProbeCost, here: Interval) -> ProbeCost:
    """The cost of a call: `alone` it is the least, and what is not certain here is not added."""
    if not here.low > alone.timed_ns:
        return alone
    return replace(
        alone,
        more_ns=min(here.value, MOST_NS) - alone.timed_ns,
        error_share=min(alone.error_share, max(LEAST_ERROR, here.half_width / here.value)),
    )


class _Watching:
    """Times what watches the calls: it takes longer where it sees that an iteration ends."""

    def __init__(self, control: SharedControl) -> None:
        self._control, self._watcher = control, control.watcher
        self._spent_ns: dict[str, list[int]] = {}

    def start(self) -> None:
        """Begin to time."""
        self._control.watcher = self._watch

    def stop(self) -> None:
        """End it."""
        self._control.watcher = self._watcher

    def _watch(self, called: StageView) -> None:
        assert self._watcher is not None
        now = self._control.clock.now_ns
        begin = now()
        self._watcher(called)
        self._spent_ns.setdefault(called.name, []).append(now() - begin)

    @property
    def end_ns(self) -> float:
        """How much longer a call takes to watch with which an iteration ends."""
        usual = [float(np.median(spent)) for spent in self._spent_ns.values()]
        return max(usual) - min(usual) if len(usual) > 1 else max(usual, default=0.0)


def _take_turns(
    control: SharedControl, iteration_ns: float, until_ns: int
) -> Measurement[tuple[list[tuple[Block, Block]], _Watching]]:
    assert control.marking is not None
    marks_only = Arm("marks only", dict.fromkeys(control.marking, REAL), rest=OFF)
    iterations = max(2, round(BLOCK_NS / iteration_ns))
    pairs: list[tuple[Block, Block]] = []
    watching = _Watching(control)
    pair_ns = 0

    def block(*, timed: bool, before: Callable[[], None] | None = None) -> Measurement[Block]:
        control.marks_only = not timed
        found = yield Request(
            Arm(BASELINE) if timed else marks_only,
            iterations=iterations,
            drain=2,
            before=before,
            phase="measuring what measuring costs",
        )
        return found

    try:
        while control.clock.now_ns() + pair_ns < until_ns:
            start = control.clock.now_ns()
            blocks = {}
            for timed in (True, False) if len(pairs) % 2 else (False, True):
                blocks[timed] = yield from block(timed=timed)
            pairs.append((blocks[True], blocks[False]))
            pair_ns = control.clock.now_ns() - start
        yield from block(timed=False, before=watching.start)
    finally:
        watching.stop()
        control.marks_only = False
    return pairs, watching


def _usual_ns(block: Block) -> float:
    durations = np.sort(np.array(block.duration_ns, float))
    return float(durations[: max(1, round(USUAL * len(durations)))].mean())


def _is_alike(control: SharedControl, pairs: Sequence[tuple[Block, Block]]) -> bool:
    """Whether the stages that are timed in both kinds of blocks are called equally often."""
    assert control.marking is not None
    numbers = {control.index(name) for name in control.marking}
    often = []
    for blocks in zip(*pairs, strict=True):
        calls = sum(event[0] in numbers for block in blocks for event in block.events)
        often.append(calls / sum(len(block.duration_ns) for block in blocks))
    return abs(often[0] - often[1]) <= ALIKE * max(often)
