"""What is measured in a window of a watched training: all calls, or what the delay of one does."""

import bisect
import math
import random
from dataclasses import dataclass

import numpy as np

from hotloop.loop.arm import DELAY, REAL, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.recognise.recognition import Recognition
from hotloop.simplify.arms import DELAY_SHARES, MIN_DELAY_NS
from hotloop.simplify.watched import WatchRecord

# Samples take this share of the time at most: what a timed call adds, and reading what was logged.
# Beside delays it is a part of what those may take, if that is more.
SAMPLED_SHARE, PART_OF_DELAYS = 0.001, 0.2
# A timed call takes 2 us where nothing else runs, and 10 to 15 between the calls of a training,
# which have emptied the processor's caches meanwhile.
TIMED_CALL_NS = 12_000
# A window is so long, and has so many iterations.
WINDOW_NS, FEWEST, MOST = 20_000_000, 2, 20
# A block beside a delayed one, and the iterations before it that are not timed.
BLOCK_NS, MOST_IN_BLOCK = 50_000_000, 50
WINDOW = Arm("window", rest=REAL)


@dataclass(frozen=True)
class Delays:
    """How stages are delayed: the share of the time that delays take at most."""

    share: float


class Windows:
    """What the windows of a watch measure, one after the other.

    share: of the time, which windows take at most. spent_ns: what the window of now has taken.
    """

    def __init__(
        self,
        recognition: Recognition,
        record: WatchRecord,
        delays: Delays | None,
        generator: random.Random,
    ) -> None:
        self.spent_ns = 0
        part = 0.0 if delays is None else PART_OF_DELAYS * delays.share
        self.share = max(SAMPLED_SHARE, part)
        self._recognition, self._control = recognition, recognition.control
        self._record, self._delays, self._random = record, delays, generator
        self._now = self._control.clock.now_ns
        self._begin_ns = self._now()
        self._delayed_ns = 0.0
        self.begin(0.0)

    def begin(self, iteration_ns: float) -> None:
        """Measure iterations that take so long, which others may have done so far."""
        self._iteration_ns = iteration_ns
        self._sampled = np.zeros(2)  # units, and the iterations that had them

    @property
    def units_per_iteration(self) -> float:
        """The mean over the windows since `begin`."""
        units, iterations = self._sampled
        return float(units / iterations) if iterations else 1.0

    def following(self) -> tuple[Measurement[None], int]:
        """A window, or a pair of blocks if a delay can be afforded; and its iterations."""
        length = _clipped(WINDOW_NS / self._iteration_ns, FEWEST, MOST)
        if self._delays is None or not self._record.sampled.stage_calls:
            return self._window(length), length
        stage = self._least_tried()
        block = _clipped(BLOCK_NS / self._iteration_ns, FEWEST, MOST_IN_BLOCK)
        if stage is not None:
            name, index, calls = stage
            per_call = max(MIN_DELAY_NS, DELAY_SHARES[0] * self._iteration_ns / calls)
            expected = 2 * block * calls * per_call
            afforded = self._delays.share * (self._now() - self._begin_ns)
            if self._delayed_ns + expected <= afforded:
                self._delayed_ns += expected
                return self._pair(name, index, per_call * 1e-9, block), 4 * block
        return self._window(length), length

    def _window(self, length: int) -> Measurement[None]:
        # The first iteration is not timed: the caches are as the time without a window left them.
        block = yield Request(WINDOW, iterations=length, drain=1)
        self._keep(block)

    def _pair(self, name: str, index: int, delay_s: float, length: int) -> Measurement[None]:
        """One block with a delay and one without, in an order that is drawn."""
        arms = [WINDOW, Arm("delayed", {name: DELAY(delay_s)}, rest=REAL)]
        self._random.shuffle(arms)
        blocks: dict[str, Block] = {}
        for arm in arms:
            blocks[arm.name] = yield Request(arm, iterations=length, drain=length)
        self._keep(blocks[WINDOW.name])
        self.spent_ns += self._timing_ns(blocks["delayed"])
        self._record.add_pair(index, name, blocks[WINDOW.name], blocks["delayed"])

    def _keep(self, block: Block) -> None:
        """Keep a block in which nothing was delayed."""
        sampled = self._record.sampled
        sampled.note_stages(self._control, block.events)
        sampled.keep(block, self._control)
        self._sampled += np.array([sum(block.units), len(block.units)])
        self.spent_ns += self._timing_ns(block)

    def _timing_ns(self, block: Block) -> int:
        """What timing the calls of a block took, those of its drained iterations too."""
        iterations = len(block.duration_ns)
        return TIMED_CALL_NS * len(block.events) * (iterations + block.drained) // iterations

    def _least_tried(self) -> tuple[str, int, float] | None:
        """A stage with the fewest pairs so far, its number, and its calls in an iteration.

        One that is called in every iteration: a delay of rare calls would be felt in few of them.
        """
        sampled = self._record.sampled
        last = bisect.bisect_left(sampled.block_of, len(sampled.stage_calls) - 1)
        calls = sampled.stage_calls[-1] / (len(sampled.block_of) - last)
        tried = np.array([pair[0] for pair in self._record.pairs], np.int64)
        wholes = {name for name, stage in self._recognition.stages.items() if stage.is_whole}
        found = [
            (int((tried == stage["index"]).sum()), self._random.random(), stage, float(called))
            for stage, called in zip(sampled.stages, calls, strict=True)
            if called >= 1 and stage["name"] not in wholes
        ]
        if not found:
            return None
        _, _, stage, called = min(found, key=lambda each: each[:2])
        return stage["name"], stage["index"], called


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
