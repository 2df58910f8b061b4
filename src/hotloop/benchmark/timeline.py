"""Reading a list of events: which stage runs inside which, on which lane, and for how long."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from hotloop.loop.event import GPU_LANE, MAX_STAGES, Event

# Enough to draw one iteration of most loops.
KEPT_EVENTS = 5_000


def parents(events: Sequence[Event]) -> dict[int, int | None]:
    """Return for each stage the one that usually calls it, or None."""
    votes: dict[int, Counter[int | None]] = defaultdict(Counter)
    for lane_events in by_lane(events).values():
        stack: list[Event] = []
        # Of two that start together the longer one is the outer one.
        for event in sorted(lane_events, key=lambda event: (event.start_ns, -event.end_ns)):
            while stack and stack[-1].end_ns < event.end_ns:
                stack.pop()
            inside = stack[-1].stage if stack and stack[-1].start_ns <= event.start_ns else None
            if inside != event.stage:
                votes[event.stage][inside] += 1
            stack.append(event)
    return {stage: counter.most_common(1)[0][0] for stage, counter in votes.items()}


def by_lane(events: Sequence[Event]) -> dict[int, list[Event]]:
    """Return the events by the lane that they ran on."""
    lanes: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        lanes[event.lane].append(event)
    return dict(lanes)


def lanes_of(events: Sequence[Event]) -> dict[int, set[int]]:
    """Return for each stage the lanes that it ran on."""
    seen: dict[int, set[int]] = defaultdict(set)
    for event in events:
        seen[event.stage].add(event.lane)
    return dict(seen)


def stages_beside_loop(
    events: Sequence[Event], boundaries_ns: np.ndarray, main_lane: int, main_thread: int
) -> set[int]:
    """Return the stages that run beside the loop's own lane.

    boundaries_ns: the times between the iterations, ascending; main_lane: what runs them.
    Those on another thread or process; and of those in other asyncio tasks, the ones whose task
    lives longer than an iteration, or that are still running when one ends.
    """
    found: set[int] = set()
    lives: dict[int, set[int]] = defaultdict(set)  # iterations that a task was seen in
    across: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    for event in events:
        if event.lane in (main_lane, GPU_LANE):
            continue
        if event.lane >= 0:
            if event.lane != main_thread:
                found.add(event.stage)
            continue
        first, last = np.searchsorted(boundaries_ns, (event.start_ns, event.end_ns))
        lives[event.lane] |= {int(first), int(last)}
        across[event.stage] += int(first != last)
        calls[event.stage] += 1
    found |= {
        event.stage
        for event in events
        if event.lane < GPU_LANE and event.lane != main_lane and len(lives[event.lane]) > 1
    }
    return found | {stage for stage, count in across.items() if count >= 0.05 * calls[stage]}


def time_and_calls(events: Sequence[Event], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return time in ns and calls of each of `count` stages, with inner ones: twice (count,).

    The times of calls that run side by side are added up; `running_ns` counts them once.
    """
    time_ns = np.zeros(count)
    calls = np.zeros(count, dtype=np.int64)
    for event in events:
        time_ns[event.stage] += event.end_ns - event.start_ns
        calls[event.stage] += 1
    return time_ns, calls


def running_ns(events: Sequence[Event], count: int) -> np.ndarray:
    """Return the time in ns in which any call of each of `count` stages ran: (count,), float64.

    The length of the union of a stage's calls over all lanes, so it is never longer than the time
    from the first call's start to the last one's end.
    """
    return _union_ns(_columns(events), count)


class RunningTime:
    """`running_ns` of consecutive blocks: a moment in calls of two blocks counts once.

    A call is in the events of the block in which it ends, so calls that are longer than a block
    reach back into earlier ones, where other calls of the stage may have been counted.
    """

    def __init__(self) -> None:
        self._kept = np.zeros((3, 0), np.int64)
        self._longest_ns = np.zeros(MAX_STAGES, np.int64)

    def add(self, events: Sequence[Event], count: int) -> np.ndarray:
        """Return the time that a block's events add, for each of `count` stages: (count,)."""
        new = _columns(events)
        if not new.shape[1]:
            return np.zeros(count)
        both = np.concatenate([self._kept, new], axis=1)
        added: np.ndarray = _union_ns(both, count) - _union_ns(self._kept, count)
        stages, starts, ends = new
        np.maximum.at(self._longest_ns, stages, ends - starts)
        # Later calls end later, and are hardly longer than the stage's longest one so far.
        self._kept = both[:, both[2] > ends.max() - self._longest_ns[both[0]]]
        return added


def to_array(events: Sequence[Event], keep: int = KEPT_EVENTS) -> np.ndarray:
    """Return the first events as an array (K, 4): stage, start, end (ns), lane."""
    return np.array([tuple(event) for event in events[:keep]], dtype=np.int64).reshape(-1, 4)


def from_array(array: np.ndarray) -> list[Event]:
    """Return the events of an array that `to_array` made."""
    return [Event(*(int(field) for field in row)) for row in array]


def _columns(events: Sequence[Event]) -> np.ndarray:
    """Stage, start and end of each event: (3, K), int64."""
    flat = np.fromiter(itertools.chain.from_iterable(events), np.int64, 4 * len(events))
    columns: np.ndarray = flat.reshape(-1, 4)[:, :3].T
    return columns


def _union_ns(columns: np.ndarray, count: int) -> np.ndarray:
    stage, start, end = columns[:, np.lexsort((columns[1], columns[0]))]
    found = np.zeros(count)
    bounds = np.searchsorted(stage, np.arange(count + 1))
    for number in range(count):
        calls = slice(bounds[number], bounds[number + 1])
        starts, ends = start[calls], end[calls]
        if len(starts):
            # What the calls that started earlier have covered is not counted again.
            covered = np.maximum.accumulate(ends)
            starts = np.concatenate([starts[:1], np.maximum(starts[1:], covered[:-1])])
            found[number] = np.maximum(ends - starts, 0).sum()
    return found
