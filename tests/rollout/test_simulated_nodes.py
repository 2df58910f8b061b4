"""Simulated nodes: how long their steps last, that their data are those of the envs, the rates."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import hotloop
from hotloop.rollout import FragmentCollector, simulated_nodes
from hotloop.rollout.simulated_nodes import (
    FixedActions,
    Pace,
    SimulatedNode,
    rate_in_fragments,
    rate_in_turn,
    rate_of_steps,
)


class FakeTime:
    """A clock whose sleeps last `over` longer than asked."""

    def __init__(self, over: float = 0.0) -> None:
        self.now, self.over = 100.0, over

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.now += seconds + self.over


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(simulated_nodes, "time", fake)
    return fake


def test_what_a_sleep_overshoots_the_next_step_makes_up_for(clock: FakeTime) -> None:
    clock.over = 0.0004
    pace, start = Pace(), clock.now
    for _ in range(10):
        pace(0.01, lambda: None)
    assert clock.now - start == pytest.approx(10 * 0.01 + 0.0004)


def test_a_machine_that_is_too_slow_is_not_made_up_for(clock: FakeTime) -> None:
    pace, start = Pace(), clock.now

    def slow() -> None:
        clock.now += 0.05

    pace(0.01, slow)
    pace(0.01, lambda: None)
    assert clock.now - start == pytest.approx(0.05 + 0.01 - simulated_nodes.MOST_LATE_S)


def test_a_step_without_a_duration_does_not_wait(clock: FakeTime) -> None:
    assert Pace()(0.0, lambda: "outcome") == "outcome"
    assert clock.now == 100.0


def test_a_node_returns_what_its_envs_return(clock: FakeTime) -> None:
    node = SimulatedNode("CartPole-v1", 3, 0.01)
    plain = hotloop.make_vec("CartPole-v1", 3, backend="serial")
    np.testing.assert_array_equal(node.reset(seed=1)[0], plain.reset(seed=1)[0])
    before = clock.now
    for step in range(30):
        actions = np.array([step % 2, 1, 0])
        for mine, theirs in zip(node.step(actions)[:4], plain.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert clock.now - before == pytest.approx(30 * 0.01)
    node.close()
    plain.close()


def test_the_rate_of_steps_is_that_of_the_clock(clock: FakeTime) -> None:
    node = SimulatedNode("CartPole-v1", 4, 0.02)
    node.reset(seed=0)
    rate = rate_of_steps(node, 4, np.zeros(4, np.int64), 0.02, seconds=1.0)
    assert rate == pytest.approx(4 / 0.02)
    node.close()


def test_nodes_in_turn_are_counted_and_none_is_left_stepping(clock: FakeTime) -> None:
    envs = hotloop.make_vec("CartPole-v1", 4, backend="serial", batch_size=2)
    envs.reset(seed=0)
    received: list[Any] = []
    recv = envs.recv

    def counted() -> Any:
        clock.now += 0.25
        received.append(recv())
        return received[-1]

    envs.recv = counted  # type: ignore[method-assign]
    rate = rate_in_turn(envs, np.zeros(4, np.int64), nodes=2, seconds=2.0)
    # Two envs arrive each quarter of a second.
    assert rate == pytest.approx(8.0)
    envs.send(np.zeros(4, np.int64), np.arange(4))  # would be refused while an env is under way
    envs.close()


def test_only_fragments_of_the_new_policy_are_counted() -> None:
    acted = FixedActions(np.zeros(3, np.int64))
    with FragmentCollector(
        partial(SimulatedNode, "CartPole-v1", 3, 0.0005),
        acted,
        fragment_steps=5,
        num_workers=2,
        backend="serial",
        double_buffer=False,
    ) as fragments:
        rate = rate_in_fragments(fragments, FixedActions(np.ones(3, np.int64)), 2, 0.05)
        assert rate > 0
        (fragment,) = fragments.collect()
        assert (fragment.action == 1).all()
