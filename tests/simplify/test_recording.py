"""How many items lie between a producer and the loop, by the counts of a recording."""

import pytest

from hotloop.loop import SharedControl, Stage
from hotloop.simplify.record import Record
from hotloop.simplify.recording import UNKNOWN_IN_FLIGHT, in_flight
from support.stages import stage_facts


def items(calls: int, calls_per_iteration: float) -> int:
    """In flight after 1,000 iterations, if the producer's calls were counted so."""
    control = SharedControl()
    fetch = Stage("fetch", control=control)
    control.calls[fetch.index] = calls
    facts = stage_facts(
        "fetch", fetch.index, 1.0, calls_per_iteration=calls_per_iteration, beside_main=True
    )
    return in_flight(control, Record(stages=[facts], concurrent=True, iterations_kept=1000))


@pytest.mark.parametrize("recorded", [0.98, 1.0, 1.03])
def test_a_paced_producer_is_ahead_by_its_calls(recorded: float) -> None:
    """Calls an iteration, as they came out in a few iterations, are not what is multiplied."""
    assert items(1006, recorded) == 6


def test_one_call_in_two_iterations_is_paced_too() -> None:
    assert items(503, 0.51) == 6


def test_calls_that_follow_the_clock_are_not_in_flight() -> None:
    assert items(660, 0.64) == UNKNOWN_IN_FLIGHT


def test_iterations_before_a_script_was_known_are_not_in_flight() -> None:
    """The loop's own stages were called in them too."""
    control = SharedControl()
    fetch, update = Stage("fetch", control=control), Stage("update", control=control)
    control.calls[fetch.index], control.calls[update.index] = 4_132, 2_060
    stages = [
        stage_facts("fetch", fetch.index, 1.0, calls_per_iteration=4.1, beside_main=True),
        stage_facts("update", update.index, 1.0, calls_per_iteration=2.0),
    ]
    assert in_flight(control, Record(stages=stages, concurrent=True, iterations_kept=1000)) == 3
