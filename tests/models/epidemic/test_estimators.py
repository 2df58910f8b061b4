"""The other estimators, what they share, and how a gradient reaches tensors."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hotloop.errors import SettingError, ShapeError
from hotloop.models.epidemic.gradient import (
    ESTIMATORS,
    Estimator,
    Flips,
    Inputs,
    Relaxed,
    Score,
    SpreadProblem,
    SpreadStart,
    StraightThrough,
    attach_gradient,
    default_estimator,
    estimator,
    short_loops,
    simulate,
)
from hotloop.models.epidemic.gradient.tables import leaving
from hotloop.sim.network import Network, PeriodicNetwork
from support.spreads import (
    exact_controls,
    exact_courses,
    exact_gradient,
    few,
    mean_gradient,
    town,
)

# Cycles, and edges both ways: nothing of a tree.
KNOT = few([(0, 1), (0, 2), (1, 2), (2, 1), (2, 3), (3, 1), (3, 4), (4, 2)], 5)
PROBLEM = SpreadProblem(KNOT, np.array([1.0, 1.6, 0.7]), 0.3, 6)
RUNS = 600


@pytest.mark.long
def test_flips_have_no_bias_on_any_network() -> None:
    mean, error = mean_gradient(Flips(count=2), PROBLEM, RUNS)
    assert (np.abs(mean - exact_gradient(PROBLEM, np.ones(6))) < 4 * error + 1e-4).all()


@pytest.mark.long
def test_score_function_has_no_bias_on_any_network() -> None:
    pairs = [PROBLEM.at(seeds=tuple(range(s, s + 10))) for s in range(0, 10 * RUNS, 10)]
    found = np.array([Score().vjp(p, np.ones(6), np.zeros(6))[0] for p in pairs]) / 10
    error = found.std(0, ddof=1) / np.sqrt(RUNS)
    assert (np.abs(found.mean(0) - exact_gradient(PROBLEM, np.ones(6))) < 4 * error + 1e-4).all()


CONTROLLED = SpreadProblem(
    replace(
        KNOT,
        contact=np.array([[1.0, 1.0], [1.0, 0.5], [1.0, 0.0], [0.7, 0.0]]),
        willing=np.array([0.5, 0.8, 0.0, 0.4, 0.6]),
        isolating=np.array([0.0, 0.0, 1.0, 0.5]),
        by_controls=True,
    ),
    np.array([1.0, 1.6]), 0.3, 4,
)  # fmt: skip


def some_contact(problem: SpreadProblem) -> SpreadProblem:
    contact = np.maximum(problem.start.contact, 0.3)
    return replace(problem, start=replace(problem.start, contact=contact))


def near(found: list, exact: np.ndarray, runs: int = 1) -> None:
    """Within four standard errors, everywhere."""
    samples = np.array(found) / runs
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(0) - exact) < 4 * error + 1e-4).all()


@pytest.mark.parametrize("estimator", [pytest.param(Flips(4), marks=pytest.mark.slow), Score()])
def test_controls_of_every_step_have_a_gradient_without_bias(estimator: Estimator) -> None:
    runs, problem = (1, CONTROLLED) if estimator.name == "flips" else (5, some_contact(CONTROLLED))
    found = [
        estimator.vjp(problem.at(seeds=tuple(range(s, s + runs))), np.ones(4), np.zeros(4))
        for s in range(0, runs * RUNS, runs)
    ]
    contact, isolating = exact_controls(problem)
    near([f.rate for f in found], exact_gradient(problem, np.ones(4)), runs)
    near([f.contact for f in found], contact, runs)
    near([f.isolating for f in found], isolating, runs)


@pytest.mark.parametrize("name", ["message_passing", "expected"])
def test_controls_have_a_gradient_by_message_passing(name: str) -> None:
    tree = few([(0, 1), (0, 2), (1, 3), (1, 4), (4, 5)], 6)
    start = replace(
        tree, contact=np.array([[1.0, 1.0], [1.0, 0.0], [0.7, 0.4], [1.0, 1.0]]), by_controls=True
    )
    problem = SpreadProblem(start, np.array([1.0, 1.6]), 0.3, 4)
    runs = 1 if name == "expected" else 1500
    found = np.mean(
        [
            estimator(name).vjp(problem.at(seeds=(s,)), np.ones(4), np.zeros(4)).contact
            for s in range(runs)
        ],
        axis=0,
    )
    np.testing.assert_allclose(found, exact_controls(problem)[0], atol=0.03 if runs > 1 else 1e-4)


def missed(infected: torch.Tensor, deaths: torch.Tensor) -> torch.Tensor:
    """Not linear in the counts."""
    return (
        (infected - torch.tensor([0.0, 2.0, 1.0, 0.0, 0.0, 0.0])) ** 2
    ).sum() + deaths.sum() ** 2


@pytest.mark.long
def test_a_rate_of_zero_has_a_gradient_beside_controls() -> None:
    problem = CONTROLLED.at(rate=np.array([1.0, 0.0]))
    found = [Flips().vjp(problem.at(seeds=(s,)), np.ones(4), np.zeros(4)).rate for s in range(RUNS)]
    exact = exact_gradient(problem, np.ones(4))
    assert exact[1] > 0.05
    near(found, exact)


@pytest.mark.slow
def test_flips_give_the_derivative_of_any_expected_loss() -> None:
    found = [Flips(count=2).of_loss(PROBLEM.at(seeds=(s,)), missed) for s in range(2 * RUNS)]

    def expected(rate: np.ndarray, mortality: float) -> float:
        total = 0.0
        for weight, daily in exact_courses(PROBLEM, rate):
            left = leaving(PROBLEM, daily.astype(float)).sum()
            squared = left * mortality * (1 - mortality) + (left * mortality) ** 2
            alive = float(missed(torch.from_numpy(daily.astype(float)), torch.zeros(6)))
            total += weight * (alive + squared)
        return total

    near([loss for loss, _ in found], np.array(expected(PROBLEM.rate, 0.3)))
    step = 1e-4 * np.eye(3)
    by_rate = [
        (expected(PROBLEM.rate + s, 0.3) - expected(PROBLEM.rate - s, 0.3)) / 2e-4 for s in step
    ]
    near([gradient.rate for _, gradient in found], np.array(by_rate))
    by_mortality = (expected(PROBLEM.rate, 0.3001) - expected(PROBLEM.rate, 0.2999)) / 2e-4
    near([gradient.mortality for _, gradient in found], np.array(by_mortality))


def test_a_loss_that_is_no_number_is_refused() -> None:
    with pytest.raises(SettingError, match="finite"):
        Flips().of_loss(PROBLEM, lambda infected, deaths: float("nan"))


def test_score_function_refuses_what_no_draw_tells() -> None:
    with pytest.raises(SettingError, match="flips"):
        Score().vjp(CONTROLLED.at(seeds=(1, 2)), np.ones(4), np.zeros(4))


def test_score_function_needs_two_runs() -> None:
    with pytest.raises(SettingError, match="two runs"):
        Score().vjp(PROBLEM, np.ones(6), np.zeros(6))


def test_cutting_the_chain_loses_what_infections_lead_to() -> None:
    problem = SpreadProblem(town(2_000, 8_000, 40), np.full(3, 4.75), 0.1, 21)
    kept, _ = mean_gradient(StraightThrough(), problem, 4)
    cut, _ = mean_gradient(StraightThrough(chain=False), problem, 4)
    assert cut[0] < 0.5 * kept[0]
    assert cut[2] == pytest.approx(kept[2], rel=0.15)  # too late to lead to anything


def test_a_cooler_relaxation_is_nearer_to_the_simulation() -> None:
    problem = SpreadProblem(town(2_000, 8_000, 40), np.full(3, 4.75), 0.1, 14, (1,))
    hard = StraightThrough().vjp(problem, np.ones(14), np.zeros(14))[0]
    warm, cool = (
        np.abs(Relaxed(t).vjp(problem, np.ones(14), np.zeros(14))[0] - hard).sum()
        for t in (1.0, 0.3)
    )
    assert cool < warm
    assert Relaxed.annealed(0.0).temperature == 1.0
    assert Relaxed.annealed(1.0).temperature == pytest.approx(0.1)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_gives_the_same_bits_again(name: str) -> None:
    problem = PROBLEM.at(seeds=(1, 2))
    first, second = (estimator(name).vjp(problem, np.ones(6), np.ones(6)) for _ in range(2))
    assert (first[0] == second[0]).all()
    assert first[1] == second[1]
    assert first[0].shape == (3,)


def test_attached_counts_keep_their_values_and_gain_a_gradient() -> None:
    problem = PROBLEM.at(seeds=(1, 2))
    runs = simulate(problem)
    rate = torch.tensor([[1.0], [1.6], [0.7]], requires_grad=True)
    mortality = torch.tensor([0.3], requires_grad=True)
    counts = torch.from_numpy(runs.infected), torch.from_numpy(runs.deaths)
    infected, deaths = attach_gradient(
        *counts, Inputs(rate, mortality), problem, estimator("message_passing")
    )
    assert (infected == counts[0]).all()
    assert (deaths == counts[1]).all()
    (infected[0].sum() * 2 + deaths.sum()).backward()
    weights = np.array([[2.0] * 6, [0.0] * 6]), np.ones((2, 6))
    by_rate, by_mortality, *_ = estimator("message_passing").vjp(problem, *weights)
    np.testing.assert_allclose(rate.grad[:, 0], by_rate, rtol=1e-6)
    np.testing.assert_allclose(mortality.grad, [by_mortality], rtol=1e-6)


def test_one_run_is_attached_without_a_dimension_of_runs() -> None:
    run = simulate(PROBLEM)
    rate = torch.tensor(PROBLEM.rate, requires_grad=True)
    mortality = torch.tensor(0.3)
    counts = torch.from_numpy(run.infected[0]), torch.from_numpy(run.deaths[0])
    infected, _ = attach_gradient(*counts, Inputs(rate, mortality), PROBLEM, estimator("expected"))
    infected.sum().backward()
    assert rate.grad.shape == (3,)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'message_passing'"):
        estimator("mesage_passing")
    given: Estimator = Flips(3)
    assert estimator(given) is given


def clustered(size: int = 1_800, group: int = 9) -> SpreadStart:
    """Everybody in a group of nine is joined to everybody in it, one way."""
    rng = np.random.default_rng(0)
    a, b = np.triu_indices(group, 1)
    begins = np.arange(0, size, group)[:, None]
    edges = np.stack([(begins + a).ravel(), (begins + b).ravel()], 1)
    edges = rng.permuted(edges, axis=1)
    start = town(size, 100, 20)
    return replace(start, network=Network.from_edges(size, edges))


def squares(size: int = 2_000) -> SpreadStart:
    """Groups of five join groups of five: no triangles, many squares."""
    begins = np.arange(0, size, 10)[:, None]
    a, b = (x.ravel() for x in np.meshgrid(np.arange(5), np.arange(5, 10)))
    edges = np.stack([(begins + a).ravel(), (begins + b).ravel()], 1)
    return replace(town(size, 100, 20), network=Network.from_edges(size, edges))


def test_short_loops_are_counted_in_any_direction() -> None:
    loops = short_loops(clustered().network)
    assert loops.back == 0
    assert loops.two == pytest.approx(7, rel=0.05)  # neighbours in common, of nine
    assert loops.three == pytest.approx(42, rel=0.05)
    loops = short_loops(squares().network)
    assert loops[:2] == (0, 0)
    assert loops.three == pytest.approx(16, rel=0.05)
    both = np.concatenate([np.stack([np.arange(99), np.arange(1, 100)], 1)] * 2)
    both[99:] = both[99:, ::-1]
    assert short_loops(Network.from_edges(100, both)) == (1, 0, 0)
    assert short_loops(Network.from_edges(5, np.zeros((0, 2), np.int32))) == (0, 0, 0)


def test_the_default_depends_on_short_loops() -> None:
    assert default_estimator(KNOT).name == "flips"
    assert default_estimator(clustered()).name == "flips"
    assert default_estimator(squares()).name == "flips"
    assert default_estimator(town(2_000, 8_000, 40)).name == "message_passing"


def test_misfits_say_what_was_expected() -> None:
    with pytest.raises(ShapeError, match=r"expected \(1, 6\) or \(6,\)"):
        estimator("expected").vjp(PROBLEM, np.ones(5), np.zeros(6))
    with pytest.raises(ShapeError, match="infected_time"):
        SpreadProblem(KNOT, PROBLEM.rate, 0.3, 6, (0,), np.zeros((2, 5), np.int16))
    with pytest.raises(SettingError, match="rate"):
        SpreadProblem(KNOT, np.array([1.0, np.nan]), 0.3, 6)
    with pytest.raises(SettingError, match="mortality"):
        SpreadProblem(KNOT, PROBLEM.rate, 1.3, 6)
    with pytest.raises(ShapeError, match="group"):
        replaced(group=np.zeros(4, np.uint8))
    with pytest.raises(SettingError, match="PeriodicNetwork"):
        replaced(network=PeriodicNetwork([KNOT.network]))


def replaced(**changes: object) -> SpreadStart:
    fields = {name: getattr(KNOT, name) for name in KNOT.__dataclass_fields__}
    return SpreadStart(**{**fields, **changes})
