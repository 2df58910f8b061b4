"""Distributions: against closed forms, against torch's own, by counting, and by differences."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.errors import TargetError
from hotloop.learn.policies.distributions import (
    ActionSpec,
    Categorical,
    Gaussian,
    MultiCategorical,
    distribution_for,
)
from support.policies import ACTIONS


def random_outputs(distribution, rows, dtype=np.float32):
    return np.random.default_rng(1).normal(size=(rows, distribution.size)).astype(dtype)


def torch_distributions(distribution, outputs):
    match distribution:
        case Categorical():
            return [torch.distributions.Categorical(logits=outputs)]
        case MultiCategorical():
            parts = outputs.split([c.size for c in distribution.choices], 1)
            return [torch.distributions.Categorical(logits=part) for part in parts]
        case Gaussian():
            mean, log_std = outputs.chunk(2, 1)
            return [torch.distributions.Normal(mean, log_std.exp())]


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_log_probabilities_and_entropy(space):
    """What `sample` says of its actions, what `log_prob` says, and what torch says, agree."""
    spec = ActionSpec.of(space)
    distribution = spec.distribution
    outputs = random_outputs(distribution, 50)
    action, log_prob = distribution.sample(outputs, np.random.default_rng(2))
    assert log_prob.dtype == np.float32
    torch_outputs, torch_action = torch.from_numpy(outputs), torch.from_numpy(action)
    np.testing.assert_allclose(
        log_prob, distribution.log_prob(torch_outputs, torch_action), rtol=1e-4, atol=1e-5
    )
    oracle = torch_distributions(distribution, torch_outputs)
    if isinstance(distribution, Gaussian):
        expected, entropy = oracle[0].log_prob(torch_action).sum(1), oracle[0].entropy().sum(1)
    else:
        columns = torch_action.reshape(50, -1) - torch.tensor(getattr(space, "start", 0))
        expected = sum(o.log_prob(columns[:, i]) for i, o in enumerate(oracle))
        entropy = sum(o.entropy() for o in oracle)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distribution.entropy(torch_outputs), entropy, rtol=1e-5, atol=1e-6)
    at = distribution.evaluated(torch_outputs, torch_action)
    apart = distribution.log_prob(torch_outputs, torch_action), distribution.entropy(torch_outputs)
    torch.testing.assert_close((at.log_prob, at.entropy), apart)
    assert all(space.contains(a.astype(space.dtype)) for a in spec.for_env(action))
    assert distribution.mode(outputs).shape == action.shape


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_gradients_are_those_of_differences(space):
    distribution = distribution_for(space)
    outputs = random_outputs(distribution, 3, np.float64)
    action = torch.from_numpy(distribution.sample(outputs, np.random.default_rng(2))[0])
    for function in (lambda o: distribution.log_prob(o, action), distribution.entropy):
        assert torch.autograd.gradcheck(function, torch.tensor(outputs, requires_grad=True))


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("by_entropy", [0.0, -0.3])
def test_gradients_that_are_written_out_are_those_that_torch_derives(space, by_entropy):
    distribution = distribution_for(space)
    outputs = random_outputs(distribution, 20, np.float64)
    action = torch.from_numpy(distribution.sample(outputs, np.random.default_rng(2))[0])
    by_log_prob = torch.from_numpy(np.random.default_rng(3).standard_normal(20))
    leaf = torch.tensor(outputs, requires_grad=True)
    total = (by_log_prob * distribution.log_prob(leaf, action)).sum()
    (total + by_entropy * distribution.entropy(leaf).sum()).backward()
    found = distribution.evaluated(leaf.detach(), action).gradient(by_log_prob, by_entropy)
    torch.testing.assert_close(found, leaf.grad)


def test_numbers_worked_by_hand():
    """Odds 1 : 2 : 1, that is probabilities 1/4, 1/2, 1/4; and a normal at its mean, σ = 2."""
    logits = torch.tensor([[0.0, math.log(2), 0.0]])
    for action, probability in ((4, 0.25), (5, 0.5), (6, 0.25)):
        log_prob = Categorical(3, start=4).log_prob(logits, torch.tensor([action]))
        assert log_prob.item() == pytest.approx(math.log(probability), abs=1e-6)
    assert Categorical(3, start=4).mode(logits.numpy()).tolist() == [5]
    # H = 2 * 1/4 * log 4 + 1/2 * log 2 = 1.5 log 2
    assert Categorical(3).entropy(logits).item() == pytest.approx(1.5 * math.log(2), abs=1e-6)
    outputs = torch.tensor([[3.0, math.log(2)]])
    at_mean = Gaussian(1).log_prob(outputs, torch.tensor([[3.0]]))
    assert at_mean.item() == pytest.approx(-math.log(2 * math.sqrt(2 * math.pi)), abs=1e-6)
    aside = Gaussian(1).log_prob(outputs, torch.tensor([[7.0]]))  # two deviations: −2²/2
    assert (aside - at_mean).item() == pytest.approx(-2.0, abs=1e-6)


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32)).repeat(20_000, 0)
    action, _ = Categorical(3).sample(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(action) / 20_000, [0.5, 0.3, 0.2], atol=0.012)
    outputs = np.array([[1.0, np.log(2.0)]], np.float32).repeat(20_000, 0)
    drawn, _ = Gaussian(1).sample(outputs, np.random.default_rng(0))
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [1, 2], atol=0.05)
    pair = MultiCategorical((Categorical(2), Categorical(2)))
    odds = np.log(np.array([[0.9, 0.1, 0.5, 0.5]], np.float32)).repeat(20_000, 0)
    both, _ = pair.sample(odds, np.random.default_rng(0))
    counts = np.bincount(both @ [2, 1], minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.45, 0.45, 0.05, 0.05], atol=0.012)


class Extremes:
    """In place of a generator: the smallest and the largest uniform numbers that one gives."""

    def random(self, size, dtype):
        numbers = np.zeros(size, dtype)
        numbers[size // 2 :] = 1 - 2.0**-24
        return numbers


def test_an_impossible_choice_is_never_taken():
    """Not even at the ends of the uniform numbers, whatever the logits round to."""
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3, size=(4000, 5)).astype(np.float32)
    impossible = rng.random(logits.shape) < 0.5
    impossible[np.arange(4000), rng.integers(0, 5, 4000)] = False
    for low in (-np.inf, -1e30):
        outputs = np.where(impossible, np.float32(low), logits)
        for draws in (np.random.default_rng(1), Extremes()):
            action, log_prob = Categorical(5).sample(outputs, draws)
            assert not impossible[np.arange(4000), action].any()
            assert np.isfinite(log_prob).all()


def test_actions_for_the_env_are_in_its_bounds_and_of_its_type():
    spec = ActionSpec.of(spaces.Box(-0.5, 0.5, (2,), np.float64))
    assert spec.dtype == np.float64
    assert not spec.draws_for_env
    given = spec.for_env(np.array([[-3.0, 0.25]], np.float32))
    np.testing.assert_array_equal(given, [[-0.5, 0.25]])
    assert given.dtype == np.float64
    small = ActionSpec.of(spaces.MultiDiscrete([2, 3], dtype=np.int32))
    assert small.for_env(np.array([[1, 2]])).dtype == np.int32
    assert ActionSpec.of(spaces.Discrete(2)).draws_for_env


def test_the_module_needs_no_torch():
    code = "import hotloop.learn.policies.distributions, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_messages():
    with pytest.raises(TargetError, match=r"actions: expected Discrete, .* got Dict"):
        distribution_for(spaces.Dict(a=spaces.Discrete(2)))
    with pytest.raises(TargetError, match=r"actions: .* got Box"):
        distribution_for(spaces.Box(0, 9, (2,), np.int64))
