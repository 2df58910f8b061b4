"""Gradients of the covid model as its runner gives them; what they mean is in tests/sim."""

import pytest
import torch

from hotloop.errors import SettingError
from hotloop.models.epidemic import covid
from hotloop.sim import Executor, LoadPopulation
from models.test_covid import R2, M, small

INFECTED, DEATHS = "environment/daily_infected", "environment/daily_deaths"


def run_of(steps=21, rate=None, mortality=None, data=None, **kwargs):
    model = covid.model(covid.CovidSettings(num_steps=steps, willingness=0.5))
    loaded = LoadPopulation(data or small())
    runner = Executor(model=model, pop_loader=loaded, device="cpu", **kwargs).runner
    runner.init()
    rate = torch.full((3, 1), 4.75, requires_grad=True) if rate is None else rate
    mortality = torch.tensor([0.12], requires_grad=True) if mortality is None else mortality
    runner.set_parameters({R2: rate, M: mortality})
    return runner, rate, mortality


def gradients(runner, rate, mortality):
    (runner.state[INFECTED].sum() + 3 * runner.state[DEATHS].sum()).backward()
    return rate.grad.clone(), mortality.grad.clone()


def test_single_steps_have_the_gradient_of_all_in_one():
    at_once, by_one = run_of(), run_of()
    at_once[0].step(21)
    for _ in range(21):
        by_one[0].step(1)
    for one, other in zip(gradients(*at_once), gradients(*by_one), strict=True):
        assert torch.equal(one, other)
    assert (at_once[1].grad[:2] > 0).all()
    assert at_once[2].grad > 0


def test_an_ensemble_has_the_sum_of_the_gradients_of_its_runs():
    ensemble = run_of(replicates=3, seed=4)
    ensemble[0].step(21)
    parts = []
    for seed in (4, 5, 6):
        single = run_of(seed=seed)
        single[0].step(21)
        parts.append(gradients(*single))
    for found, *singles in zip(gradients(*ensemble), *parts, strict=True):
        torch.testing.assert_close(found, sum(singles))


def test_a_rate_for_each_replicate():
    rates = torch.tensor([[4.75, 4.75, 4.75], [3.0, 4.0, 5.0]], requires_grad=True)
    both = run_of(replicates=2, seed=1, rate=rates)
    both[0].step(21)
    found, _ = gradients(*both)
    for run, seed in enumerate((1, 2)):
        single = run_of(seed=seed, rate=rates.detach()[run].clone().requires_grad_())
        single[0].step(21)
        torch.testing.assert_close(found[run], gradients(*single)[0])


def test_new_parameters_begin_a_window_of_their_own():
    runner, first, _ = run_of()
    runner.step(10)
    before = runner.state[INFECTED][:10].sum()
    later = torch.full((3, 1), 4.0, requires_grad=True)
    runner.set_parameters({R2: later})
    runner.step(11)
    runner.state[INFECTED].sum().backward()
    assert later.grad[0] == 0  # the first week was over
    assert later.grad[1] > 0
    before.backward()
    assert first.grad[0] > 0


def test_isolation_lowers_the_gradient():
    free, isolated = run_of(), run_of()
    isolated[0].state["environment/isolating"].fill_(1.0)
    for run in (free, isolated):
        run[0].step(21)
    assert gradients(*isolated)[0].sum() < gradients(*free)[0].sum()


CONTACT, ISOLATING = "environment/contact_factor", "environment/isolating"


def closed_from(runner, day, contact, isolating):
    """Three weeks of which the controls hold from a day on; set by in-place writes before."""
    runner.step(day)
    runner.set_value(CONTACT, contact)
    runner.set_value(ISOLATING, isolating)
    runner.step(21 - day)


def test_controls_may_change_between_steps_that_belong_to_one_gradient():
    runner, rate, mortality = run_of(gradient="expected")
    runner.step(7)
    runner.state[ISOLATING].fill_(1.0)
    runner.step(14)
    changed = gradients(runner, rate, mortality)
    found = {}
    for isolating in (0.0, 1.0):
        run = run_of(gradient="expected")
        run[0].state[ISOLATING].fill_(isolating)
        run[0].step(21)
        found[isolating] = gradients(*run)
    # The first week's infections go on in weeks with fewer contacts.
    assert found[1.0][0].sum() < changed[0].sum() < found[0.0][0].sum()


def test_controls_that_require_a_gradient_have_one_for_their_steps():
    contact = torch.ones(6, dtype=torch.float64, requires_grad=True)
    isolating = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    runner, rate, _ = run_of(gradient="expected")
    closed_from(runner, 7, contact, isolating)
    runner.state[INFECTED].sum().backward()
    assert (contact.grad > 0).all()
    assert isolating.grad < 0
    # A rate multiplies what the contacts of all groups multiply.
    weeks = rate.grad[:, 0].double() * rate.detach()[:, 0]
    torch.testing.assert_close(weeks[1:].sum(), contact.grad.sum(), rtol=1e-3, atol=1e-3)


def test_a_control_that_is_made_to_require_a_gradient_in_place_has_one():
    runner, *_ = run_of(gradient="expected", rate=torch.full((3, 1), 4.75))
    contact = runner.state[CONTACT].requires_grad_()
    runner.step(21)
    runner.state[INFECTED].sum().backward()
    assert (contact.grad > 0).all()


def test_an_optimizer_finds_the_control_that_a_scenario_needs():
    isolating = torch.tensor(0.0, requires_grad=True)
    optimizer = torch.optim.SGD([isolating], lr=0.01)
    for _ in range(3):
        runner, *_ = run_of(gradient="expected", rate=torch.full((3, 1), 4.75))
        runner.set_value(ISOLATING, isolating.clamp(0, 1))
        runner.step(21)
        optimizer.zero_grad()
        runner.state[INFECTED].sum().backward()
        optimizer.step()
    assert isolating > 0


def test_a_value_that_is_no_control_has_no_gradient_and_says_so():
    runner, *_ = run_of()
    with pytest.raises(SettingError, match="contact_factor"):
        runner.set_value("agents/citizens/disease_stage", torch.zeros(1, requires_grad=True))


@pytest.mark.parametrize("name", ["expected", "straight_through", "relaxed", "flips", "score"])
def test_another_estimator_can_be_chosen(name):
    run = run_of(gradient=name, data=small(200), replicates=2)
    run[0].step(14)
    rate, mortality = gradients(*run)
    assert rate.isfinite().all()
    assert rate.abs().sum() > 0
    assert mortality.isfinite().all()


def test_an_unknown_estimator_and_none():
    with pytest.raises(SettingError, match="'flips'"):
        run_of(gradient="flip")
    runner, *_ = run_of(gradient=False)
    runner.step(21)
    assert not runner.state[INFECTED].requires_grad
