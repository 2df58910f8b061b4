"""The prioritised replay: every transition is drawn as it was added, by its priority."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError, ShapeError
from hotloop.rollout.replay import FLOOR, PrioritisedReplay
from support.equivalence import COMMON
from support.often import examples
from support.transitions import expect_whole, transitions


@settings(max_examples=examples(60), **COMMON)
@given(
    capacity=st.integers(1, 40),
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_what_is_drawn_is_whole_and_among_the_newest(capacity, counts, seed):
    rng = np.random.default_rng(seed)
    replay, added = PrioritisedReplay(capacity), 0
    for count in counts:
        replay.add(transitions(added, count), rng.exponential(size=count))
        added += count
        assert (replay.added, len(replay)) == (added, min(added, capacity))
        if added:
            drawn = replay.draw(30, rng, beta=0.5)
            assert max(0, added - capacity) <= drawn.number.min()
            assert drawn.number.max() < added
            expect_whole(drawn)
            replay.set_errors(drawn.number, rng.exponential(size=30))


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_shares_and_weights_are_those_of_the_formulas(exponent):
    rng = np.random.default_rng(0)
    replay = PrioritisedReplay(8, exponent=exponent)
    replay.add(transitions(0, 8), np.zeros(8))
    errors = np.array([0, 1, -2, 3, 0.5, -0.1, 10, 4])
    replay.set_errors(np.arange(8), errors)
    expected = (np.abs(errors) + FLOOR) ** exponent
    expected /= expected.sum()
    drawn = replay.draw(200_000, rng, beta=0.4)
    share = np.bincount(drawn.number, minlength=8) / 200_000
    np.testing.assert_allclose(share, expected, atol=2e-4)
    weight = (8 * expected[drawn.number]) ** -0.4
    np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=1e-9)


def test_errors_of_what_is_gone_are_left_out():
    replay = PrioritisedReplay(4)
    replay.add(transitions(0, 4), np.ones(4))
    drawn = replay.draw(50, np.random.default_rng(0), beta=0.0)
    replay.add(transitions(4, 3), np.zeros(3))
    replay.set_errors(drawn.number, np.full(50, 1e9))
    share = np.bincount(replay.draw(1000, np.random.default_rng(1), beta=0.0).number, minlength=7)
    assert share[3] > 990, "3 is still there, and 4 to 6 kept the errors that they came with"


def test_it_is_saved_and_goes_on():
    rng = np.random.default_rng(0)
    replay = PrioritisedReplay(10)
    replay.add(transitions(0, 13), rng.exponential(size=13))
    other = PrioritisedReplay(10)
    other.load_state_dict(replay.state_dict(), transitions(0, 0))
    for one in (replay, other):
        one.add(transitions(13, 2), np.ones(2))
    drawn = [one.draw(100, np.random.default_rng(5), beta=0.4) for one in (replay, other)]
    np.testing.assert_array_equal(drawn[0].number, drawn[1].number)
    np.testing.assert_array_equal(drawn[0].weight, drawn[1].weight)
    expect_whole(drawn[1])
    assert replay.nbytes == other.nbytes > 0


def test_an_empty_one_is_saved_too():
    other = PrioritisedReplay(10)
    other.load_state_dict(PrioritisedReplay(10).state_dict(), transitions(0, 0))
    assert len(other) == 0
    other.add(transitions(0, 2), np.ones(2))
    expect_whole(other.draw(5, np.random.default_rng(0), beta=0.0))


def test_bad_input_is_refused():
    for capacity, exponent in ((0, 0.6), (5, -0.1), (5, 1.1), (2.5, 0.6)):
        with pytest.raises(SettingError):
            PrioritisedReplay(capacity, exponent=exponent)
    replay = PrioritisedReplay(5)
    with pytest.raises(SettingError, match="above 0"):
        replay.draw(1, np.random.default_rng(0), beta=0.4)
    with pytest.raises(ShapeError, match="0 or more"):
        replay.add(transitions(0, 2), np.array([1.0, np.nan]))
    replay.add(transitions(0, 2), np.ones(2))
    state = replay.state_dict()
    other = PrioritisedReplay(5)
    for change in ({"added": 3}, {"transitions": []}, {"priority": np.ones(3)}):
        with pytest.raises(ShapeError, match="replay: state"):
            other.load_state_dict({**state, **change}, transitions(0, 0))
    assert len(other) == 0


@pytest.mark.parametrize("number", [-1, 3, 10])
def test_numbers_that_were_never_given_out_are_refused(number: int) -> None:
    replay = PrioritisedReplay(5)
    replay.add(transitions(0, 3), np.ones(3))
    with pytest.raises(ShapeError, match=f"from 0 and below 3, got {number}"):
        replay.set_errors(np.array([0, number]), np.ones(2))
