"""The pilot and the plan of blocks, on durations that are known by construction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.loop.arm import FREE, Arm
from hotloop.loop.conduct import Block, Request
from hotloop.loop.event import Event
from hotloop.simplify.arm_names import BASELINE, aa_name, free_name, only_name
from hotloop.simplify.blocks import FEWEST_ROUNDS, drain_of, plan_blocks
from hotloop.simplify.pilot import REST_NUMBER, Stretch, apply_pilot, pilot_of, stretch_of
from hotloop.simplify.rare_work import (
    REST,
    kind_of_rest,
    kind_of_stage,
    longest_period,
    rest_of_iterations,
)
from hotloop.simplify.record import Record
from support.stages import stage_facts

MS = 1e6


def stretch(durations_ms: list[float], stolen_ms: float = 0.0, **seen: dict[int, float]) -> Stretch:
    return Stretch(
        np.array(durations_ms) * MS,
        seen.get("call_ns", {0: MS, REST_NUMBER: 0.0}),
        seen.get("calls", {0: 1.0, 1: 1.0}),
        other_cpu=0.0,
        stolen_ns=stolen_ms * MS,
    )


def pilot(free: list[Stretch], base: list[Stretch], block: int = 50):  # type: ignore[no-untyped-def]
    probe = free_name("train")
    found = {(BASELINE, probe): free, (probe, BASELINE): base}
    return pilot_of(found, {probe: "train"}, {"load": 0, "train": 1}, block)


def test_a_hidden_queue_is_left_out_until_it_is_empty() -> None:
    """Six items lie in the queue: a free stage takes them at once, then waits for each."""
    free = [stretch([0.01] * 6 + [3.0] * 60) for _ in range(3)]
    base = [stretch([4.0] * 60) for _ in range(3)]
    found = pilot(free, base)
    assert found.transient == 6
    assert found.transient_base == 0
    assert found.settled


def test_cold_caches_after_a_switch_are_left_out() -> None:
    base = [stretch([9.0, 6.0, 5.0] + [4.0] * 60) for _ in range(3)]
    free = [stretch([2.0] * 60) for _ in range(3)]
    assert pilot(free, base).transient_base == 3


def test_a_queue_longer_than_the_stretch_is_not_settled() -> None:
    free = [stretch([0.01] * 30 + [3.0] * 6) for _ in range(3)]
    assert not pilot(free, [stretch([4.0] * 60)] * 3).settled


@pytest.mark.parametrize(("other_cpu", "left_out"), [(0.3, 10), (0.0, 0)])
def test_what_a_logger_hands_to_its_thread_is_waited_for(other_cpu: float, left_out: int) -> None:
    """It logs seven times in every tenth iteration, and its thread writes for some more."""
    block = Block(
        Request(Arm(BASELINE)),
        start_ns=[round(k * MS) for k in range(100)],
        duration_ns=[round(MS)] * 100,
        events=[
            Event(1, round((k + n / 10) * MS), round((k + n / 10) * MS) + 9, 7)
            for k in range(3, 100, 10)
            for n in range(7)
        ],
        wall_ns=round(100 * MS),
        process_cpu_ns=round((100 + 100 * other_cpu) * MS),
        cpu_ns=round(100 * MS),
    )
    seen = [stretch_of(block, [0, 1], 7)] * 3
    probe = free_name("log")
    found = pilot_of(
        {(BASELINE, probe): seen, (probe, BASELINE): seen}, {probe: "log"}, {"log": 1}, 50
    )
    record = Record(stages=[stage_facts("log", 1, 1.0, kind="io")])
    apply_pilot(record, found, 0, {})
    assert (record.drain_iterations, record.drain_base) == (left_out, left_out)


@given(st.integers(0, 10_000))
def test_noise_is_rarely_taken_for_a_transient(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [stretch(list(4 + rng.normal(0, 0.2, 80))) for _ in range(6)]
    found = pilot(rows[:3], rows[3:])
    assert max(found.transient, found.transient_base) <= 40, "half of a stretch at the most"


def test_a_burst_of_another_program_in_one_repetition_is_no_transient() -> None:
    rows = [stretch([4.0] * 80) for _ in range(3)]
    rows[1] = stretch([30.0] * 10 + [4.0] * 70)
    assert pilot(rows, [stretch([4.0] * 80)] * 3).transient == 0


def test_rare_work_at_the_same_place_of_each_repetition_is_no_transient() -> None:
    rows = [stretch([4.0] * 17 + [50.0] + [4.0] * 20) for _ in range(3)]
    assert pilot(rows, rows).transient == 0


def test_a_half_consumed_item_counts_in_a_block_that_becomes_shorter() -> None:
    """One iteration that is 20% off is 0.4% of 54 iterations and 1.4% of the 15 there will be."""
    base = [stretch([2.2] * 6 + [2.5] + [3.1] * 27) for _ in range(3)]
    free = [stretch([2.1] * 40) for _ in range(3)]
    assert pilot(free, base, block=54).transient_base == 7


def test_a_long_transient_of_short_iterations_makes_no_long_blocks() -> None:
    """Without its loader a loop of 34 ms takes 1 ms, and on a busy machine its first 20 less.

    They are left out of this arm, but the blocks of all arms need no 20 iterations of 34 ms.
    """
    free = [stretch([0.2 + k / 100] * 20 + [1.0 + k / 100] * 100) for k in range(3)]
    base = [stretch([34.0 + k / 100] * 5) for k in range(3)]
    found = pilot(free, base, block=1)
    assert found.transient == 20
    assert found.carry_over == pytest.approx(20 * 0.8 / 34, rel=0.05)
    record = Record()
    apply_pilot(record, found, 0, {})
    plan = plan_blocks(record, arms(), 34 * MS, 8e9)
    assert plan.length == 1
    train_is_free = Arm(free_name("train"), {"train": FREE})
    assert drain_of(record, train_is_free) == 20
    assert drain_of(record, Arm(free_name("load"), {"load": FREE})) == 0
    assert drain_of(record, Arm(BASELINE)) == 0


def test_a_stage_that_waits_for_hidden_work_is_reported() -> None:
    """With training free, loading takes longer: it waits for a loader that is no stage."""
    base = [stretch([4.0] * 40, call_ns={0: 0.1 * MS, REST_NUMBER: 0.0}) for _ in range(3)]
    free = [stretch([3.0] * 40, call_ns={0: 2.9 * MS, REST_NUMBER: 0.0}) for _ in range(3)]
    assert pilot(free, base).waits.keys() == {"load"}


@pytest.mark.parametrize(("stolen_ms", "waits"), [(0.5, {"load"}), (2.8, set())])
def test_what_other_programs_hold_up_does_not_wait(stolen_ms: float, waits: set[str]) -> None:
    """Loading takes longer while training is free: by more than was stolen, or by less."""
    base = [stretch([4.0] * 40, call_ns={0: 0.5 * MS, REST_NUMBER: 0.0}) for _ in range(3)]
    call_ns = {0: 2.9 * MS, REST_NUMBER: 0.0}
    free = [stretch([3.0] * 40, stolen_ms, call_ns=call_ns) for _ in range(3)]
    assert pilot(free, base).waits.keys() == waits


def test_waiting_outside_of_the_stages_is_reported_too() -> None:
    base = [stretch([4.0] * 40, call_ns={REST_NUMBER: 0.01 * MS}) for _ in range(3)]
    free = [stretch([3.0] * 40, call_ns={REST_NUMBER: 2.9 * MS}) for _ in range(3)]
    assert pilot(free, base).waits.keys() == {REST}


def test_a_stage_that_stops_when_its_consumer_is_free_is_fed_by_it() -> None:
    base = [stretch([4.0] * 40) for _ in range(3)]
    free = [stretch([1.0] * 40, calls={0: 0.0, 1: 1.0}) for _ in range(3)]
    assert pilot(free, base).feeds == {"train": ["load"]}


# --- periods and rare work ---------------------------------------------------------------------


@pytest.mark.parametrize("every", [8, 20, 50, 200])
def test_the_period_of_bursts_is_found(every: int) -> None:
    durations = np.full(4000, 3.0)
    durations[::every] = 53.0
    assert longest_period(durations) == pytest.approx(every, abs=1)


def test_the_longer_of_two_periods_counts() -> None:
    durations = np.full(4000, 3.0)
    durations[::10] += 4.0
    durations[::100] += 90.0
    assert longest_period(durations) == pytest.approx(100, abs=2)


def test_rare_work_that_does_not_matter_has_no_period() -> None:
    durations = np.full(4000, 3.0)
    durations[::500] += 3.0
    assert longest_period(durations) == 1
    assert longest_period(np.array([1.0, 2.0])) == 1


def test_what_a_block_had_beyond_the_common_calls() -> None:
    kind = kind_of_stage("x", 0, np.array([1.0] * 19 + [51.0]), calls=1.0)
    assert (kind.limit_ns, kind.common_ns, kind.irregular) == (3.0, 1.0, False)
    spent, events = kind.of(np.array([1.0, 51.0, 33.0]))
    assert (spent, events) == (48.0 + 30.0, 2)


def test_a_stage_that_runs_in_some_iterations_is_rare_work_itself() -> None:
    kind = kind_of_stage("apply_pilot", 0, np.full(12, 4.0), calls=0.1)
    assert kind.irregular
    assert kind.of(np.full(3, 4.0)) == (12.0, 3)


def test_waiting_for_others_is_not_rare_work() -> None:
    """Bursts of 51 stay rare where calls may wait for 4; they do not where they may wait for 20."""
    kind = kind_of_stage("x", 0, np.array([1.0] * 19 + [51.0]), calls=1.0)
    kept = kind.beside_waiting(4.0)
    assert kept is not None
    assert kept.of(np.array([1.0, 12.0, 51.0])) == (pytest.approx(51.0 / 2), 1)
    assert kind.beside_waiting(20.0) is None


def test_the_rest_of_an_iteration_is_its_time_outside_of_stages() -> None:
    events = np.array([[0, 0, 4, 7], [1, 1, 3, 7], [0, 10, 13, 7], [2, 10, 20, 8]])
    rest = rest_of_iterations(events, [0, 2], 7, np.array([0, 10]), np.array([10, 10]))
    assert rest.tolist() == [6.0, 7.0], "inner stages and other lanes are not counted"
    assert kind_of_rest(rest, 10.0).limit_ns == pytest.approx(3 * 6.5)


# --- blocks ------------------------------------------------------------------------------------


def arms() -> dict[str, Arm]:
    names = [BASELINE, *(aa_name(k) for k in (1, 2, 3)), free_name("a"), free_name("b")]
    names += [only_name("a"), only_name("b"), "free all"]
    return {name: Arm(name) for name in names}


def test_a_block_covers_two_periods_and_what_is_in_flight() -> None:
    plan = plan_blocks(Record(period=30), arms(), 1 * MS, 60e9)
    assert plan.length >= 60
    assert len(plan.arms) == 9
    assert plan_blocks(Record(in_flight=100), arms(), 1 * MS, 60e9).length >= 200


def test_short_iterations_share_a_block() -> None:
    assert plan_blocks(Record(), arms(), 0.01 * MS, 60e9).length * 0.01 * MS >= 10e6


def test_a_short_budget_leaves_out_less_informative_arms() -> None:
    plan = plan_blocks(Record(in_flight=50), arms(), 5 * MS, 25e9)
    assert free_name("a") in plan.arms
    assert aa_name(1) in plan.arms
    assert aa_name(2) not in plan.arms
    assert only_name("a") not in plan.arms
    assert plan.length >= 100, "twice what is in flight, however short the budget"


def test_a_long_period_gives_way_to_enough_rounds() -> None:
    plan = plan_blocks(Record(period=200), arms(), 5 * MS, 30e9)
    rounds = 30e9 / (1.5 * plan.length * 5 * MS * len(plan.arms))
    assert rounds >= FEWEST_ROUNDS - 1
    assert only_name("a") in plan.arms


def test_what_helpers_of_the_main_thread_compute_is_nothing_beside_the_loop() -> None:
    block = Block(
        Request(Arm(BASELINE)),
        start_ns=[0, 100],
        duration_ns=[100, 100],
        cpu_ns=200,
        process_cpu_ns=420,
        helpers_cpu_ns=200,
        wall_ns=200,
    )
    assert stretch_of(block, [], 7).other_cpu == pytest.approx(0.1)
