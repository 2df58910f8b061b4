"""Models that draw and decide have a gradient: that of the expectation."""

import numpy as np
import pytest
import torch

from hotloop.errors import SettingError, SubstepError
from hotloop.sim import Executor, Model, Series, Substep

N, STEPS = 30, 6
STAGE, CASES, TIES = "agents/people/stage", "environment/cases", "networks/ties"
WEALTH = "agents/people/wealth"
BETA = "initializer.transition_function.0.infect.learnable_args.beta"


class Infect(Substep):
    reads, writes = (STAGE, TIES), (STAGE, CASES)

    def transition(self, state, _action):
        sick = state[TIES].sum_from((state[STAGE] == 1).int())
        risk = 1 - (1 - self.parameter("beta")) ** sick
        newly = (state[STAGE] == 0) & self.draw(state, risk)
        return {STAGE: torch.where(newly, 1, state[STAGE]), CASES: newly.sum(-1)}

    def draw(self, state, risk):
        return state.uniform(0, "people") < risk


class Above(Infect):
    name = "infect"

    def draw(self, state, risk):
        return ~(state.uniform(0, "people").float() >= risk)


class Chance(Infect):
    name = "infect"

    def draw(self, state, risk):
        return risk > state.uniform(0, "people")


class Recover(Substep):
    reads, writes = (STAGE,), (STAGE,)

    def transition(self, state, _action):
        well = (state[STAGE] == 1) & (state.uniform(1, "people") < self.parameter("gamma"))
        return {STAGE: torch.where(well, 2, state[STAGE])}


class Earn(Substep):
    """Noise that a gradient goes through, and a decision that it does not."""

    reads, writes = (WEALTH,), (WEALTH,)

    def transition(self, state, _action):
        noise = self.parameter("scale") * (state.uniform(0, "people") - 0.3)
        lucky = state.uniform(1, "people") < self.parameter("luck")
        return {WEALTH: state[WEALTH] + noise + lucky}


def sir(infect=Infect) -> Model:
    return Model(
        "sir",
        substeps=(infect(beta=0.15), Recover(gamma=0.3)),
        populations={"people": {"stage": (np.arange(N) % 6 == 0).astype(np.uint8)}},
        sizes={"people": N},
        environment={"cases": Series()},
        networks={"ties": np.random.default_rng(0).integers(0, N, (3 * N, 2))},
        num_steps_per_episode=STEPS,
    )


def earners() -> Model:
    return Model(
        "earners",
        substeps=(Earn(scale=2.0, luck=0.4),),
        populations={"people": {"wealth": np.zeros(5, np.float32)}},
        sizes={"people": 5},
        num_steps_per_episode=STEPS,
    )


def run_of(model, seed, replicates=2_000, **kwargs):
    return Executor(model, device="cpu", replicates=replicates, seed=seed, **kwargs).init()


def totals(model, path, change) -> np.ndarray:
    """Of each run, at parameters moved by a little, on the same draws; () by path."""
    runner = run_of(model, 0)
    values = {name: value + change.get(name, 0.0) for name, value in runner.named_parameters()}
    runner.set_parameters(values)
    runner.step(STEPS)
    return runner.state[path].double().numpy().reshape(2_000, -1).sum(1)


def means_of_gradients(model, path, calls=(STEPS,), **kwargs) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for seed in range(0, 20_000, 2_000):
        runner = run_of(model, seed, **kwargs)
        for value in runner.parameters():
            value.requires_grad_()
        for steps in calls:
            runner.step(steps)
        runner.state[path].sum().div(2_000).backward()
        found.append([float(value.grad) for value in runner.parameters()])
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))


@pytest.mark.parametrize("infect", [Infect, Above, Chance])
def test_counts_have_the_derivative_of_their_expectation(infect) -> None:
    found, error = means_of_gradients(sir(infect), CASES)
    paths = [name for name, _ in run_of(sir(), 0, 2).named_parameters()]
    for n, path in enumerate(paths):
        pairs = [totals(sir(), CASES, {path: step}) for step in (0.02, -0.02)]
        difference = (pairs[0] - pairs[1]) / 0.04
        both = np.hypot(error[n], difference.std() / np.sqrt(2_000))
        assert abs(found[n] - difference.mean()) < 4 * both


def test_the_gradient_does_not_depend_on_how_steps_are_called() -> None:
    found = []
    for calls in ((STEPS,), (1,) * STEPS, (2, STEPS - 2)):
        runner = run_of(sir(), 3, 50)
        for value in runner.parameters():
            value.requires_grad_()
        for steps in calls:
            runner.step(steps)
        runner.state[CASES].sum().backward()
        found.append([value.grad for value in runner.parameters()])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_values_are_those_of_a_run_without_a_gradient() -> None:
    plain, runner = run_of(sir(), 5, 20), run_of(sir(), 5, 20)
    for value in runner.parameters():
        value.requires_grad_()
    for one in (plain, runner):
        one.step(STEPS)
    for path in (CASES, STAGE):
        assert torch.equal(plain.state[path], runner.state[path].detach())
    assert type(runner.state[CASES]) is torch.Tensor


def test_noise_that_torch_differentiates_keeps_its_gradient_beside_the_decisions() -> None:
    found, error = means_of_gradients(earners(), WEALTH, (2, STEPS - 2), gradient="score")
    # Of five agents in six steps: scale times the noise's mean, and luck itself.
    exact = np.array([0.2 * 5 * STEPS, 5.0 * STEPS])
    assert (np.abs(found - exact) < 4 * error + 1e-3).all()
    assert error[0] < 0.1


@pytest.mark.parametrize("replicates", [None, 1, 4])
def test_a_value_with_a_gradient_of_torchs_keeps_it_and_says_what_is_left_out(replicates) -> None:
    runner = run_of(earners(), 0, replicates)
    for value in runner.parameters():
        value.requires_grad_()
    with pytest.warns(UserWarning, match="gradient='score' adds"):
        runner.step(1)
    runner.step(1)
    runner.state[WEALTH].sum().backward()
    assert [value.grad is None for value in runner.parameters()] == [False, True]


@pytest.mark.parametrize("replicates", [None, 1])
def test_a_single_run_is_refused_as_it_needs_others(replicates) -> None:
    runner = run_of(sir(), 0, replicates)
    runner.set_parameters({BETA: torch.tensor(0.1, requires_grad=True)})
    before = runner.state[STAGE].clone()
    with pytest.raises(SettingError, match="replicates=2 or more"):
        runner.step(3)
    # No step was done: the run goes on without the gradient as if it had not been asked for.
    assert runner.state.step == 0
    assert torch.equal(runner.state[STAGE], before)
    runner.set_parameters({BETA: torch.tensor(0.1)})
    plain = run_of(sir(), 0, replicates)
    plain.set_parameters({BETA: torch.tensor(0.1)})
    for one in (runner, plain):
        one.step(STEPS)
    assert torch.equal(runner.state[CASES], plain.state[CASES])
    assert torch.equal(
        runner.state_trajectory[-1][-1][CASES], plain.state_trajectory[-1][-1][CASES]
    )
    free = run_of(sir(), 0, None, gradient=False)
    free.set_parameters({BETA: torch.tensor(0.1, requires_grad=True)})
    free.step(1)
    assert not free.state[CASES].requires_grad


def test_a_decision_by_what_was_computed_from_draws_is_refused() -> None:
    class Doubled(Infect):
        name = "infect"

        def draw(self, state, risk):
            return 2 * state.uniform(0, "people") < 2 * risk

    runner = run_of(sir(Doubled), 0, 4)
    runner.set_parameters({BETA: torch.tensor(0.1, requires_grad=True)})
    with pytest.raises(SubstepError, match="'infect' compares what it computed from draws"):
        runner.step(1)
    runner = run_of(sir(Doubled), 0, 4)
    runner.step(1)


def test_a_gradient_that_nothing_has_is_warned_of_once() -> None:
    class Rounded(Infect):
        name = "infect"

        def draw(self, state, risk):
            return state.uniform(0, "people") < risk.detach()

    runner = run_of(sir(Rounded), 0, 4)
    runner.set_parameters({BETA: torch.tensor(0.1, requires_grad=True)})
    with pytest.warns(UserWarning, match="no value of the state has one"):
        runner.step(1)
    runner.step(1)
