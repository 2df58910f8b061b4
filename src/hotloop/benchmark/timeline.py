"""Reading a list of events: which stage runs inside which, on what lane, and for how long."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from hotloop.loop.board import GPU_LANE, Event

# Enough to draw one iteration of most loops.
KEPT_EVENTS = 5_000


def parents(events: Sequence[Event]) -> dict[int, int | None]:
    """For each stage, the stage it is usually called inside of, or None."""
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
    """Events by the thread, task or stream they ran on."""
    lanes: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        lanes[event.lane].append(event)
    return dict(lanes)


def lanes_of(events: Sequence[Event]) -> dict[int, set[int]]:
    """For each stage, the lanes it was seen on."""
    seen: dict[int, set[int]] = defaultdict(set)
    for event in events:
        seen[event.stage].add(event.lane)
    return dict(seen)


def beside(
    events: Sequence[Event], boundaries_ns: np.ndarray, main_lane: int, main_thread: int
) -> set[int]:
    """The stages that run beside the loop's own thread of control.

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


def busy(events: Sequence[Event], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Time in ns and calls of each of `count` stages, inner ones included: two arrays (count,)."""
    time_ns = np.zeros(count)
    calls = np.zeros(count, dtype=np.int64)
    for event in events:
        time_ns[event.stage] += event.end_ns - event.start_ns
        calls[event.stage] += 1
    return time_ns, calls


def to_array(events: Sequence[Event], keep: int = KEPT_EVENTS) -> np.ndarray:
    """The first events as an array (K, 4): stage, start, end (ns), lane."""
    return np.array([tuple(event) for event in events[:keep]], dtype=np.int64).reshape(-1, 4)


def from_array(array: np.ndarray) -> list[Event]:
    """The inverse of `to_array`."""
    return [Event(*(int(field) for field in row)) for row in array]
