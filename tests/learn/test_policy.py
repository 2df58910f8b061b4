"""The numpy forward against torch's, the distributions against torch's own, and refusals."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.errors import TargetError
from hotloop.learn.policy import ActorCritic, Categorical, Gaussian, MultiCategorical

OBS = spaces.Box(-1, 1, (5,), np.float32)
ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
    spaces.Box(-0.5, 0.5, (2,), np.float32),
]


def make_policy(action_space, obs_space=OBS, seed=0):
    policy = ActorCritic(obs_space, action_space, hidden_sizes=[16, 8], seed=seed)
    with torch.no_grad():  # away from the start, where all actions are about equally likely
        policy.flat += 0.3 * torch.randn(policy.flat.shape, generator=torch.manual_seed(seed))
    return policy


def torch_distribution(distribution, outputs):
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
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_fast_equals_plain(space, shape):
    """The forward in numpy is the forward in torch, and both are two separate perceptrons."""
    policy = make_policy(space, spaces.Box(-1, 1, shape, np.float64))
    obs = np.random.default_rng(1).normal(size=(7, *shape))
    outputs, value = policy.outputs(obs)
    flat_obs = torch.from_numpy(obs.reshape(7, -1).astype(np.float32))
    for got, expected in zip((outputs, value), policy(flat_obs), strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    for net, expected in enumerate((outputs, value)):
        hidden = flat_obs
        for weight, bias in zip(policy.weights[:-1], policy.biases[:-1], strict=True):
            hidden = torch.tanh(hidden @ weight[net] + bias[net])
        alone = (hidden @ policy.weights[-1][net] + policy.biases[-1][net]).detach().numpy()
        width = 2 if isinstance(space, spaces.Box) else outputs.shape[1]
        wanted = expected[:, :width] if net == 0 else expected
        np.testing.assert_allclose(
            alone[:, :width] if net == 0 else alone[:, 0], wanted, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_log_probabilities_and_entropy(space):
    """What `sample` says of its actions, what `log_prob` says, and what torch says, agree."""
    policy = make_policy(space)
    obs = np.random.default_rng(1).normal(size=(50, 5)).astype(np.float32)
    outputs, _ = policy.outputs(obs)
    distribution = policy.distribution
    action, log_prob = distribution.sample(outputs, np.random.default_rng(2))
    assert log_prob.dtype == np.float32
    torch_outputs, torch_action = torch.from_numpy(outputs), torch.from_numpy(action)
    np.testing.assert_allclose(
        log_prob, distribution.log_prob(torch_outputs, torch_action), rtol=1e-4, atol=1e-5
    )
    oracle = torch_distribution(distribution, torch_outputs)
    if isinstance(distribution, Gaussian):
        expected, entropy = oracle[0].log_prob(torch_action).sum(1), oracle[0].entropy().sum(1)
    else:
        columns = torch_action.reshape(50, -1) - torch.tensor(getattr(space, "start", 0))
        expected = sum(o.log_prob(columns[:, i]) for i, o in enumerate(oracle))
        entropy = sum(o.entropy() for o in oracle)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distribution.entropy(torch_outputs), entropy, rtol=1e-5, atol=1e-6)
    assert all(space.contains(a.astype(space.dtype)) for a in policy.for_env(action))
    assert policy.greedy(obs).shape == action.shape


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32)).repeat(20_000, 0)
    action, _ = Categorical(3).sample(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(action) / 20_000, [0.5, 0.3, 0.2], atol=0.012)
    outputs = np.array([[1.0, np.log(2.0)]], np.float32).repeat(20_000, 0)
    drawn, _ = Gaussian(1).sample(outputs, np.random.default_rng(0))
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [1, 2], atol=0.05)


def test_an_impossible_choice_is_never_taken():
    logits = np.array([[-np.inf, 0.0, -np.inf]], np.float32).repeat(1000, 0)
    action, log_prob = Categorical(3).sample(logits, np.random.default_rng(0))
    assert set(action) == {1}
    assert not log_prob.any()


def test_one_vector_holds_all_parameters():
    policy = make_policy(spaces.Box(-1, 1, (2,), np.float32))
    before = policy.outputs(np.ones((1, 5)))[0]
    outputs, value = policy(torch.ones(1, 5))
    (outputs.sum() + value.sum()).backward()
    assert policy.grad is policy.flat.grad
    leaves = [*policy.weights, *policy.biases, policy.log_std]
    gathered = torch.cat([leaf.grad.reshape(-1) for leaf in leaves])
    assert torch.equal(policy.grad, gathered)
    assert gathered.any()
    with torch.no_grad():
        policy.flat += 0.1
    assert not np.allclose(policy.outputs(np.ones((1, 5)))[0], before)
    assert [p is policy.flat for p in policy.parameters()] == [True]


def test_making_a_policy_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    ActorCritic(OBS, spaces.Discrete(2), hidden_sizes=[8], seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_messages():
    with pytest.raises(TargetError, match=r"observations: expected a Box of at most two"):
        make_policy(spaces.Discrete(2), spaces.Box(0, 255, (8, 8, 3), np.uint8))
    with pytest.raises(TargetError, match=r"actions: expected Discrete, .* got Dict"):
        make_policy(spaces.Dict(a=spaces.Discrete(2)))
    with pytest.raises(TargetError, match=r"actions: .* got Box"):
        make_policy(spaces.Box(0, 9, (2,), np.int64))
