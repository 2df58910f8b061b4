"""The closed forms against a discrete-event simulation: messages, stragglers, halves, learners."""

import math

import numpy as np
import pytest

from hotloop.errors import SettingError
from hotloop.plan.fit import Draws
from hotloop.plan.forecast import slowest_of, step_times
from hotloop.plan.lag import Learning, staleness
from hotloop.plan.modes import FRAGMENTS, MODES, STEP, Cell
from hotloop.plan.settings import PlanSettings

pytest.importorskip("simpy")

from hotloop.plan.simulation import (
    Cluster,
    cluster_of,
    simulate_learning,
    simulate_rate,
)


def draws(
    mode: str, *, call_s: float = 2e-4, overlap: float = 0.7, latency_s: float = 0.0
) -> Draws:
    """One set of parameters, for messages of one env step (of fragments: for theirs)."""
    one = np.ones(1)
    of = mode if mode == FRAGMENTS else STEP
    return Draws(call_s * one, overlap * one, latency_s * one, 0.01 * one, 0 * one, 2, 1.0, of)


def both(cell: Cell, settings: PlanSettings | None = None, **given: float) -> tuple[float, float]:
    """Env steps/s by the closed form and by simulation."""
    settings = settings or PlanSettings()
    found = draws(cell.mode, **given)
    closed = cell.cores / float(step_times(found, cell, settings)[0])
    return closed, simulate_rate(cluster_of(found, cell, settings))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("nodes", "cores", "step_s", "given"),
    [
        (4, 8, 0.1, {}),  # envs
        (4, 8, 0.01, {"latency_s": 0.002}),
        (8, 16, 0.01, {"overlap": 0.9}),  # the head's messages
        (8, 16, 0.001, {"overlap": 0.5}),
    ],
)
def test_the_closed_form_of_each_mode_is_simulated(
    mode: str, nodes: int, cores: int, step_s: float, given: dict[str, float]
) -> None:
    closed, simulated = both(Cell(nodes, cores, step_s, mode, 10), **given)
    # The closed form leaves out that the first message is sent before any env steps.
    assert closed == pytest.approx(simulated, rel=0.02 + 0.5 / nodes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spread", [0.2, 0.6])
def test_stragglers(mode: str, spread: float) -> None:
    settings = PlanSettings(step_spread=spread)
    closed, simulated = both(Cell(16, 8, 0.05, mode, 10), settings, call_s=2e-5)
    assert closed == pytest.approx(simulated, rel=0.1)
    assert closed < 0.95 * 16 * 8 / 0.05


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "settings",
    [
        PlanSettings(policy_s=0.004),
        PlanSettings(policy_s=0.02),
        PlanSettings(learner_sps=1000.0),
        PlanSettings(step_bytes=1e4, bandwidth_bytes_per_s=1e7),
    ],
    ids=["policy", "slow policy", "learner", "network"],
)
def test_what_stands_beside_the_envs(mode: str, settings: PlanSettings) -> None:
    closed, simulated = both(Cell(8, 4, 0.01, mode, 10), settings, call_s=1e-5)
    assert closed == pytest.approx(simulated, rel=0.1)


def test_double_buffering_hides_the_policy_and_the_messages() -> None:
    settings = PlanSettings(policy_s=0.008)
    batched, _ = both(Cell(8, 8, 0.01, "batched"), settings)
    halves, simulated = both(Cell(8, 8, 0.01, "double-buffered"), settings)
    assert halves > 1.7 * batched
    assert simulated > 1.7 * batched


def test_a_thousand_nodes_are_simulated_and_no_more() -> None:
    closed, simulated = both(Cell(1000, 8, 0.05, "batched"), call_s=1e-5)
    assert closed == pytest.approx(simulated, rel=0.03)
    with pytest.raises(SettingError, match="expected at most 1000 to be simulated, got 1001"):
        simulate_rate(Cluster(Cell(1001, 8, 0.05), 1e-5, 1e-5))


def test_one_message_at_a_time_by_hand() -> None:
    """Four envs of 10 ms, 1 ms to send, 2 to read: 4 sent by 4 ms, read from 11 ms to 19."""
    rate = simulate_rate(Cluster(Cell(1, 4, 0.010), 0.001, 0.002))
    assert rate == pytest.approx(4 / 0.019)


def test_the_slowest_of_many_by_drawing_them() -> None:
    rng = np.random.default_rng(0)
    sigma = math.sqrt(math.log1p(0.5**2))
    for count in (2, 48, 1536):
        drawn = rng.lognormal(-(sigma**2) / 2, sigma, (4000, count)).max(axis=1).mean()
        assert slowest_of(count, 0.5) == pytest.approx(drawn, rel=0.02)
    assert slowest_of(48, 0.0) == slowest_of(1, 0.5) == 1.0


LEARNINGS = [
    Learning(1, 1.0, 1, 0.1),
    Learning(8, 1.0, 1, 0.01),
    Learning(8, 1.0, 8, 0.2),
    Learning(8, 1.0, 4, 0.3),
    Learning(16, 0.5, 2, 0.01),
    Learning(8, 1.0, 1, 0.2),  # from here on the learner is slower than its actors
    Learning(8, 1.0, 8, 2.0),
    Learning(8, 1.0, 4, 0.6),
    Learning(16, 0.5, 2, 0.1, queue_fragments=3),
]


@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("learning", LEARNINGS)
def test_the_lag_of_an_asynchronous_learner(learning: Learning, spread: float) -> None:
    closed, simulated = staleness(learning), simulate_learning(learning, spread=spread)
    assert closed.fragments_per_s == pytest.approx(simulated.fragments_per_s, rel=0.02)
    assert closed.busy == pytest.approx(simulated.busy, abs=0.02)
    assert closed.lag == pytest.approx(simulated.lag, rel=0.05, abs=0.5)
    assert closed.wait_s == pytest.approx(
        simulated.wait_s, rel=0.05, abs=0.25 * learning.fragment_s
    )


def test_littles_law_by_hand() -> None:
    """Eight actors, a learner twice too slow: two fragments an actor wait or are under way."""
    found = staleness(Learning(8, 1.0, 4, 1.0))
    assert found.lag == 4.0  # 16 fragments, 4 an update
    assert found.wait_s == 3.0  # 16 at 4 a second, less the second in which it was made
    assert found.busy == 1.0
