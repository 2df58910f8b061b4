"""From blocks to a ratio with an interval, on planted records."""

import numpy as np
import pytest

from hotloop.repeat.estimate import launches_of, looks_of, spreads, trimmed_mean
from hotloop.repeat.record import COLUMNS, Record
from hotloop.repeat.verdict import CANNOT_SAY, FASTER, SAME, SLOWER, judge

MS = 1_000_000
BLOCK = dict.fromkeys(COLUMNS[3:], 0) | {"iterations": 10, "units": 10}


def block(ms: float, *, stolen_ms: float = 0.0, counted_ms: float | None = None, waited_ms=0.0):
    """A block of this own time, of which a part was waited; what the kernel counted as stolen."""
    counted = stolen_ms if counted_ms is None else counted_ms
    return BLOCK | {
        "wall_ns": (ms + stolen_ms) * MS,
        "cpu_ns": (ms - waited_ms) * MS,
        "stolen_ns": counted * MS,
        "waits": int(waited_ms > 0),
    }


def record_of(launches, seconds=10.0) -> Record:
    """launches: for each, rounds of two blocks: of A and of B."""
    record = Record(budget_s=seconds * len(launches))
    for number, rounds in enumerate(launches):
        for turn, pair in enumerate(rounds):
            order = (0, 1) if turn % 2 else (1, 0)
            for side in order:
                record.add(number, turn, side, pair[side])
        record.ended_s.append(seconds * (number + 1))
    return record


def planted(slowdown, launches=10, noise=0.002, luck=0.0, seed=1, rounds=8) -> Record:
    """Launches with a known slowdown; noise of a block, luck of a process, as shares."""
    rng = np.random.default_rng(seed)
    return record_of(
        [
            [
                (
                    block(20 * (1 + noise * rng.standard_normal())),
                    block(20 * (1 + slowdown) * own * (1 + noise * rng.standard_normal())),
                )
                for _ in range(rounds)
            ]
            for own in 1 + luck * rng.standard_normal(launches)
        ]
    )


@pytest.mark.parametrize("stolen_ms", [0.0, 5.0, 80.0])
@pytest.mark.parametrize("overcounted", [1.0, 1.3])
def test_what_other_programs_took_is_left_out(stolen_ms: float, overcounted: float) -> None:
    taken = block(22, stolen_ms=stolen_ms, counted_ms=overcounted * stolen_ms)
    launches = launches_of(record_of([[(block(20), taken)] * 4] * 3))
    assert np.exp(launches.ratio) == pytest.approx(1.1)
    assert launches.stolen == pytest.approx(stolen_ms / (42 + stolen_ms))
    assert launches.bound_by_processor


def test_what_was_waited_for_is_left_in() -> None:
    launches = launches_of(record_of([[(block(20), block(24, stolen_ms=7, waited_ms=4))] * 4] * 3))
    assert np.exp(launches.ratio) == pytest.approx(1.2)
    assert not launches.bound_by_processor


def test_sides_with_other_numbers_of_units_are_compared_for_one() -> None:
    twice = block(20) | {"units": 20}
    launches = launches_of(record_of([[(block(20), twice)] * 4] * 3))
    assert np.exp(launches.ratio) == pytest.approx(0.5)


def test_rare_work_counts_with_all_its_weight() -> None:
    rounds = [(block(20), block(20))] * 9 + [(block(20), block(120))]
    launches = launches_of(record_of([rounds] * 3))
    assert np.exp(launches.ratio) == pytest.approx(1.5)


def test_a_launch_that_was_broken_off_is_left_out() -> None:
    record = planted(0.0, launches=4)
    record.add(4, 0, 0, block(20))
    assert len(launches_of(record).ratio) == 4


@pytest.mark.parametrize(
    ("slowdown", "verdict"), [(0.1, SLOWER), (-0.1, FASTER), (0.0, SAME), (0.005, SAME)]
)
def test_clear_cases_are_said(slowdown: float, verdict: str) -> None:
    found = judge(planted(slowdown), margin=0.03)
    assert found.verdict == verdict
    assert 1 + slowdown in found.ratio
    assert found.needed_s is None
    assert found.rate_b / found.rate_a == pytest.approx(1 / (1 + slowdown), rel=0.01)


def test_an_unclear_case_says_what_it_would_take() -> None:
    found = judge(planted(0.015, launches=5, luck=0.02), margin=0.03)
    assert found.verdict == CANNOT_SAY
    assert found.needed_s is not None
    assert found.needed_s > found.seconds


def test_the_time_that_it_would_take_is_about_right() -> None:
    needed = judge(planted(0.0, launches=8, luck=0.03), margin=0.03).needed_s
    assert needed is not None
    enough = int(2 * needed / 10)
    found = judge(planted(0.0, launches=enough, luck=0.03, seed=2), margin=0.03)
    assert found.verdict == SAME


def test_two_launches_say_nothing() -> None:
    found = judge(planted(0.5, launches=2), margin=0.03)
    assert found.verdict == CANNOT_SAY
    assert "2 of the 3 launches" in found.ratio.why


def test_a_process_with_bad_luck_does_not_decide() -> None:
    record = planted(0.05, launches=20, luck=0.003)
    for row in range(len(record.rows)):
        values = dict(zip(COLUMNS, record.rows[row], strict=True))
        if values["launch"] == 7 and values["side"] == 0:
            values["cpu_ns"] *= 1.4
            values["wall_ns"] *= 1.4
            record.rows[row] = tuple(values[name] for name in COLUMNS)
    assert judge(record, margin=0.03).verdict == SLOWER


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    missed = 0
    for seed in range(40):
        *_, look = looks_of(planted(0.02, launches=12, luck=0.01, seed=seed), 0.025, 0.025)
        missed += 0.02 not in look.slowdown
    assert missed <= 8  # 5% of 40 are 2; P(more than 8) is below 1 in 3,000


def test_the_trimmed_mean_leaves_the_outer_fifths_out() -> None:
    values = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 1000])
    mean, error, degrees = trimmed_mean(values)
    assert mean == pytest.approx(5.5)
    assert degrees == 5
    assert error == pytest.approx(np.clip(values, 3, 8).std(ddof=1) / (0.6 * np.sqrt(10)))
    assert trimmed_mean(np.array([1.0, 2, 9])) == (4.0, pytest.approx(np.sqrt(19 / 3)), 2)


def test_the_spread_of_launches_is_told_from_that_of_rounds() -> None:
    between, within = spreads(planted(0.0, launches=200, noise=0.02, luck=0.01, rounds=20))
    assert within == pytest.approx(2 * 0.02**2, rel=0.1)
    assert between == pytest.approx(0.01**2, rel=0.5)
    none, _ = spreads(planted(0.0, launches=2))
    assert none is None
