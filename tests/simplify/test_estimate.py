"""Effects and their intervals: identities, numbers worked by hand, and coverage by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.simplify.estimate import Samples, fit_slack, holm, smooth_median, without_round_effects


def samples(rounds: np.ndarray, arms: list[str], seed: int = 0) -> Samples:
    return Samples(rounds, arms, seed)


def simulated(rng: np.random.Generator, rounds: int, gains: list[float], noise: str) -> np.ndarray:
    """Times (rounds, arms) of a baseline and of arms that truly save `gains`.

    quiet: 3% of noise a block. mood: besides, the machine's speed wanders from round to round.
    bursty: besides, stretches of blocks in which another program takes 10 to 60% more.
    """
    arms = 1 + len(gains)
    log_time = rng.normal(0, 0.03, (rounds, arms))
    if noise != "quiet":
        mood = np.zeros(rounds)
        for t in range(1, rounds):
            mood[t] = 0.8 * mood[t - 1] + rng.normal(0, 0.03)
        log_time += mood[:, None]
    if noise == "bursty":
        burst = np.zeros(arms * rounds, bool)
        t = 0
        while t < len(burst):
            t += rng.geometric(0.08)
            length = rng.geometric(0.3)
            burst[t : t + length] = True
            t += length
        log_time += burst.reshape(rounds, arms) * rng.uniform(0.1, 0.6, (rounds, arms))
    log_time = rng.permuted(log_time, axis=1)  # the order within a round is random
    times: np.ndarray = 1e6 * np.exp(log_time) * (1 - np.array([0.0, *gains]))
    return times


@pytest.mark.parametrize("noise", ["quiet", "mood", "bursty"])
@pytest.mark.parametrize("rounds", [12, 30])
@pytest.mark.parametrize("others", [0, 10])
def test_intervals_cover_the_truth_in_95_of_100_experiments(
    noise: str, rounds: int, others: int
) -> None:
    """With few arms, and with enough of them that the mood of a round can be taken out."""
    repetitions, hits = 1000, 0
    arms = ["baseline", "free x", *(f"free {k}" for k in range(others))]
    gains = [0.2, *(0.05 * k for k in range(others))]
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, rounds])
        data = samples(simulated(rng, rounds, gains, noise), arms, seed)
        hits += 0.2 in data.medians(["baseline", "free x"]).gain("free x", "baseline")
    assert 0.93 <= hits / repetitions <= 0.97


@pytest.mark.parametrize("noise", ["quiet", "bursty"])
def test_equal_arms_are_rarely_told_apart(noise: str) -> None:
    """Three A/A pairs in one family: the whole family errs in about 5 of 100 runs, or fewer."""
    arms = ["baseline", "A/A 1", "A/A 2", "A/A 3"]
    repetitions, alarms = 300, 0
    for seed in range(repetitions):
        rng = np.random.default_rng([7, seed])
        data = samples(simulated(rng, 30, [0.0] * 3, noise), arms, seed)
        p_values = [data.medians(["baseline", arm]).p_value(arm, "baseline") for arm in arms[1:]]
        alarms += min(holm(p_values)) < 0.05
    assert alarms / repetitions <= 0.08


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=30))
def test_the_smooth_median_stays_within_the_data_and_scales_with_it(values: list[float]) -> None:
    array = np.array(values)
    median = float(smooth_median(array))
    assert array.min() * (1 - 1e-9) <= median <= array.max() * (1 + 1e-9)
    assert float(smooth_median(3 * array)) == pytest.approx(3 * median)


def test_the_smooth_median_of_few_values_by_hand() -> None:
    assert float(smooth_median(np.array([4.0]))) == pytest.approx(4.0)
    # Beta(1.5, 1.5) is symmetric: two values weigh the same.
    assert float(smooth_median(np.array([4.0, 8.0]))) == pytest.approx(6.0)
    # Beta(2, 2) has P(x < 1/3) = 3/9 − 2/27 = 7/27.
    assert float(smooth_median(np.array([0.0, 0.0, 27.0]))) == pytest.approx(7.0, abs=1e-3)


def test_the_mood_of_a_round_is_taken_out_of_all_its_arms_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    truth = np.linspace(1e6, 3e6, 10)
    mood = np.exp(rng.normal(0, 0.3, (21, 1)))
    mood[10] = 1
    mood = mood / np.median(mood)
    level = without_round_effects(truth * mood)
    assert level == pytest.approx(np.broadcast_to(truth, level.shape))
    few = truth[:4] * mood
    assert without_round_effects(few) is few, "four arms cannot tell a mood from their own noise"


def test_a_burst_does_not_move_the_median() -> None:
    values = np.full(25, 100.0)
    values[:3] = 1e6
    assert float(smooth_median(values)) == pytest.approx(100.0, rel=0.02)


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


def test_only_rounds_that_hold_both_arms_are_compared() -> None:
    nan = float("nan")
    times = np.array([[100.0, nan]] * 20 + [[200.0, 100.0]] * 10)
    data = samples(times, ["baseline", "free x"])
    assert data.has("free x", "baseline")
    gain = data.medians(["baseline", "free x"]).gain("free x", "baseline")
    assert gain.value == pytest.approx(0.5)
    assert not samples(times[:24], ["baseline", "free x"]).has("free x", "baseline")


@pytest.mark.parametrize("slack_ns", [0, 300, 700])
def test_slack_is_where_a_delay_begins_to_be_felt(slack_ns: float) -> None:
    delays = {"delay #1": 250.0, "delay #2": 500.0, "delay #3": 1000.0}
    row = [1000.0, *(1000.0 + max(0.0, d - slack_ns) for d in delays.values())]
    data = samples(np.array([row] * 10), ["baseline", *delays])
    fitted = fit_slack(data.medians(data.arms), "baseline", list(delays.items()))
    assert fitted.slack_ns.value == pytest.approx(slack_ns, abs=5)
    assert fitted.slope == pytest.approx((1000 - slack_ns) / 1000)
