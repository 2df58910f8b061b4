"""Real clocks, threads, processes and event loops, with gains known by construction.

Every assertion leaves a margin of many interval widths: a busy machine shifts the numbers by a
few per cent, never by a third.
"""

from typing import Any

import pytest

from hotloop.benchmark.noise import Interval
from hotloop.loop import Loop, drive, stage
from hotloop.loop.arm import process_board
from hotloop.report.console import headline
from hotloop.simplify.estimate import Slack
from hotloop.simplify.experiment import Experiment, SimplifySettings
from hotloop.simplify.verdict import StageVerdict, Verdict, judge
from support.loops import async_pipeline, busy, process_pipeline, threaded_pipeline


def verdict_on(loop: Loop, budget: float, **settings: Any) -> Verdict:
    board = process_board()
    chosen = SimplifySettings(budget=budget, aa_pairs=1, **settings)
    experiment = Experiment(board, chosen)
    drive(loop, experiment.run(loop), board)
    return judge(experiment.record, "planted", chosen.worth)


def row(verdict: Verdict, name: str) -> StageVerdict:
    return next(row for row in verdict.rows if row.name == name)


def gain(verdict: Verdict, name: str) -> float:
    found = row(verdict, name).gain
    assert isinstance(found, Interval), found
    return found.value


def test_a_serial_loop() -> None:
    step = stage("planted step", lambda: busy(0.0020), effect="pure")
    learn = stage("planted learn", lambda: busy(0.0010), effect="pure")
    verdict = verdict_on(Loop(body=lambda: (step(), learn()) and 1), budget=5.0)
    assert gain(verdict, "planted step") == pytest.approx(2 / 3, abs=0.12)
    assert gain(verdict, "planted learn") == pytest.approx(1 / 3, abs=0.12)
    faster = row(verdict, "planted step").gain_if_faster
    assert isinstance(faster, Interval)
    assert faster.value == pytest.approx(1 / 3, abs=0.12)
    assert row(verdict, "planted step").cost == "own work"


def test_a_stage_with_slack_is_not_blamed_for_its_share() -> None:
    """Threads: the loop takes as long as fetching does; training has 40% of it and no gain."""
    with threaded_pipeline(fetch_s=0.005, train_s=0.002) as loop:
        verdict = verdict_on(loop, budget=12.0)
    assert row(verdict, "train").share > 0.3
    assert gain(verdict, "train") < 0.15
    assert row(verdict, "train").verdict != "fix"
    assert gain(verdict, "fetch") == pytest.approx(0.6, abs=0.15)
    assert verdict.fix is None or verdict.fix is row(verdict, "fetch")
    slack = row(verdict, "train").slack
    assert isinstance(slack, Slack)
    assert slack.slack_ns.value == pytest.approx(3e6, abs=1.2e6)


def test_two_processes() -> None:
    with process_pipeline(decode_s=0.006, train_s=0.002) as loop:
        verdict = verdict_on(loop, budget=9.0)
    assert gain(verdict, "decode") == pytest.approx(2 / 3, abs=0.2)
    assert gain(verdict, "train") < 0.15
    assert row(verdict, "train").verdict != "fix"


def test_an_event_loop() -> None:
    with async_pipeline(fetch_s=0.006, train_s=0.0015) as loop:
        verdict = verdict_on(loop, budget=9.0)
    assert gain(verdict, "fetch") == pytest.approx(0.75, abs=0.2)
    assert gain(verdict, "train") < 0.15
    assert row(verdict, "fetch").cost == "waiting"


def test_contention_is_named_and_more_workers_are_never_the_advice() -> None:
    """Two threads that both compute in Python share one lock: each stage costs the other."""
    with threaded_pipeline(fetch_s=0.003, train_s=0.003, waiting=False) as loop:
        verdict = verdict_on(loop, budget=12.0)
    fetch = row(verdict, "fetch")
    assert gain(verdict, "fetch") > 0.2
    assert isinstance(fetch.interference_ns, Interval), fetch.interference_ns
    assert fetch.cost == "contention"
    text = " ".join(headline(verdict))
    assert "add more workers" not in text
    assert "more workers would make it worse" in text or verdict.fix is not fetch
