"""Several optimisers whose updates take turns: all of them together are one iteration."""

from collections.abc import Sequence

import pytest

from hotloop.recognise.period import Call, Iteration, Matcher, find_iteration

GENERATOR, DISCRIMINATOR, OTHER = 1, 2, 3


def update(of: int, forwards: int = 1) -> list[tuple[str, int]]:
    return [("forward", 0)] * forwards + [("backward", 0), ("optimiser step", of)]


def course(steps: Sequence[tuple[str, int]], times: int) -> list[Call]:
    calls = list(steps) * times
    return [Call(name, 10 * k, 10 * k + 5, turn) for k, (name, turn) in enumerate(calls)]


def found_in(calls: list[Call]) -> Iteration:
    found = find_iteration(calls)
    assert isinstance(found, Iteration), found
    return found


def starts(iteration: Iteration, calls: list[Call]) -> list[int]:
    matcher = Matcher(iteration)
    return [k for k, call in enumerate(calls) if matcher.starts(call.name, call.turn)]


def test_the_updates_of_a_gan_are_one_iteration() -> None:
    calls = course(update(DISCRIMINATOR, 3) + update(GENERATOR), 30)
    found = found_in(calls)
    assert found.calls == {"forward": 4.0, "backward": 2.0, "optimiser step": 2.0}
    assert found.confidence > 0.9
    assert set(starts(found, calls)) <= set(range(0, len(calls), 8))
    assert len(starts(found, calls)) >= 29


def test_whose_turn_it_is_is_known_where_the_calls_alone_are_alike() -> None:
    calls = course(update(DISCRIMINATOR) + update(GENERATOR), 30)
    assert found_in(calls).calls["optimiser step"] == 2.0


def test_five_updates_of_one_network_and_then_one_of_the_other() -> None:
    calls = course([*(update(DISCRIMINATOR) * 5), *update(GENERATOR)], 20)
    found = found_in(calls)
    assert found.calls["optimiser step"] == 6.0
    assert all(k % 18 == 0 for k in starts(found, calls))


def test_two_of_each_network_need_two_to_tell_where_the_turns_begin() -> None:
    calls = course([*(update(DISCRIMINATOR) * 2), *(update(GENERATOR) * 2)], 20)
    found = found_in(calls)
    assert found.calls["optimiser step"] == 4.0
    assert all(k % 12 == 0 for k in starts(found, calls))


def test_a_turn_that_is_missing_once_moves_no_later_iteration() -> None:
    whole = course(update(DISCRIMINATOR) + update(GENERATOR), 30)
    found = found_in(whole)
    calls = whole[:66] + whole[69:]  # one update of the discriminator is left out
    places = starts(found, calls)
    assert [calls[k + 2].turn for k in places if k > 72] == [DISCRIMINATOR] * len(
        [k for k in places if k > 72]
    )


@pytest.mark.parametrize(
    "steps",
    [
        [("data", 0), *update(DISCRIMINATOR), *update(GENERATOR)],
        [("env step", 0), *update(DISCRIMINATOR), ("env step", 0), *update(GENERATOR)],
    ],
)
def test_where_there_is_a_source_it_marks_the_iterations(steps: list[tuple[str, int]]) -> None:
    found = found_in(course(steps, 30))
    source = steps[0][0]
    assert found.calls[source] == 1.0
    assert found.last == ()


def test_one_optimiser_takes_no_turns() -> None:
    assert found_in(course(update(OTHER), 30)).calls["optimiser step"] == 1.0
