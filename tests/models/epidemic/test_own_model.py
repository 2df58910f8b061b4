"""A disease of a user's own, made of what `hotloop.models.epidemic` exports and nothing else."""

import numpy as np
import pytest
import torch

from hotloop.errors import SettingError
from hotloop.models.epidemic import (
    CalibrationSettings,
    Observed,
    Progression,
    Spread,
    Transmission,
    calibrate,
    differentiator,
    expected_loss,
    fused,
)
from hotloop.models.epidemic.gradient.differentiator import spread_start
from hotloop.sim import Executor, Model, Series

N, DAYS = 2_000, 20
COMPARTMENT, CASES, DEATHS = "agents/people/compartment", "environment/cases", "environment/deaths"
CONTACT = "environment/contact"
RATE = "initializer.transition_function.0.transmission.learnable_args.rate"
MORTALITY = "initializer.transition_function.1.progression.learnable_args.mortality"


def flu(**parts) -> Model:
    """Incubating for two days, ill for three, worn out for two; two age groups."""
    weights = np.zeros((6, 8))
    weights[1, 2:4], weights[2, 3:7], weights[3, 6:] = 0.05, 0.3, 0.1
    spread = Spread(
        weights, (2, 3, 2), np.array([1.0, 0.4]), steps_per_rate=10,
        compartment_names=("well", "incubating", "ill", "worn out", "recovered", "dead"),
    )  # fmt: skip
    names = {"population": "people"}
    rng = np.random.default_rng(0)
    compartment = (np.arange(N) % 50 == 0).astype(np.uint8)
    return Model(
        "flu",
        substeps=(
            Transmission(
                spread, torch.tensor([1.0, 0.8]), network="ties", daily="cases",
                contact="contact", **names,
            ),
            Progression(spread, torch.tensor(0.2), daily="deaths", **names),
        ),
        populations={
            "people": {
                "group": (np.arange(N) % 2).astype(np.uint8),
                "compartment": compartment,
                "infected_time": np.where(compartment > 0, -1, 500).astype(np.int16),
                "next_time": np.where(compartment > 0, 1, 500).astype(np.int16),
            }
        },
        sizes={"people": N},
        environment={"cases": Series(), "deaths": Series(), "contact": np.ones(2)},
        networks={"ties": rng.integers(0, N, (3 * N, 2))},
        num_steps_per_episode=DAYS,
        **parts,
    )  # fmt: skip


def run_of(model: Model, **settings):
    return Executor(model, device="cpu", **settings).init()


@pytest.mark.parametrize("replicates", [None, 3])
def test_the_fused_program_means_the_same_as_the_substeps(replicates) -> None:
    quick, plain = (
        run_of(flu(program=fused), replicates=replicates),
        run_of(flu(), replicates=replicates),
    )
    for runner in (quick, plain):
        runner.step(DAYS)
    for path in (COMPARTMENT, CASES, DEATHS):
        assert torch.equal(quick.state[path], plain.state[path])
    assert quick.state[CASES].sum() > 50 * (replicates or 1)
    assert quick.get_performance_stats()["program"] == "fused cpu"


def test_counts_have_a_gradient() -> None:
    runner = run_of(flu(program=fused, gradient=differentiator), replicates=4)
    rate = torch.tensor([1.0, 0.8], requires_grad=True)
    mortality = torch.tensor(0.2, requires_grad=True)
    runner.set_parameters({RATE: rate, MORTALITY: mortality})
    runner.step(DAYS)
    (runner.state[CASES].sum() + runner.state[DEATHS].sum()).backward()
    assert (rate.grad > 0).all()
    assert mortality.grad > 0
    stats = runner.get_performance_stats()
    assert stats["gradient_estimator"] == "message_passing"
    assert stats["gradient_loops_back"] < 0.05


def missed(cases: torch.Tensor, deaths: torch.Tensor) -> torch.Tensor:
    """The squared distance of one run: not linear in its counts."""
    return ((cases - 20) ** 2).mean() + deaths.sum()


def losses(rate: float, seeds: int) -> np.ndarray:
    runner = run_of(flu(program=fused), replicates=seeds)
    runner.set_parameters({RATE: torch.tensor([rate, 0.8])})
    runner.step(DAYS)
    pairs = zip(runner.state[CASES].double(), runner.state[DEATHS].double(), strict=True)
    return np.array([float(missed(*pair)) for pair in pairs])


@pytest.mark.long
def test_any_loss_of_a_run_has_the_derivative_of_its_expectation() -> None:
    runner = run_of(flu(program=fused, gradient=differentiator), replicates=60)
    rate = torch.tensor([1.0, 0.8], requires_grad=True)
    runner.set_parameters({RATE: rate})
    runner.step(12)
    runner.step(DAYS - 12)
    loss = expected_loss(runner, missed, flips=20)
    assert loss.item() == pytest.approx(losses(1.0, 60).mean())
    (3 * loss).backward()
    differences = (losses(1.1, 600) - losses(0.9, 600)) / 0.2
    error = differences.std() / np.sqrt(600)
    assert rate.grad[0] / 3 == pytest.approx(differences.mean(), abs=4 * error + 0.2 * error)


def test_a_loss_needs_steps_and_a_model_that_can() -> None:
    runner = run_of(flu(program=fused, gradient=differentiator))
    with pytest.raises(SettingError, match="call step"):
        expected_loss(runner, missed)
    with pytest.raises(SettingError, match="gradient=differentiator"):
        expected_loss(run_of(flu()), missed)


def test_a_start_holds_nothing_that_a_later_step_changes() -> None:
    runner = run_of(flu(program=fused))
    runner.set_value(CONTACT, torch.tensor([1.0, 0.5]))
    start = spread_start(runner)
    names = ("group", "compartment", "infected_time", "next_time", "contact")
    before = {name: getattr(start, name).copy() for name in names}
    runner.step(5)
    runner.set_value(CONTACT, torch.zeros(2))
    for name in names:
        assert np.array_equal(getattr(start, name), before[name])
    assert spread_start(runner).first_step == 5


@pytest.mark.long
def test_calibration_finds_planted_parameters_from_python() -> None:
    planted = run_of(flu(program=fused), replicates=40, seed=1_000)
    planted.set_parameters({RATE: torch.tensor([1.3, 0.6]), MORTALITY: torch.tensor(0.4)})
    planted.step(DAYS)
    observed = Observed(planted.state[CASES].mean(0).numpy(), planted.state[DEATHS].mean(0).numpy())
    runner = run_of(flu(program=fused, gradient=differentiator))
    compartment = runner.state[COMPARTMENT].clone()
    found = calibrate(runner, observed, CalibrationSettings(iterations=60, observed_runs=40))
    for interval, truth in zip(
        (*found.rate_interval, found.mortality_interval), (1.3, 0.6, 0.4), strict=True
    ):
        assert interval[0] < truth < interval[1]
    assert torch.equal(runner.state[COMPARTMENT], compartment)
    assert runner.state.step == 0
    runner.set_parameters(found.parameters)
    assert dict(runner.named_parameters())[RATE].flatten().tolist() == pytest.approx(
        found.rate, rel=1e-6
    )


def test_calibration_wants_one_value_of_each_parameter() -> None:
    runner = run_of(flu(program=fused), replicates=2)
    runner.set_parameters({MORTALITY: torch.tensor([0.1, 0.2])})
    with pytest.raises(SettingError, match="one for each replicate"):
        calibrate(runner, Observed(np.ones(5)))
