"""What a runner says it did."""

import time

import pytest
import torch
from tiny_models import N, growth, sir

from hotloop.loop import SharedControl
from hotloop.sim import Executor, Record
from hotloop.sim.stats import Stats
from hotloop.sim.traffic import Traffic

KEYS = {
    *("program", "device", "precision", "replicates"),
    *("steps", "agent_steps", "seconds", "agent_steps_per_s"),
    *("allocations", "allocated_bytes", "reuses", "transfers", "transfer_bytes"),
    *("active_share", "edges", "edges_per_s", "snapshots", "snapshot_bytes"),
}


def test_the_keys_are_there_before_and_after() -> None:
    runner = Executor(sir(), replicates=2).runner
    assert set(runner.get_performance_stats()) == KEYS
    runner.init()
    runner.step(3)
    stats = runner.get_performance_stats()
    assert set(stats) == KEYS | {"seconds_infect", "seconds_recover"}
    assert stats["program"] == "substeps"
    assert stats["steps"] == 3
    assert stats["agent_steps"] == 3 * 2 * N
    assert stats["active_share"] == 1.0
    spent = stats["seconds_infect"] + stats["seconds_recover"]
    assert 0 < spent <= stats["seconds"]
    assert stats["agent_steps_per_s"] == pytest.approx(stats["agent_steps"] / stats["seconds"])


def test_a_program_counts_for_itself() -> None:
    runner = Executor(growth()).init()
    runner.step(5)
    stats = runner.get_performance_stats()
    assert stats["program"] == "doubling"
    assert stats["active_share"] == 1 / 20
    assert stats["edges_per_s"] == pytest.approx(4 / stats["seconds"])
    assert stats["program_doublings"] == 1
    assert stats["seconds_step"] <= stats["seconds"]


def test_on_the_cpu_nothing_is_transferred() -> None:
    stats = Executor(sir(), device="cpu").init().get_performance_stats()
    assert stats["transfers"] == stats["transfer_bytes"] == 0
    assert stats["allocated_bytes"] == N + 12 * 4 + 4  # stage, cases, mood


def test_what_travels_is_counted_once() -> None:
    traffic, there = Traffic(), torch.device("meta")
    moved = traffic.moved(torch.zeros(10, dtype=torch.int16), there)
    traffic.moved(moved, there)
    assert (traffic.transfers, traffic.transfer_bytes) == (1, 20)


def test_snapshots_are_counted_over_episodes() -> None:
    runner = Executor(sir(), record=Record(keep=("agents/people/stage",))).init()
    runner.step(2)
    assert runner.get_performance_stats()["snapshots"] == 1 + 2 * 2
    assert runner.get_performance_stats()["snapshot_bytes"] == 5 * N
    runner.reset()
    runner.step(2)
    assert runner.get_performance_stats()["snapshots"] == 2 * (1 + 2 * 2)


def test_a_stages_time_is_added_up() -> None:
    stats = Stats(torch.device("cpu"))
    for _ in range(2):
        with stats.timed("rest"):
            time.sleep(0.002)
    assert stats.read_stage_seconds()["rest"] >= 0.004


def test_substeps_are_stages() -> None:
    from hotloop.loop.control import process_control

    Executor(sir()).init()
    Executor(growth()).init()
    control: SharedControl = process_control()
    assert {"infect", "recover", "step"} <= set(control.stages)
    assert all(control.stages[name].effect == "stateful" for name in ("infect", "recover", "step"))
