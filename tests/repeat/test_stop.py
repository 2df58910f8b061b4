"""When to stop: planted numbers for each reason, on either side of its border."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.errors import SettingError
from hotloop.repeat import stop
from hotloop.repeat.entries import GAIN, OVERLAP, Metric, gain_at
from hotloop.repeat.stop import Decision, Lever, Limits, decide, levers_of, overlap_of

RATE = Metric(100.0, 95.0, 105.0, "steps/s")
UPDATE = Lever("update", Metric(0.30, 0.28, 0.32))
STORE = Lever("store", Metric(0.01, -0.01, 0.02))
MONEY = {"hours": 1000.0, "price_per_hour": 2.0, "effort_hours": 8.0}


def decided(
    stages: list[Lever] | None = None,
    overlap: float | None = None,
    rate: Metric | None = RATE,
    **limits: Any,
) -> Decision:
    beside = None if overlap is None else Lever(OVERLAP, Metric(overlap, overlap - 1, 1.0))
    return decide(Limits(**limits), rate, [UPDATE, STORE] if stages is None else stages, beside)


# --- the target rate ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", [10.0, 95.0])
def test_a_target_that_the_lower_limit_meets_is_met(target: float) -> None:
    found = decided(target_rate=target)
    assert (found.verdict, found.because) == (stop.STOP, stop.TARGET_MET)
    assert found.rate_met
    assert found.value_met


@pytest.mark.parametrize("target", [95.001, 100.0])
def test_a_target_that_only_the_value_meets_is_not_met(target: float) -> None:
    found = decided(target_rate=target)
    assert (found.verdict, found.because) == (stop.GO_ON, stop.TARGET_NOT_MET)
    assert not found.rate_met
    assert found.value_met


def test_a_target_above_the_value_is_not_met() -> None:
    found = decided(target_rate=100.001)
    assert found.because == stop.TARGET_NOT_MET
    assert not found.value_met


def test_a_rate_without_an_interval_meets_no_target_for_certain() -> None:
    found = decided(rate=Metric(100.0), target_rate=50.0)
    assert found.because == stop.TARGET_NOT_MET
    assert found.value_met


def test_a_target_without_a_rate_says_that_it_is_missing() -> None:
    found = decided(rate=None, target_rate=50.0)
    assert found.verdict == stop.CANNOT_SAY
    assert stop.RATE_NOW in found.missing
    assert found.rate_met is None


def test_a_target_that_is_met_ends_it_whatever_could_be_saved() -> None:
    assert decided(target_rate=50.0, **MONEY).because == stop.TARGET_MET


# --- money --------------------------------------------------------------------------------------


def test_what_saves_more_than_it_costs_is_worth_it() -> None:
    found = decided(**MONEY)
    assert (found.verdict, found.because) == (stop.GO_ON, stop.WORTH_IT)
    assert found.expected_saving == pytest.approx(1000 * 2 * 0.30)
    assert found.best_saving == pytest.approx(1000 * 2 * 0.32)
    assert found.effort_cost == 8 * 60
    assert found.lever == UPDATE


def test_what_saves_less_at_best_than_it_costs_is_not_worth_it() -> None:
    found = decided(**MONEY | {"hours": 700.0})  # at best 448, against 480
    assert (found.verdict, found.because) == (stop.STOP, stop.NOT_WORTH_IT)


def test_the_best_case_counts_and_not_the_expected_one() -> None:
    found = decided(**MONEY | {"hours": 760.0})  # 456 expected, 486 at best, against 480
    assert found.because == stop.WORTH_IT
    assert found.expected_saving is not None
    assert found.effort_cost is not None
    assert found.expected_saving < found.effort_cost


def test_at_the_border_it_goes_on() -> None:
    lever = Lever("update", Metric(0.25, 0.2, 0.5))
    limits = {"hours": 480.0, "price_per_hour": 2.0, "effort_hours": 8.0}
    assert decided([lever], **limits).because == stop.WORTH_IT
    assert decided([lever], **limits | {"hours": 479.9}).because == stop.NOT_WORTH_IT


def test_the_price_of_work_is_what_was_given() -> None:
    found = decided(**MONEY, effort_price_per_hour=100.0)
    assert found.because == stop.NOT_WORTH_IT
    assert found.effort_cost == 800


def test_a_gain_without_an_interval_may_be_anything_at_best() -> None:
    found = decided([Lever("update", Metric(0.01))], **MONEY)
    assert found.best_saving == 2000


def test_no_best_case_saves_more_than_all() -> None:
    assert Lever("a", Metric(0.9, 0.5, 1.3)).best_case == 1.0


def test_perfect_overlap_is_a_lever_like_the_stages() -> None:
    found = decided(overlap=0.4, **MONEY)
    assert found.lever is not None
    assert found.lever.name == OVERLAP
    assert found.expected_saving == pytest.approx(800)


@pytest.mark.parametrize("missing", sorted(MONEY))
def test_a_missing_setting_is_named_and_not_guessed(missing: str) -> None:
    found = decided(**{name: value for name, value in MONEY.items() if name != missing})
    assert (found.verdict, found.because) == (stop.CANNOT_SAY, stop.MISSING)
    assert found.missing == [f"--{missing.replace('_', '-')}"]


def test_without_any_setting_all_are_named() -> None:
    found = decided()
    assert found.verdict == stop.CANNOT_SAY
    assert found.missing == ["--hours", "--price-per-hour", "--effort-hours"]


def test_without_gains_that_is_what_is_missing() -> None:
    found = decided([], **MONEY)
    assert found.verdict == stop.CANNOT_SAY
    assert found.missing == [stop.GAINS]
    assert found.lever is None


# --- the ceiling --------------------------------------------------------------------------------


def test_the_ceiling_is_near_where_neither_way_up_leaves_as_much_as_counts() -> None:
    found = decided([STORE], overlap=0.029)
    assert (found.verdict, found.because) == (stop.STOP, stop.NEAR_CEILING)


def test_a_stage_whose_best_case_counts_is_not_near_the_ceiling() -> None:
    at = Lever("store", Metric(0.01, -0.01, 0.03))
    below = Lever("store", Metric(0.01, -0.01, 0.0299))
    assert decided([at], overlap=0.0).because == stop.MISSING
    assert decided([below], overlap=0.0).because == stop.NEAR_CEILING
    assert decided([below]).because == stop.NEAR_CEILING


def test_overlap_that_would_still_gain_is_not_near_the_ceiling() -> None:
    assert decided([STORE], overlap=0.03).because == stop.MISSING


def test_one_slow_stage_is_not_near_the_ceiling_though_overlap_gains_nothing() -> None:
    assert decided([UPDATE], overlap=0.0).because == stop.MISSING


def test_what_counts_is_what_the_experiment_took_for_it() -> None:
    assert decided([STORE], worth=0.05).because == stop.NEAR_CEILING
    assert decided([STORE], worth=0.01).because == stop.MISSING


def test_overlap_alone_says_nothing_of_the_stages() -> None:
    assert decided([], overlap=0.0).because == stop.MISSING


# --- what always holds --------------------------------------------------------------------------

POSITIVE = st.floats(0.01, 1e6)
GAINS = st.builds(
    lambda value, below, above: Metric(value, value - below, value + above),
    st.floats(-0.5, 1.0),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)


@given(gain=GAINS, hours=POSITIVE, price=POSITIVE, effort=POSITIVE, work=POSITIVE)
def test_it_is_not_worth_it_just_where_the_best_case_saves_less_than_it_costs(
    gain: Metric, hours: float, price: float, effort: float, work: float
) -> None:
    limits = Limits(hours, price, effort, effort_price_per_hour=work)
    found = decide(limits, RATE, [Lever("a", gain)], None)
    assert gain.high is not None
    cheaper = hours * price * min(gain.high, 1.0) < effort * work
    assert (found.because == stop.NOT_WORTH_IT) == cheaper


@given(gain=GAINS, hours=POSITIVE, more=st.floats(1, 100), effort=POSITIVE)
def test_more_hours_never_make_a_try_less_worth_it(
    gain: Metric, hours: float, more: float, effort: float
) -> None:
    def stops(hours: float) -> bool:
        found = decide(Limits(hours, 1.0, effort), RATE, [Lever("a", gain)], None)
        return found.because == stop.NOT_WORTH_IT

    assert gain.high is not None
    if gain.high > 0:
        assert stops(hours) or not stops(hours * more)


@given(low=st.floats(1, 100), value=st.floats(0, 50), target=POSITIVE)
def test_a_target_is_met_just_where_the_lower_limit_reaches_it(
    low: float, value: float, target: float
) -> None:
    rate = Metric(low + value, low, low + 2 * value)
    found = decide(Limits(target_rate=target), rate, [UPDATE], None)
    assert (found.because == stop.TARGET_MET) == (low >= target)


# --- settings and metrics -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=name.replace("_", ".")):
        Limits(**{name: value})


def test_levers_are_read_from_metrics_the_largest_first() -> None:
    metrics = {
        "rate": RATE,
        GAIN + "act": Metric(0.1),
        GAIN + "update": Metric(0.3),
        gain_at(2, "update"): Metric(0.15),
        gain_at(4, "update"): Metric(0.2),
        gain_at(2, "act: update"): Metric(0.01),
        OVERLAP: Metric(0.4),
    }
    levers = levers_of(metrics)
    assert [lever.name for lever in levers] == ["update", "act"]
    assert levers[0].faster == {"2x faster": Metric(0.15), "4x faster": Metric(0.2)}
    assert levers[1].faster == {}
    beside = overlap_of(metrics)
    assert beside is not None
    assert beside.gain == Metric(0.4)
    assert overlap_of({}) is None
