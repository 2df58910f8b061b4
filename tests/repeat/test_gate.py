"""What a gate decides: each end of the interval on its own, at the first look that can say."""

import pytest

from hotloop.errors import SettingError, parsed_share
from hotloop.loop.figures import Interval, Unknown
from hotloop.repeat.estimate import Look, looks_of
from hotloop.repeat.gate import (
    BLOCK_ALPHA,
    BLOCKED,
    CANNOT_SAY,
    PASS_ALPHA,
    PASSED,
    GateSettings,
    decision,
    judge_gate,
    looking,
)
from hotloop.repeat.record import Record
from support.comparisons import about, record_of

WORSE = 0.03


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.001, 0.2, BLOCKED),
        (0.001, 0.02, BLOCKED),  # surely slower, if by less than `worse`
        (0.0, 0.2, CANNOT_SAY),
        (-0.01, 0.029, PASSED),
        (-0.2, -0.1, PASSED),
        (-0.01, 0.03, CANNOT_SAY),
        (-0.01, 0.2, CANNOT_SAY),
    ],
)
def test_each_look_is_decided_by_its_ends(low: float, high: float, expected: str) -> None:
    look = Look(launches=5, share=0.5, slowdown=Interval((low + high) / 2, low, high), error=0.01)
    assert decision(look, WORSE) == expected


@pytest.mark.parametrize(
    ("slowdown", "expected"), [(0.5, BLOCKED), (0.0, PASSED), (-0.3, PASSED), (0.015, CANNOT_SAY)]
)
def test_the_verdict_on_a_record(slowdown: float, expected: str) -> None:
    spread = 0.02 if expected == CANNOT_SAY else 0.001
    found = judge_gate(record_of(about(slowdown, spread, 6)), WORSE)
    assert found.verdict == expected
    assert isinstance(found.slowdown, Interval)
    assert slowdown in found.slowdown
    assert found.launches == 6
    assert found.seconds == 6.0
    assert found.unit == "calls"
    assert found.rate_a == pytest.approx(100)
    assert (found.needed_s is None) == (expected != CANNOT_SAY)


def test_the_ends_have_their_own_error_rates() -> None:
    record = record_of(about(0.0, 0.01, 6))
    found = judge_gate(record, 1e-9)
    (*_, last) = looks_of(record, BLOCK_ALPHA, PASS_ALPHA)
    assert found.slowdown == last.slowdown
    # A wrong block is rarer than a wrong pass: the lower end is farther away.
    assert BLOCK_ALPHA < PASS_ALPHA
    assert last.slowdown.value - last.slowdown.low > last.slowdown.high - last.slowdown.value


def test_the_first_look_that_can_say_decides() -> None:
    calm, wild = about(0.5, 0.001, 3), [4.0, -0.8, 4.0, -0.8]
    found = judge_gate(record_of(calm + wild), WORSE)
    assert found.verdict == BLOCKED
    assert found.slowdown == judge_gate(record_of(calm), WORSE).slowdown


def test_the_measurement_ends_with_that_look() -> None:
    slowdowns = about(0.5, 0.1, 40)
    decided = looking(WORSE)
    whole = record_of(slowdowns)
    record = Record(unit=whole.unit, budget_s=whole.budget_s)
    for launch, ended_s in enumerate(whole.ended_s):
        record.rows += whole.rows[2 * launch : 2 * launch + 2]
        record.ended_s.append(ended_s)
        found = judge_gate(record, WORSE).verdict
        if decided(record):
            break
        assert found == CANNOT_SAY
    assert found == BLOCKED
    assert 3 < len(record.ended_s) < 40


def test_without_enough_launches_there_is_no_number() -> None:
    found = judge_gate(record_of(about(0.5, 0.001, 2)), WORSE)
    assert found.verdict == CANNOT_SAY
    assert isinstance(found.slowdown, Unknown)
    assert "2 of the 3 launches" in found.slowdown.why
    assert found.needed_s == 6.0


def test_nothing_measured_is_no_error() -> None:
    found = judge_gate(record_of([]), WORSE)
    assert found.verdict == CANNOT_SAY
    assert isinstance(found.rate_a, Unknown)
    assert found.needed_s is None


def test_the_time_that_is_needed_is_that_of_the_nearer_answer() -> None:
    def needed(slowdown: float) -> float:
        found = judge_gate(record_of(about(slowdown, 0.05, 6)), WORSE)
        assert found.verdict == CANNOT_SAY
        assert found.needed_s is not None
        assert found.needed_s > found.seconds
        return found.needed_s

    # Halfway between 0 and `worse` it takes longest.
    assert needed(0.015) > needed(0.025) > needed(0.04)
    assert needed(0.015) > needed(0.0) > needed(-0.02)


def test_settings_that_cannot_be_are_refused() -> None:
    for settings in ({"budget": 0}, {"worse": 0}, {"worse": -0.1}, {"budget": float("inf")}):
        with pytest.raises(SettingError, match="expected a number above 0"):
            GateSettings(**settings)
    assert GateSettings(worse=0.1).comparison.margin == 0.1


@pytest.mark.parametrize(
    ("text", "share"), [("3%", 0.03), ("0.03", 0.03), (" 2.5 % ", 0.025), ("150%", 1.5)]
)
def test_a_share_is_written_in_two_ways(text: str, share: float) -> None:
    assert parsed_share("--worse", text) == pytest.approx(share)


@pytest.mark.parametrize(
    "text", ["3", "0", "0%", "-3%", "", "%", "nan", "nan%", "inf%", "3 percent"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(
        SettingError, match=r"--worse: expected a share above 0, such as 3% or 0\.03"
    ):
        parsed_share("--worse", text)
