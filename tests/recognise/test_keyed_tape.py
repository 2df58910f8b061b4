"""A tape whose calls are of several kinds replays to each kind what its own calls returned."""

import numpy as np

from hotloop.loop.tape import FEW_OUTPUTS, MIN_OUTPUTS
from hotloop.recognise.keyed_tape import MOST_KINDS, KeyedTape


def recorded(calls: list[tuple[object, object]]) -> KeyedTape:
    tape = KeyedTape()
    for kind, output in calls:
        tape.record(kind, (), output, (), 1_000, 900, process_cpu_ns=900)
    return tape


def test_each_kind_returns_what_its_own_calls_returned_in_their_order() -> None:
    tape = recorded([("a", 1), ("b", "x"), ("a", 2), ("b", "y"), ("a", 3)])
    replayed = [tape.next_of("a")[0] for _ in range(4)]
    assert replayed == [1, 2, 3, 1]
    assert [tape.next_of("b")[0] for _ in range(3)] == ["x", "y", "x"]
    assert len(tape) == 5
    assert tape.durations_ns().tolist() == [1_000] * 5


def test_a_kind_that_was_not_recorded_is_missed_and_counted() -> None:
    tape = recorded([("a", 1)])
    assert tape.next_of("b") is None
    assert tape.missed == 1


def test_outputs_that_differ_need_more_than_those_that_are_alike() -> None:
    assert recorded([("a", None), ("b", None)]).needed == FEW_OUTPUTS
    assert recorded([("a", None), ("b", 1.0), ("b", 2.0)]).needed == MIN_OUTPUTS


def test_a_new_block_begins_at_a_share_of_every_kind() -> None:
    tape = recorded([("a", k) for k in range(10)] + [("b", k) for k in range(4)])
    tape.rewind(0.5)
    assert tape.next_of("a")[0] == 5
    assert tape.next_of("b")[0] == 2


def test_what_a_consumer_writes_into_a_replayed_output_is_undone() -> None:
    tape = recorded([("a", np.zeros(3))])
    tape.next_of("a")[0][:] = 7.0
    tape.rewind()
    assert tape.mutated
    assert tape.next_of("a")[0].tolist() == [0.0, 0.0, 0.0]


def test_a_problem_of_one_kind_is_the_tape_s() -> None:
    tape = recorded([("a", 1), ("b", (k for k in range(3)))])
    assert tape.problem is not None
    assert "generator" in tape.problem


def test_more_kinds_than_are_told_apart_are_left_out() -> None:
    tape = recorded([(k, k) for k in range(MOST_KINDS + 5)])
    assert len(tape.kinds) == MOST_KINDS
    assert tape.next_of(MOST_KINDS + 1) is None


def test_a_tape_that_was_cleared_is_a_new_one() -> None:
    tape = recorded([("a", 1)])
    tape.clear()
    assert len(tape) == 0
    assert not tape.kinds
