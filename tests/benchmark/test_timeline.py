"""How long a stage was running, with calls side by side counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.benchmark.timeline import RunningTime, running_ns, time_and_calls
from hotloop.loop.event import Event

STAGES = 3


def test_calls_side_by_side_count_once() -> None:
    events = [Event(0, 0, 100, lane) for lane in range(8)]
    assert running_ns(events, 1).tolist() == [100]
    assert time_and_calls(events, 1)[0].tolist() == [800]


def test_gaps_between_calls_do_not_count() -> None:
    events = [
        Event(0, 0, 10, 1),
        Event(0, 5, 20, 2),
        Event(0, 30, 40, 1),
        Event(1, 0, 100, 1),
        Event(1, 10, 20, 1),  # inside of the one before
        Event(1, 90, 101, 2),
    ]
    assert running_ns(events, STAGES).tolist() == [30, 101, 0]


def test_no_calls_take_no_time() -> None:
    assert running_ns([], STAGES).tolist() == [0, 0, 0]
    assert RunningTime().add([], STAGES).tolist() == [0, 0, 0]


def test_a_call_that_reaches_back_into_earlier_blocks_counts_once() -> None:
    running = RunningTime()
    first = [Event(0, 0, 100, 1), Event(1, 0, 100, 1)]
    second = [Event(0, 50, 150, 2), Event(1, 150, 160, 1)]
    assert running.add(first, 2).tolist() == [100, 100]
    assert running.add(second, 2).tolist() == [50, 10]


spans = st.tuples(
    st.integers(0, STAGES - 1), st.integers(0, 60), st.integers(0, 25), st.integers(0, 4)
)
calls = st.lists(spans, max_size=40).map(
    lambda found: [
        Event(stage, start, start + length, lane) for stage, start, length, lane in found
    ]
)


def painted(events: list[Event]) -> list[int]:
    """The same, nanosecond by nanosecond."""
    shown = np.zeros((STAGES, 100), bool)
    for event in events:
        shown[event.stage, event.start_ns : event.end_ns] = True
    return shown.sum(axis=1).tolist()


@given(calls)
def test_it_is_the_length_of_the_union(events: list[Event]) -> None:
    assert running_ns(events, STAGES).tolist() == painted(events)


@given(calls)
def test_blocks_add_up_to_the_whole_where_no_call_is_longer_than_those_before(
    events: list[Event],
) -> None:
    # The longest call first; then each call is in the block in which it ends.
    longest = [Event(stage, -25, 0, 0) for stage in range(STAGES)]
    running = RunningTime()
    total = running.add(longest, STAGES)
    for begin in range(0, 100, 20):
        block = [event for event in events if begin <= event.end_ns < begin + 20]
        total += running.add(block, STAGES)
    assert total.tolist() == [25 + ns for ns in painted(events)]


@pytest.mark.parametrize("lanes", [1, 8])
def test_many_calls_are_added_up_as_arrays(lanes: int) -> None:
    count = 100_000
    starts = np.arange(count) // lanes * 10
    events = [Event(k % 2, int(start), int(start) + 7, k % lanes) for k, start in enumerate(starts)]
    found = running_ns(events, 2)
    groups = count // lanes
    expected = [groups * 7 / 2] * 2 if lanes == 1 else [groups * 7] * 2
    assert found.tolist() == expected
