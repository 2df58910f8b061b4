"""The covid model on a card gives what it gives on the CPU; here on a fake card in CPU memory."""

import numpy as np
import pytest
import torch

from hotloop.models import boids
from hotloop.models.epidemic import covid
from hotloop.models.epidemic.calibration import CalibrationSettings, Observed, calibrate
from hotloop.models.epidemic.covid.env import covid_vector_env
from hotloop.models.epidemic.gradient.differentiator import expected_loss
from hotloop.populations import load
from hotloop.sim import Executor, LoadPopulation, Record
from hotloop.sim.ensemble import run_ensemble
from support.fake_card import fake_card
from support.populations import with_start

RATE = "initializer.transition_function.0.new_transmission.learnable_args.R2"
INFECTED, STAGE = "environment/daily_infected", "agents/citizens/disease_stage"


def town():
    data = load(600, both_ways=True)
    stages = np.random.default_rng(0).choice(3, data.size, p=(0.94, 0.03, 0.03))
    return with_start(data, stages.astype(np.uint8))


def both(monkeypatch, way) -> tuple[np.ndarray, np.ndarray]:
    """What `way(device)` gives on the CPU and on the card."""
    here = np.asarray(way("cpu"))
    with fake_card(monkeypatch):
        there = np.asarray(way("cuda"))
    return here, there


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("agents", [False, True])
@pytest.mark.parametrize("replicates", [None, 3])
def test_a_run_and_its_record(monkeypatch, capture, agents, replicates) -> None:
    def way(device):
        on_card = device == "cuda"
        runner = Executor(
            covid.model(), town(), device=device, capture=capture and on_card,
            replicates=replicates, record=Record(agents=agents),
        ).execute()  # fmt: skip
        if on_card:
            assert str(runner.device) == "cuda:0"
            assert runner.state[INFECTED].device == runner.device
            assert len(runner.state["networks/contact"]._tensors) == 1
        kept = [runner.state[INFECTED]]
        if agents:
            kept.append(runner.state_trajectory[11][-1][STAGE])
        return np.concatenate([value.cpu().numpy().ravel() for value in kept])

    here, there = both(monkeypatch, way)
    np.testing.assert_array_equal(here, there)
    assert here.sum() > 50


@pytest.mark.parametrize("estimator", ["message_passing", "expected", "straight_through", "flips"])
@pytest.mark.parametrize("replicates", [None, 2])
def test_gradients(monkeypatch, estimator, replicates) -> None:
    def way(device):
        runner = Executor(
            covid.model(), town(), device=device, gradient=estimator, replicates=replicates
        ).init()
        found = []
        for loss in (lambda: runner.state[INFECTED].sum(), lambda: expected_loss(runner, squared)):
            runner.reset()
            rate = torch.full((3, 1), 4.75, device=runner.device, requires_grad=True)
            runner.set_parameters({RATE: rate})
            runner.step(21)
            loss().backward()
            found.append(rate.grad.cpu().numpy())
        return found

    def squared(infected, _deaths):
        return ((infected - 3) ** 2).sum()

    here, there = both(monkeypatch, way)
    np.testing.assert_array_equal(here, there)
    assert (here != 0).any()


def test_gradients_by_controls(monkeypatch) -> None:
    def way(device):
        settings = covid.CovidSettings(willingness=0.5)
        runner = Executor(covid.model(settings), town(), device=device).init()
        share = torch.tensor(0.3, device=runner.device, requires_grad=True)
        runner.step(2)
        runner.set_value("environment/isolating", share)
        runner.step(8)
        runner.state[INFECTED].sum().backward()
        return share.grad.cpu().numpy()

    here, there = both(monkeypatch, way)
    assert here == there != 0


@pytest.mark.long
def test_envs_in_batches(monkeypatch) -> None:
    def way(device):
        envs = covid_vector_env(300, 4, device=device, capture=device == "cuda")
        seen = [envs.reset(seed=1)[0]]
        for number in range(14):  # 12 are an episode
            obs, reward, *_ = envs.step(np.tile((number % 2, number % 3), (4, 1)))
            seen += [obs, reward]
        envs.reset(options={"reset_mask": np.array([True, False, False, True])})
        seen.append(envs.step(np.tile((1, 1), (4, 1)))[0])
        envs.close()
        return np.concatenate([values.ravel() for values in seen])

    np.testing.assert_array_equal(*both(monkeypatch, way))


def test_ensembles(monkeypatch) -> None:
    def way(device):
        capture = device == "cuda"
        runs = run_ensemble(
            covid.model(), town(), replicates=10, batch=4, device=device, capture=capture
        )
        return runs["daily_infected"]

    np.testing.assert_array_equal(*both(monkeypatch, way))


def test_calibration(monkeypatch) -> None:
    def way(device):
        runner = Executor(covid.model(), town(), device=device).init()
        settings = CalibrationSettings(
            iterations=2, replicates=3, gradient_replicates=2, interval_replicates=5
        )
        found = calibrate(runner, Observed(np.arange(14.0)), settings)
        runner.set_parameters(found.parameters)
        runner.step(3)
        return np.append(found.rate, runner.state[INFECTED].cpu().numpy())

    np.testing.assert_array_equal(*both(monkeypatch, way))


def test_birds(monkeypatch) -> None:
    def way(device):
        model = boids.model(80, boids.BoidsSettings(60.0, 60.0), num_steps=3)
        return Executor(model, device=device).execute().state["agents/birds/x"].cpu().numpy()

    np.testing.assert_array_equal(*both(monkeypatch, way))


def test_the_fake_card_refuses_what_a_card_refuses(monkeypatch) -> None:
    with fake_card(monkeypatch):
        there = torch.zeros(3, device="cuda")
        assert there.device == torch.device("cuda:0")
        assert (there + 1).device == there.device
        assert there.cpu().device == torch.device("cpu")
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.zeros(3)
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        loader = LoadPopulation(town())
        assert Executor(covid.model(), loader).init().device == there.device
