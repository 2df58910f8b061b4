"""Gradients by message passing, the default: equal to their plain twin, exact on trees."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.models.epidemic.gradient import (
    ExpectedModel,
    MessagePassing,
    SpreadProblem,
    SpreadStart,
    expected_curves,
    simulate,
)
from hotloop.sim.network import Network
from support.often import examples
from support.spreads import exact_gradient, exact_infections, few, plain_infections, quick_spread

TREE = few([(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (4, 5)], 6)
TREE_PROBLEM = SpreadProblem(TREE, np.array([1.0, 1.6, 0.7]), 0.3, 6)


@st.composite
def problems(draw: st.DrawFn) -> SpreadProblem:
    """Small spreads of every kind that gradients know."""
    size = draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges = np.unique(rng.integers(0, size, (draw(st.integers(1, 20)), 2)), axis=0)
    compartment = rng.choice(5, size, p=[0.6, 0.15, 0.15, 0.05, 0.05]).astype(np.uint8)
    first, steps = draw(st.sampled_from([0, 3])), draw(st.integers(1, 8))
    contact = draw(st.sampled_from([None, (2,), (steps, 2)]))
    start = SpreadStart(
        quick_spread(),
        Network.from_edges(size, edges),
        rng.integers(0, 2, size).astype(np.uint8),
        compartment,
        np.where(compartment > 0, first - rng.integers(1, 3, size), 500).astype(np.int16),
        np.where(compartment > 0, first + rng.integers(0, 3, size), 500).astype(np.int16),
        first,
        None if contact is None else rng.random(contact),
        draw(st.sampled_from([None, np.round(rng.random(size), 0) * 0.5])),
        0.8,
    )
    rate = rng.random(draw(st.integers(1, 4))) * 3
    return SpreadProblem(start, rate, 0.3, steps, (draw(st.integers(0, 99)),))


def weights(steps: int) -> np.ndarray:
    return np.cos(np.arange(steps)) + 0.5


@settings(max_examples=examples(40))
@given(problems())
def test_adjoint_along_a_run_equals_automatic_differentiation(problem: SpreadProblem) -> None:
    weight = weights(problem.steps)
    rate = torch.tensor(problem.rate, requires_grad=True)
    run = simulate(problem)
    twin = plain_infections(problem, rate, run.infected_time[0]) @ torch.tensor(weight)
    (expected,) = torch.autograd.grad(twin, rate)
    found, *_ = MessagePassing().vjp(problem, weight, np.zeros(problem.steps))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=examples(40))
@given(problems())
def test_adjoint_of_the_expected_model_equals_automatic_differentiation(
    problem: SpreadProblem,
) -> None:
    weight = weights(problem.steps)
    rate = torch.tensor(problem.rate, requires_grad=True)
    twin = plain_infections(problem, rate)
    (expected,) = torch.autograd.grad(twin @ torch.tensor(weight), rate)
    found, *_ = ExpectedModel().vjp(problem, weight, np.zeros(problem.steps))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        expected_curves(problem).infected, twin.detach(), rtol=1e-4, atol=1e-5
    )


@settings(max_examples=20)
@given(problems(), st.integers(1, 9))
def test_checkpoints_change_no_bit(problem: SpreadProblem, every: int) -> None:
    weight = weights(problem.steps)
    kept, *_ = ExpectedModel(problem.steps).vjp(problem, weight, weight)
    again, *_ = ExpectedModel(every).vjp(problem, weight, weight)
    assert (kept == again).all()


def test_deaths_are_later_infections_times_mortality() -> None:
    steps, later = 6, TREE.structure.active_steps
    by_deaths, by_mortality, *_ = MessagePassing().vjp(
        TREE_PROBLEM, np.zeros(steps), np.ones(steps)
    )
    early = (np.arange(steps) < steps - later).astype(float)
    by_infected, *_ = MessagePassing().vjp(TREE_PROBLEM, early, np.zeros(steps))
    np.testing.assert_allclose(by_deaths, 0.3 * by_infected, rtol=1e-6)
    run = simulate(TREE_PROBLEM)
    left = 1 + run.infected[0, : steps - later].sum()  # agent 0 leaves, too
    assert by_mortality == left


# Not a tree in the undirected sense, agent 4 has two ways in, but the ways do not share a draw.
def test_expected_model_is_exact_on_a_directed_tree() -> None:
    exact = exact_infections(TREE_PROBLEM, TREE_PROBLEM.rate)
    # Agent 0 is certain: its two branches are independent.
    np.testing.assert_allclose(expected_curves(TREE_PROBLEM).infected, exact, rtol=1e-5)
    found, *_ = ExpectedModel().vjp(TREE_PROBLEM, np.ones(6), np.zeros(6))
    np.testing.assert_allclose(found, exact_gradient(TREE_PROBLEM, np.ones(6)), rtol=1e-4)


@pytest.mark.long
def test_message_passing_has_no_bias_on_a_directed_tree() -> None:
    runs = 1500
    found = gradients(MessagePassing(), TREE_PROBLEM, runs)
    error = found.std(0) / np.sqrt(runs)
    exact = exact_gradient(TREE_PROBLEM, np.ones(6))
    assert (np.abs(found.mean(0) - exact) < 4 * error + 1e-4).all()


def gradients(estimator: MessagePassing, problem: SpreadProblem, runs: int) -> np.ndarray:
    """(runs, weeks) of total infections."""
    zeros, ones = np.zeros(problem.steps), np.ones(problem.steps)
    return np.array([estimator.vjp(problem.at(seeds=(s,)), ones, zeros)[0] for s in range(runs)])


def test_runs_simulated_and_runs_given_are_the_same() -> None:
    problem = TREE_PROBLEM.at(seeds=(3, 4, 5))
    run = simulate(problem)
    given_runs = SpreadProblem(TREE, problem.rate, 0.3, 6, (3, 4, 5), run.infected_time)
    weight = np.arange(18.0).reshape(3, 6)
    alone = [
        MessagePassing().vjp(problem.at(seeds=(s,)), w, w)
        for s, w in zip((3, 4, 5), weight, strict=True)
    ]
    for found in (MessagePassing().vjp(p, weight, weight) for p in (problem, given_runs)):
        np.testing.assert_allclose(found[0], sum(a[0] for a in alone), rtol=1e-12)
        assert found[1] == pytest.approx(sum(a[1] for a in alone))
