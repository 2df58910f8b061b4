"""Percentiles of planted durations, and their intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.benchmark.percentiles import EXACT_VALUES, percentiles
from hotloop.benchmark.summary import Summary, summarize
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run
from support.often import examples

SHARES = [0.5, 0.95, 0.99]


def summary_of(duration_ms: np.ndarray, units: np.ndarray) -> Summary:
    durations = np.round(duration_ms * 1e6).astype(np.int64)
    arrays = {
        "duration_ns": durations,
        "start_ns": np.cumsum(durations) - durations,
        "units": units.astype(np.float64),
        "block_of": np.zeros(len(durations), np.int64),
    }
    return summarize(Run("benchmark", "planted", {}, {"unit": "samples"}, arrays))


def values(found: list[Interval]) -> list[float]:
    return [each.value for each in found]


@pytest.mark.parametrize("repeats", [1, 100])
def test_each_is_a_value_that_was_measured(repeats: int) -> None:
    durations = np.tile(np.random.default_rng(0).permutation(np.arange(1, 101)), repeats)
    assert (len(durations) > EXACT_VALUES) == (repeats > 1)
    found = percentiles(durations, np.ones(len(durations)), SHARES)
    assert values(found) == [50, 95, 99]


def test_weights_count_as_that_many_values() -> None:
    rng = np.random.default_rng(0)
    durations, weights = rng.gamma(2.0, 1.0, 60), rng.integers(1, 5, 60)
    repeated = np.repeat(durations, weights)
    plain = percentiles(repeated, np.ones(len(repeated)), SHARES)
    assert values(percentiles(durations, weights, SHARES)) == values(plain)


@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.integers(1, 9)), min_size=1, max_size=60),
    st.sampled_from(SHARES),
)
def test_at_least_its_share_of_the_weight_is_no_larger(
    pairs: list[tuple[float, int]], share: float
) -> None:
    durations, weights = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    (found,) = percentiles(durations, weights, [share])
    total = weights.sum()
    assert weights[durations <= found.value].sum() >= share * total - 1e-6
    assert weights[durations < found.value].sum() < share * total + 1e-6


@pytest.mark.parametrize("count", [1_000, pytest.param(5_000, marks=pytest.mark.slow)])
def test_intervals_cover_the_truth(count: int) -> None:
    truth = np.quantile(np.random.default_rng(1).gamma(4, 0.25, 2_000_000), SHARES)
    hits, repetitions = np.zeros(3), 2 * examples(75)
    for seed in range(repetitions):
        durations = np.random.default_rng([seed, count]).gamma(4, 0.25, count)
        found = percentiles(durations, np.ones(count), SHARES, seed=seed)
        hits += [true in each for true, each in zip(truth, found, strict=True)]
    least = 0.87 if repetitions == 150 else 0.8
    assert (hits / repetitions > least).all(), hits / repetitions


def test_where_the_truth_may_exceed_the_largest_value_there_is_no_interval() -> None:
    # The largest of 100 is below the true 99th percentile in 37 of 100 samples.
    *_, p99 = percentiles(np.arange(100.0), np.ones(100), SHARES)
    assert np.isnan(p99.low)
    *_, p99 = percentiles(np.arange(1000.0), np.ones(1000), SHARES)
    assert p99.low < p99.value < p99.high <= 999


def test_a_benchmark_gives_them_for_iterations_and_units() -> None:
    # 90 iterations of 10 ms bring 1 sample each, 10 of 100 ms bring 90 each.
    durations = np.where(np.arange(100) % 10 == 0, 100.0, 10.0)
    units = np.where(np.arange(100) % 10 == 0, 90, 1)
    summary = summary_of(durations, units)
    felt, unit = summary.iteration_percentiles, summary.unit_latency
    assert [felt.p50.value, felt.p95.value, felt.p99.value] == [10, 100, 100]
    # Of 990 samples 90 took 10 ms each, the others 100 / 90 ms.
    assert unit.p50.value == pytest.approx(100 / 90)
    assert unit.p95.value == pytest.approx(10)
    (warning,) = [each for each in summary.warnings if "slow iterations" in each]
    assert "1.90 times the median" in warning


def test_too_few_iterations_say_how_many_it_takes() -> None:
    found = summary_of(np.full(60, 5.0), np.ones(60)).iteration_percentiles
    assert isinstance(found.p50, Interval)
    assert isinstance(found.p95, Interval)
    assert isinstance(found.p99, Unknown)
    assert "100 iterations, 60 were measured" in found.p99.why


def test_without_units_there_is_no_time_of_one() -> None:
    found = summary_of(np.full(10, 5.0), np.zeros(10)).unit_latency
    assert isinstance(found.p50, Unknown)
    assert "units" in found.p50.why
