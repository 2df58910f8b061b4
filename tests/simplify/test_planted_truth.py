"""Real clocks, threads, processes and event loops, with gains known by construction.

Every assertion leaves a margin of many interval widths: a busy machine shifts the numbers by a
few per cent, never by a third.
"""

import itertools
import time
from typing import Any

import pytest

from hotloop.loop import Loop, drive, stage
from hotloop.loop.control import process_control
from hotloop.loop.figures import Interval, Unknown
from hotloop.report.simplify import headline
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.judge import judge
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.slack import Slack
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import StageVerdict
from support.loops import (
    assert_near,
    async_pipeline,
    busy,
    hidden_pipeline,
    process_pipeline,
    threaded_pipeline,
    unpaced_thread,
)


def verdict_on(loop: Loop, budget: float, **settings: Any) -> Verdict:
    """The verdict; a machine too busy for enough rounds in the budget gets four times as long."""
    control = process_control()
    for seconds in (budget, 4 * budget):
        chosen = SimplifySettings(budget=seconds, aa_pairs=1, **settings)
        experiment = Experiment(control, chosen)
        drive(loop, experiment.run(loop), control)
        verdict = judge(experiment.record, "planted", chosen.worth)
        if not any(row.gain == Unknown("too few rounds") for row in verdict.rows):
            break
    return verdict


def row(verdict: Verdict, name: str) -> StageVerdict:
    return next(row for row in verdict.rows if row.name == name)


def assert_not_blamed(found: StageVerdict) -> None:
    """The stage is not the one to fix: no gain of it is told from none, or only a small one."""
    assert isinstance(found.gain, Interval), found.gain
    assert found.gain.low < 0.12


@pytest.mark.long
def test_a_serial_loop() -> None:
    step = stage("planted step", lambda: busy(0.0020), effect="pure")
    learn = stage("planted learn", lambda: busy(0.0010), effect="pure")
    verdict = verdict_on(Loop(body=lambda: (step(), learn()) and 1), budget=5.0)
    assert_near(row(verdict, "planted step").gain, 2 / 3)
    assert_near(row(verdict, "planted learn").gain, 1 / 3)
    assert_near(row(verdict, "planted step").gain_if_faster, 1 / 3)
    # Its kind of cost is tested on a fake clock: beside other programs a stage that keeps a core
    # for a time of the clock computes in less than half of it.


def test_a_stage_with_slack_gains_less_than_its_share() -> None:
    """Threads: the loop takes as long as fetching does; training has 40% of it and no gain."""
    with threaded_pipeline(fetch_s=0.005, train_s=0.002) as loop:
        verdict = verdict_on(loop, budget=12.0)
    assert row(verdict, "train").share > 0.3
    assert_not_blamed(row(verdict, "train"))
    assert_near(row(verdict, "fetch").gain, 0.6)
    assert verdict.fix is None or verdict.fix is row(verdict, "fetch")
    slack = row(verdict, "train").slack
    if isinstance(slack, Slack):
        assert 1e6 < slack.slack_ns.value < 5e6, "3 ms, between what it takes and could bear"
    else:
        assert slack.why == "no delay was tried", "where time is short, delays are left out"


@pytest.mark.slow
def test_two_processes() -> None:
    with process_pipeline(decode_s=0.006, train_s=0.002) as loop:
        verdict = verdict_on(loop, budget=9.0)
    assert_near(row(verdict, "decode").gain, 2 / 3)
    assert_not_blamed(row(verdict, "train"))


@pytest.mark.slow
def test_an_event_loop() -> None:
    with async_pipeline(fetch_s=0.006, train_s=0.0015) as loop:
        verdict = verdict_on(loop, budget=9.0)
    assert_near(row(verdict, "fetch").gain, 0.75)
    assert_not_blamed(row(verdict, "train"))
    assert row(verdict, "fetch").cost == "waiting"


@pytest.mark.slow
def test_contention_is_named_and_more_workers_are_never_advised() -> None:
    """Two threads that both compute in Python share one lock: each stage costs the other."""
    with threaded_pipeline(fetch_s=0.003, train_s=0.003, waiting=False) as loop:
        verdict = verdict_on(loop, budget=12.0)
    fetch = row(verdict, "fetch")
    assert_near(fetch.gain, 0.5)
    if isinstance(fetch.interference_ns, Interval):
        # An interval that reaches down to 0 does not decide it, and must not say "waiting".
        undecided = fetch.interference_ns.low <= 0
        assert fetch.cost == ("unknown" if undecided else "contention")
    else:
        assert "--budget" in fetch.interference_ns.why, "where time is short, pads are left out"
        assert fetch.cost == "unknown"
    text = " ".join(headline(verdict))
    assert "add more workers" not in text
    if verdict.fix is fetch and fetch.cost == "contention":
        assert "more workers would make it worse" in text


@pytest.mark.slow
def test_bursts_count_with_all_their_weight() -> None:
    """A source of 1 ms that takes 30 ms every tenth call, beside 2 ms of training: 66% and 34%."""
    calls = itertools.count()

    def fetch() -> None:
        busy(0.030 if next(calls) % 10 == 9 else 0.001)

    fetch_stage = stage("bursty fetch", fetch, effect="pure")
    train_stage = stage("steady train", lambda: busy(0.002), effect="pure")
    verdict = verdict_on(Loop(body=lambda: (fetch_stage(), train_stage()) and 1), budget=9.0)
    assert_near(row(verdict, "bursty fetch").gain, 3.9 / 5.9)
    assert_near(row(verdict, "steady train").gain, 2.0 / 5.9)


@pytest.mark.slow
def test_a_hidden_queue_is_found_and_waiting_for_it_is_no_gain() -> None:
    """A thread that is no stage fetches 3 ms ahead of 4 ms of training, which gains a quarter."""
    with hidden_pipeline(fetch_s=0.003, train_s=0.004) as loop:
        verdict = verdict_on(loop, budget=9.0)
    found = row(verdict, "seen train")
    assert found.share > 0.6
    assert isinstance(found.gain, Interval)
    assert found.gain.low < 0.5, "its share is nearly all; most of it is a wait for the thread"


def test_declared_items_in_flight_are_left_out_of_every_block() -> None:
    control = process_control()
    for seconds in (5.0, 20.0):  # the second on a machine so busy that the first was too short
        with hidden_pipeline(fetch_s=0.002, train_s=0.003) as loop:
            settings = SimplifySettings(budget=seconds, aa_pairs=1, in_flight=7)
            experiment = Experiment(control, settings)
            drive(loop, experiment.run(loop), control)
        record = experiment.record
        if not record.out_of_time:
            break
    assert record.drain_iterations >= 8
    assert record.drain_base >= 8
    assert record.block_iterations >= 14


@pytest.mark.slow
def test_a_free_stage_on_a_thread_of_its_own_does_not_spin() -> None:
    """Nothing holds the thread back but hotloop: its free calls keep to the loop's iterations."""
    with unpaced_thread(watch_s=0.001, train_s=0.002) as (loop, calls):
        verdict = verdict_on(loop, budget=8.0)
        per_iteration = calls() / process_control().iteration[0]
    assert row(verdict, "watch").not_replaced is None
    assert per_iteration < 60, "a free thread would call it thousands of times in an iteration"


def test_an_experiment_ends_when_its_time_is_up() -> None:
    """Iterations of 0.2 s and rounds that would take longer than is left: one more at the most."""
    slow = stage("slow one", lambda: time.sleep(0.1), effect="pure")
    other = stage("slow other", lambda: time.sleep(0.1), effect="pure")
    loop = Loop(body=lambda: (slow(), other()) and 1)
    control = process_control()
    experiment = Experiment(control, SimplifySettings(budget=3.0))
    drive(loop, experiment.run(loop), control)
    verdict = judge(experiment.record, "slow", 0.03)
    assert experiment.record.seconds < 1.1 * 3.0 + 5, "the limit, an iteration, and a margin"
    assert verdict.refused is None or "--budget" in verdict.refused
