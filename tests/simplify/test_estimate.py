"""Effects and their intervals: identities, numbers worked by hand, and coverage by simulation."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.loop.cost import ERROR_SHARE
from hotloop.loop.figures import student_quantile, student_tail
from hotloop.simplify.estimate import Samples
from hotloop.simplify.means import holm
from hotloop.simplify.slack import fit_slack
from support.often import examples
from support.simulated import ARMS, TRUTHS, Simulated, simulate

NAN = float("nan")


def table(ns: np.ndarray, arms: list[str], same: int = 1, seed: int = 0) -> Samples:
    """Blocks of one iteration each."""
    return Samples(ns, np.ones_like(ns), arms, arms[:same], seed=seed)


# --- coverage ----------------------------------------------------------------------------------


# Every loop on every machine takes minutes; these are run each time, all of them by `test-all`.
OFTEN = [(TRUTHS[2], "drifting")]
COVERED = [
    pytest.param(kind, machine, marks=[] if (kind, machine) in OFTEN else pytest.mark.slow)
    for kind in TRUTHS
    for machine in ("quiet", "drifting", "interrupted")
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "machine"), COVERED, ids=str)
def test_intervals_cover_the_effect_on_the_mean(kind: Simulated, machine: str) -> None:
    """At least 30 rare events in an experiment; 1,000 experiments of 14 rounds."""
    repetitions, hits, widths = examples(1000), np.zeros(2), []
    least = 0.93 if repetitions == 1000 else 0.91  # a fifth of them is less exact
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 5])
        means = simulate(rng, kind, machine, rounds=14, least=40).means(ARMS[:1] + ARMS[4:6])
        gains = [means.gain(arm, "baseline") for arm in ("free fetch", "free train")]
        hits += [truth in gain for truth, gain in zip(kind.gains, gains, strict=True)]
        widths.append(gains[0].high - gains[0].low)
    assert (hits / repetitions >= least).all(), hits / repetitions
    # Counting alone allows 3.92 b (1 − g) / √n for n rare events with a share b of the time.
    events = kind.events_in(blocks=9 * 14, iterations=60)
    if kind.at_random:
        allowed = 3.92 * kind.share * (1 - kind.gains[0]) / math.sqrt(events)
        assert np.median(widths) <= 1.5 * allowed + 0.01


@pytest.mark.long
def test_few_rare_events_make_a_wide_interval() -> None:
    """Ten events in a whole experiment: what is not known must show."""
    kind = Simulated("random", every=1000, extra_ns=500e6)
    hits, widths, repetitions = 0, [], 300
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 6])
        means = simulate(rng, kind, "quiet", rounds=20, least=40).means(["baseline", "free fetch"])
        gain = means.gain("free fetch", "baseline")
        hits += kind.gains[0] in gain
        widths.append(gain.high - gain.low)
    assert hits / repetitions >= 0.9
    assert np.median(widths) > 0.05


def test_rare_work_that_no_block_held_is_not_taken_for_none() -> None:
    """The recording saw 40 of 100 go into it; five rounds of one iteration saw nothing."""
    ns = np.tile([60.0, 30.0], (5, 1))
    rare, events = np.zeros((5, 2, 1)), np.zeros((5, 2, 1))
    samples = Samples(
        *(ns, np.ones_like(ns), ["baseline", "free x"], ["baseline"]),
        rare_ns=rare,
        rare_events=events,
        real=np.ones((2, 1), bool),
        recorded_ns=np.array([40.0]),
    )
    assert 100.0 in samples.raw_time("baseline")
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert 0.3 in gain
    certain = dataclasses.replace(samples, recorded_ns=np.zeros(1))
    assert certain.raw_time("baseline").half_width == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param("quiet", marks=pytest.mark.slow),
        pytest.param("drifting", marks=pytest.mark.slow),
        "interrupted",
    ],
)
def test_equal_arms_rarely_differ(machine: str) -> None:
    """The unchanged arms against each other, at the confidence of one comparison."""
    kind, repetitions, apart = Simulated("random", every=20, extra_ns=50e6), examples(400), 0
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 7])
        samples = simulate(rng, kind, machine, rounds=14, least=40)
        apart += 0.0 not in samples.same_gain("A/A 2")
    assert apart / repetitions <= (0.08 if repetitions == 400 else 0.12)


def test_time_that_other_programs_took_is_subtracted() -> None:
    kind = Simulated("periodic", every=20, extra_ns=50e6)
    samples = simulate(np.random.default_rng(0), kind, "interrupted", rounds=20, least=40)
    told = samples.means(["baseline"]).time("baseline").value
    raw = samples.raw_time("baseline").value
    assert told == pytest.approx(kind.mean_ns, rel=0.02)
    assert raw > 1.05 * kind.mean_ns, "the rate that a user sees contains it"


def test_rare_work_pooled_over_arms_makes_intervals_shorter() -> None:
    kind = Simulated("random", every=20, extra_ns=50e6)
    pooled = simulate(np.random.default_rng(1), kind, "quiet", rounds=14, least=40)
    alone = Samples(pooled.ns, pooled.units, pooled.arms, pooled.same)
    short, wide = (
        s.means(["baseline", "free train"]).gain("free train", "baseline") for s in (pooled, alone)
    )
    assert short.half_width < 0.6 * wide.half_width


# --- identities and numbers by hand ---------------------------------------------------------------


def test_the_mean_is_seconds_over_units_and_not_a_median() -> None:
    """Nineteen blocks of 1 and one of 81: the mean is 5, whatever the median."""
    base = np.array([1.0] * 19 + [81.0])
    samples = table(np.stack([base, np.ones(20)], axis=1), ["baseline", "free x"])
    means = samples.means(["baseline", "free x"])
    assert means.time("baseline").value == pytest.approx(5.0)
    assert means.gain("free x", "baseline").value == pytest.approx(0.8)


def test_blocks_of_different_lengths_weigh_as_long_as_they_are() -> None:
    ns = np.array([[10.0], [90.0], [20.0], [20.0], [20.0], [20.0]])
    units = np.array([[1.0], [9.0], [2.0], [2.0], [2.0], [2.0]])
    samples = Samples(ns, units, ["baseline"], ["baseline"])
    found = samples.means(["baseline"]).time("baseline")
    assert found.value == pytest.approx(10.0)
    assert found.half_width == pytest.approx(0.0, abs=1e-9)


def test_the_jackknife_of_a_mean_is_the_classical_error() -> None:
    values = np.array([1.0, 2.0, 4.0, 7.0, 11.0, 16.0])
    found = table(values[:, None], ["baseline"]).means(["baseline"]).time("baseline")
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert found.half_width == pytest.approx(student_quantile(0.975, 5) * error)


def test_a_drift_that_all_arms_of_a_round_share_does_not_widen_a_gain() -> None:
    rng = np.random.default_rng(2)
    speed = rng.uniform(1, 3, (12, 1))
    samples = table(speed * np.array([[10.0, 8.0]]), ["baseline", "free x"])
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert gain.value == pytest.approx(0.2)
    assert gain.half_width == pytest.approx(0, abs=1e-9)


def test_the_cost_of_measuring_is_subtracted_in_serial_loops_with_its_error() -> None:
    """20 of 120 and of 70 went into measuring: 50% is saved, and not 42."""
    ns, probe = np.array([[120.0, 70.0]] * 8), np.full((8, 2), 20.0)
    samples = table(ns, ["baseline", "free x"])
    samples = dataclasses.replace(samples, probe_ns=probe)
    means = samples.means(["baseline", "free x"])
    gain = means.gain("free x", "baseline")
    assert gain.value == pytest.approx(0.5)
    reach = student_quantile(0.975, 7)
    assert gain.half_width == pytest.approx(reach * ERROR_SHARE * 20 * 0.5 / 100)
    difference = means.difference("baseline", "free x")
    assert difference.value == pytest.approx(50)
    assert difference.half_width == pytest.approx(0, abs=1e-9), "the same was left out of both"
    assert samples.raw_time("baseline").value == pytest.approx(120)
    beside = dataclasses.replace(samples, serial=False)
    assert beside.means(["baseline", "free x"]).gain("free x", "baseline").value == pytest.approx(
        1 - 70 / 120
    )


def test_all_unchanged_arms_stand_for_the_baseline() -> None:
    ns = np.array([[8.0, 12.0, 5.0]] * 6)
    samples = table(ns, ["baseline", "A/A 1", "free x"], same=2)
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert gain.value == pytest.approx(0.5)
    assert samples.same_gain("A/A 1").value == pytest.approx(-0.5)


def test_only_rounds_that_hold_both_arms_are_compared() -> None:
    times = np.array([[100.0, NAN]] * 20 + [[200.0, 100.0]] * 10)
    samples = table(times, ["baseline", "free x"])
    assert samples.has("free x", "baseline")
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert gain.value == pytest.approx(0.5)
    assert not table(times[:24], ["baseline", "free x"]).has("free x", "baseline")


def stage_times(burned_ns: float) -> Samples:
    """A serial loop of 10 with a stage of 8; the slowed arm burned so much in its place."""
    rng = np.random.default_rng(3)
    own = 8 + rng.normal(0, 0.1, 12)
    ns = np.stack([2 + own, np.full(12, 2.0), np.full(12, 2.0 + burned_ns)], axis=1)
    spent = np.stack([own, np.zeros(12), np.full(12, burned_ns)], axis=1)[:, :, None]
    arms = ["baseline", "free x", "burn(2) x"]
    return Samples(ns, np.ones_like(ns), arms, arms[:1], stage_ns=spent)


@pytest.mark.parametrize("burned_ns", [3.0, 4.0, 5.0])
def test_a_faster_stage_is_estimated_for_its_time_in_the_baseline(burned_ns: float) -> None:
    """Recorded durations that were too short or too long stand for half of today's time."""
    samples = stage_times(burned_ns)
    assert samples.stage_ns is not None
    gain = samples.if_faster("free x", "burn(2) x", samples.stage_ns[:, :, 0], 2.0)
    assert gain.value == pytest.approx(0.4, abs=0.01)
    assert 0.4 in gain


def test_work_that_follows_the_clock_is_an_effect_of_the_arm() -> None:
    """A thread wakes up 30 times a second: in a faster loop less often for an iteration."""
    rng = np.random.default_rng(5)
    units = 50.0
    woken = np.stack([rng.poisson(units * 0.3, 40), rng.poisson(units * 0.1, 40)], axis=1)
    ns = units * np.array([[7.0, 2.0]]) + 10.0 * woken  # 10 and 3 in an iteration
    samples = Samples(
        ns,
        np.full_like(ns, units),
        ["baseline", "free x"],
        ["baseline"],
        rare_ns=10.0 * woken[:, :, None],
        rare_events=woken[:, :, None].astype(float),
        real=np.ones((2, 1), bool),
    )
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert 0.7 in gain


def test_calls_that_are_long_beside_a_thread_are_no_chance_where_it_rests() -> None:
    """A thread writes what stage x gives it: without x, calls of another stage are shorter."""
    rng = np.random.default_rng(6)
    units, rounds = 50.0, 40
    longer = rng.gamma(4, 50.0, (rounds, 3)) * [1, 1, 0]  # 200 a block
    ns = units * np.array([[10.0, 10.0, 6.0]]) + longer
    samples = Samples(
        ns,
        np.full_like(ns, units),
        ["baseline", "A/A 1", "free x"],
        ["baseline", "A/A 1"],
        rare_ns=longer[:, :, None] + 100.0,
        # Every call of a stage that is called now and then counts as an event.
        rare_events=np.full((rounds, 3, 1), units),
        real=np.ones((3, 1), bool),
    )
    gain = samples.means(["baseline", "free x"]).gain("free x", "baseline")
    assert gain.value == pytest.approx(1 - 6 / 14, abs=0.02)
    assert 1 - 6 / 14 in gain


# --- Student's t, Holm, slack ---------------------------------------------------------------------


def test_student_by_the_tables() -> None:
    assert student_quantile(0.975, 1) == pytest.approx(12.706, abs=1e-3)
    assert student_quantile(0.975, 4) == pytest.approx(2.776, abs=1e-3)
    assert student_quantile(0.975, 11) == pytest.approx(2.201, abs=1e-3)
    assert student_quantile(0.995, 30) == pytest.approx(2.750, abs=1e-3)
    assert student_quantile(0.975, 10_000) == pytest.approx(1.966, abs=1e-3)


@given(st.floats(0, 50), st.integers(1, 60))
def test_the_tail_of_student_is_a_falling_probability(t: float, degrees: int) -> None:
    rounding = 1e-12
    assert (
        0 <= student_tail(t + 0.1, degrees) <= student_tail(t, degrees) + rounding <= 0.5 + rounding
    )


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5]) == [0.5]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(after >= before for before, after in zip(p_values, adjusted, strict=True))
    assert all(p <= 1 for p in adjusted)
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)


@pytest.mark.parametrize("slack_ns", [0, 300, 700])
def test_slack_is_where_a_delay_begins_to_add_time(slack_ns: float) -> None:
    delays = {"delay #1": 250.0, "delay #2": 500.0, "delay #3": 1000.0}
    row = [1000.0, *(1000.0 + max(0.0, d - slack_ns) for d in delays.values())]
    samples = table(np.array([row] * 10), ["baseline", *delays])
    fitted = fit_slack(samples.means(samples.arms), "baseline", list(delays.items()))
    assert fitted.slack_ns.value == pytest.approx(slack_ns, abs=5)
    assert fitted.slope == pytest.approx((1000 - slack_ns) / 1000)
