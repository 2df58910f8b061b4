"""Variants that take turns: who runs in a round, what is kept, and who may be taken."""

import math

import numpy as np
import pytest

from hotloop.loop.race import Race, as_fast, fastest, is_settled, ratio_of

NOISE = np.array([1.0, -1.0, 0.5, -0.5, 0.2, -0.2])[:, None]


def test_every_variant_has_one_turn_a_round_in_changing_order():
    order: list[int] = []
    race = Race([lambda k=k: order.append(k) or float(k) for k in range(4)])  # type: ignore[misc]
    for _ in range(6):
        race.round()
    rounds = [tuple(order[k : k + 4]) for k in range(0, 24, 4)]
    assert all(sorted(each) == [0, 1, 2, 3] for each in rounds)
    assert len(set(rounds)) > 1
    np.testing.assert_array_equal(race.rates, np.tile([0.0, 1.0, 2.0, 3.0], (6, 1)))


def test_one_that_fails_or_is_dropped_leaves_and_one_that_joins_has_later_rounds_only():
    race = Race([lambda: 1.0, lambda: math.nan, lambda: 3.0])
    race.round()
    assert race.running == [0, 2]
    race.drop(2)
    assert race.add(lambda: 4.0) == 3
    race.round()
    race.round()
    nan = math.nan
    np.testing.assert_array_equal(
        race.rates, [[1.0, nan, 3.0, nan], [1.0, nan, nan, 4.0], [1.0, nan, nan, 4.0]]
    )
    assert race.ratio(3, 0).value == 4
    assert math.isnan(race.ratio(3, 2).value), "no round holds both"


def test_what_was_measured_before_an_interrupt_stays():
    def interrupted() -> float:
        raise KeyboardInterrupt

    race = Race([lambda: 1.0])
    race.round()
    race.add(interrupted)
    with pytest.raises(KeyboardInterrupt):
        race.round()
    assert race.rates.shape == (2, 2)
    assert race.rates[0, 0] == 1


def test_a_race_is_settled_when_one_is_proved_faster_than_all_others():
    assert is_settled(np.array([100.0, 120.0, 80.0]) + NOISE)
    assert not is_settled(np.array([100.0, 120.0, 120.1]) + NOISE * [1, 1, -1])


def test_drift_that_is_in_all_variants_hides_nothing():
    drift = np.linspace(1.0, 3.0, 8)[:, None]
    rates = np.array([100.0, 101.0]) * drift
    assert ratio_of(rates, 1, 0).low > 1
    assert fastest(rates) == 1


def test_what_may_be_taken_for_the_fastest():
    assert as_fast(np.array([100.0, 120.0, 80.0]) + NOISE) == [1]
    assert as_fast(np.array([100.0, 100.1, 80.0]) + NOISE * [1, -1, 1]) == [0, 1]
    assert as_fast(np.array([98.0, 100.0]) + 0.1 * NOISE, worth=0.03) == [0, 1], "not worth it"
