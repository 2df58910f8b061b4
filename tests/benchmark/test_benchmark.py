"""Benchmarks of loops whose speed is known."""

import asyncio
from typing import Any

import numpy as np
import pytest

from hotloop.benchmark.benchmark import Benchmark, BenchmarkSettings
from hotloop.benchmark.meters import COLUMNS, Meters
from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.summary import Summary, summarize
from hotloop.benchmark.timeline import by_lane, parents, stages_beside_loop
from hotloop.benchmark.work import count_work
from hotloop.errors import RunError, SettingError
from hotloop.loop import Loop, Run, SharedControl, Stage, drive
from hotloop.loop.event import Event
from hotloop.loop.figures import Interval, Unknown, mean_interval, rate_interval
from support.clock import FakeClock

MS = 1_000_000


def summary_of(control: SharedControl, loop: Loop, **settings: Any) -> Summary:
    chosen = BenchmarkSettings(**settings)
    benchmark = Benchmark(control, chosen)
    drive(loop, benchmark.run(loop), control)
    run = Run("benchmark", "exact", {}, benchmark.record.facts(), benchmark.record.arrays())
    run.facts |= {"start_up_s": 1.5, "first_batch_s": 1.51, "usable_cores": 2.0, "seconds": 9.0}
    return summarize(run)


def value(of: object) -> float:
    assert isinstance(of, Interval), of
    return of.value


def test_a_stage_that_is_called_once_in_a_long_while_has_its_row() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    act = Stage("act", control=control)(lambda: clock.sleep_ns(MS))
    save = Stage("save", control=control)(lambda: clock.sleep_ns(50 * MS))
    turns = 0

    def body() -> int:
        nonlocal turns
        turns += 1
        act()
        if turns % 100 == 0:
            save()
        return 1

    summary = summary_of(control, Loop(body=body, unit="turns"), iterations=1_000)
    shares = {stage.name: stage.share.value for stage in summary.stages}
    assert shares == {"act": pytest.approx(2 / 3, rel=0.1), "save": pytest.approx(1 / 3, rel=0.1)}


def test_rates_shares_and_cost_are_exact_on_an_exact_clock() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    step = Stage("step", control=control)(lambda: clock.burn_ns(6 * MS))
    wait = Stage("wait", control=control)(lambda: clock.wait_ns(2 * MS))

    def body() -> int:
        step()
        wait()
        wait()
        return 32

    loop = Loop(body=body, unit="env steps", batches=4, price_per_hour=3.6)
    summary = summary_of(control, loop, seconds=5.0)
    assert value(summary.units_per_s) == pytest.approx(3200)
    assert value(summary.iterations_per_s) == pytest.approx(100)
    assert value(summary.batches_per_s) == pytest.approx(400)
    assert value(summary.ms_per_iteration) == pytest.approx(10)
    # 0.001 a second, and a million units take 312.5 s.
    assert value(summary.cost_per_million) == pytest.approx(0.3125)
    stages = {stage.name: stage for stage in summary.stages}
    assert stages["step"].share.value == pytest.approx(0.6)
    assert stages["wait"].share.value == pytest.approx(0.4)
    assert stages["wait"].calls_per_iteration == pytest.approx(2)
    assert stages["wait"].ns_per_call == pytest.approx(2 * MS)
    assert stages["step"].cpu_share == pytest.approx(1.0)
    assert stages["wait"].cpu_share == pytest.approx(0.0)
    assert summary.stable
    assert summary.start_up_s == 1.5


def test_the_steady_state_leaves_the_slow_start_out() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    done = 0

    def body() -> int:
        nonlocal done
        done += 1
        clock.burn_ns(50 * MS if done < 10 else 5 * MS)
        return 1

    summary = summary_of(control, Loop(body=body), seconds=10.0)
    assert value(summary.iterations_per_s) == pytest.approx(200)


def test_a_number_of_iterations_can_be_asked_for() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    summary = summary_of(control, Loop(body=lambda: clock.burn_ns(7 * MS) and 1), iterations=137)
    assert summary.iterations == 137


def test_unknown_numbers_say_why() -> None:
    clock = FakeClock()
    summary = summary_of(
        SharedControl(clock), Loop(body=lambda: clock.burn_ns(MS) and 1), seconds=2.0
    )
    for figure in (summary.cost_per_million, summary.memory_bytes, summary.gpu_duty):
        assert isinstance(figure, Unknown)
        assert figure.why
    assert "--price-per-hour" in str(summary.cost_per_million)


def test_bytes_moved_are_those_of_the_arrays_in_and_out() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    batch = np.zeros(1000)

    def double(array: np.ndarray) -> dict[str, np.ndarray]:
        clock.burn_ns(MS)
        return {"twice": array * 2}

    staged = Stage("double", control=control)(double)
    summary = summary_of(control, Loop(body=lambda: staged(batch) and 1), seconds=2.0)
    assert summary.stages[0].bytes_per_iteration == 16_000


def test_a_run_of_another_verb_is_refused() -> None:
    with pytest.raises(RunError, match="has no benchmark"):
        summarize(Run("train", "ppo:CartPole-v1", {}))


@pytest.mark.parametrize("count", [20, 200])
def test_rate_intervals_cover_the_truth(count: int) -> None:
    hits, repetitions = 0, 500
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, count])
        durations = rng.gamma(4.0, 0.25e6, count)
        interval = rate_interval(np.ones(count), durations, resamples=800, seed=seed)
        hits += 1000.0 in interval
    assert 0.92 <= hits / repetitions <= 0.98


def test_one_sample_has_no_interval() -> None:
    interval = rate_interval(np.ones(1), np.array([1e9]))
    assert interval.value == 1
    assert np.isnan(interval.low)
    assert np.isnan(mean_interval(np.array([])).value)


def test_counted_work_is_that_of_the_formulas_by_stage() -> None:
    torch = pytest.importorskip("torch")
    control = SharedControl()
    weight = torch.randn(64, 32, requires_grad=True)
    x = torch.randn(16, 64)

    def forward_backward() -> None:
        (x @ weight).square().sum().backward()

    act = Stage("act", control=control)(lambda: torch.tanh(x[:4] @ weight.detach()))
    update = Stage("update", control=control)(forward_backward)
    work = drive(Loop(body=lambda: (act(), update()) and 1), count_work(control), control)
    # A product of (n, k) and (k, m) takes 2nkm; the gradient of the weight takes as many.
    products = 2 * 4 * 64 * 32, 2 * (2 * 16 * 64 * 32)
    assert work.product_flops == sum(products)
    # What is element-wise makes one for each number, and a sum one for each that it takes.
    assert work.by_stage["act"][0] == products[0] + 4 * 32
    squares, sums = 16 * 32, 16 * 32
    backwards = 3 * 16 * 32  # twice the root of the square, by the gradient
    added = 64 * 32  # to the gradient of the iteration before
    assert work.by_stage["update"][0] == products[1] + squares + sums + backwards + added
    assert work.flops == sum(flops for flops, _ in work.by_stage.values())
    assert work.coverage == 1
    assert not work.uncounted
    assert work.by_stage["act"][1] >= 4 * (4 * 64 + 64 * 32 + 4 * 32)


def test_peaks_are_those_of_a_machine() -> None:
    peaks = measure_peaks(seconds=0.02)
    assert 1e8 < peaks.flops_per_s < 1e16
    assert 1e8 < peaks.bytes_per_s < 1e14
    half = measure_peaks(seconds=0.02, precision="bfloat16")
    assert 1e7 < half.flops_per_s < 1e16
    assert "bfloat16 product" in half.how
    for name in ("int32", "bf16"):
        with pytest.raises(SettingError, match=rf"peaks: precision: expected .* got '{name}'"):
            measure_peaks(precision=name)


def test_meters_see_the_process_tree() -> None:
    with Meters() as meters:
        sum(k * k for k in range(200_000))
        meters.read()
    samples = meters.samples()
    columns = dict(zip(COLUMNS, samples.T, strict=True))
    assert len(samples) >= 2
    assert (np.diff(columns["time_ns"]) > 0).all()
    assert (np.diff(columns["cpu_s"]) >= 0).all()
    assert (columns["memory_bytes"] > 1e6).all()
    assert (columns["processes"] >= 1).all()


def test_nesting_follows_from_the_intervals() -> None:
    events = [
        Event(0, 0, 100, 1),
        Event(1, 10, 50, 1),
        Event(2, 20, 30, 1),
        Event(1, 60, 90, 1),
        Event(3, 20, 30, 2),
    ]
    assert parents(events) == {0: None, 1: 0, 2: 1, 3: None}
    assert set(by_lane(events)) == {1, 2}


def test_stages_beside_the_loop_are_known_by_their_lane() -> None:
    boundaries = np.array([0, 100, 200, 300])
    thread, task, own_task, gpu = 7, -2, -3, -1
    events = [
        Event(0, 10, 20, 1),  # the main thread
        Event(1, 10, 250, thread),
        Event(2, 50, 150, task),  # still running when an iteration ends
        Event(3, 120, 140, own_task),  # begins and ends within one
        Event(4, 10, 290, gpu),
    ]
    assert stages_beside_loop(events, boundaries, main_lane=1, main_thread=1) == {1, 2}


@pytest.mark.long
def test_the_share_of_calls_side_by_side_is_at_most_all_of_the_time() -> None:
    def body() -> int:
        async def fetch_all() -> None:
            await asyncio.gather(*(fetch() for _ in range(8)))

        asyncio.run(fetch_all())
        return 8

    async def fetch_one() -> None:
        await asyncio.sleep(0.005)

    control = SharedControl()
    fetch = Stage("fetch", control=control, kind="io")(fetch_one)
    (stage,) = summary_of(control, Loop(body=body, unit="items"), iterations=20).stages
    assert 0.3 < stage.share.value <= 1
    assert stage.share.high <= 1
    assert stage.at_once > 4
    together = stage.ns_per_iteration.value * stage.at_once
    assert stage.summed_ns_per_iteration.value == pytest.approx(together)
    assert stage.calls_per_iteration == 8


@pytest.mark.parametrize("name", ["block_spinning_cpu_ns", "block_helpers_cpu_ns"])
@pytest.mark.parametrize(("spent", "said"), [(0.5, True), (0.01, False)])
def test_threads_that_may_spin_are_named_where_they_had_much_of_the_cores(
    spent: float, said: bool, name: str
) -> None:
    durations = np.full(50, 10_000_000)
    arrays = {
        "duration_ns": durations,
        "start_ns": np.cumsum(durations) - durations,
        "units": np.ones(50),
        "block_of": np.zeros(50, np.int64),
        name: np.array([round(2 * spent * durations.sum())]),
    }
    found = summarize(Run("benchmark", "planted", {}, {"unit": "steps", "usable_cores": 2}, arrays))
    assert any("OpenMP and BLAS used 50% of the cores" in each for each in found.warnings) == said
