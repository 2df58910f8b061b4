"""Action masks: what is forbidden has probability 0 everywhere, and passes no gradient."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import TargetError
from hotloop.learn.policies.distributions import distribution_for
from hotloop.learn.policies.masks import split_space
from hotloop.learn.policies.policy import make_policy
from support.policies import IMAGE_FIRST, MIXED, VECTOR, masked, moved_policy, sampled

DISCRETE = spaces.Discrete(3, start=4)
MULTI, BINARY = spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)
CHOICES = [(DISCRETE, 3), (MULTI, 5), (BINARY, 4)]


def observation(policy_rows, allowed):
    rows = np.random.default_rng(3).normal(size=(policy_rows, 5)).astype(np.float32)
    return {
        "observation": rows,
        "action_mask": np.broadcast_to(allowed, (policy_rows, len(allowed))),
    }


def expected_entropy(outputs, sizes):
    """−Σ p log p over what is allowed, in double precision."""
    total = np.zeros(len(outputs))
    for part in np.split(outputs.astype(np.float64), np.cumsum(sizes)[:-1], 1):
        weights = np.exp(part - part.max(1, keepdims=True)) * (part > -1e29)
        p = weights / weights.sum(1, keepdims=True)
        total -= np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)
    return total


@pytest.mark.parametrize(("action_space", "options"), CHOICES, ids=str)
def test_masked_choices_are_impossible(action_space, options):
    policy = moved_policy(masked(VECTOR, options), action_space)
    obs = sampled(masked(VECTOR, options), 400)
    allowed = obs["action_mask"].astype(bool)
    sizes = [choice.size for choice in policy.distribution.choices]
    starts = [choice.start for choice in policy.distribution.choices]
    offsets = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    rows = np.arange(400)[:, None]
    for choice in np.split(allowed, offsets[1:], 1):
        choice |= ~choice.any(1, keepdims=True)  # what forbids everything allows everything
    obs["action_mask"] = allowed.astype(np.int8)
    action, extras = policy.actor(0)(obs)
    for taken in (action, policy.greedy(obs)):
        columns = taken.reshape(400, -1) - starts + offsets
        assert allowed[rows, columns].all()
    outputs, _ = policy(policy.tensors(obs))
    log_prob = policy.distribution.log_prob(outputs, torch.from_numpy(action))
    np.testing.assert_allclose(extras["log_prob"], log_prob.detach(), rtol=1e-4, atol=1e-5)
    assert torch.isfinite(log_prob).all()
    entropy = policy.distribution.entropy(outputs).detach().numpy()
    np.testing.assert_allclose(
        entropy, expected_entropy(policy.outputs(obs)[0], sizes), rtol=1e-4, atol=1e-5
    )


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), st.integers(0, 99))
def test_a_mask_is_the_distribution_of_what_is_left(allowed, seed):
    """Masked, a choice has the probabilities of a choice among the allowed options alone."""
    mask = np.array(allowed)
    logits = np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)
    _, action_mask = split_space(masked(VECTOR, 4), distribution_for(spaces.Discrete(4)))
    outputs = torch.from_numpy(action_mask.apply(logits, mask[None]))
    every = torch.arange(4)
    log_probs = distribution_for(spaces.Discrete(4)).log_prob(outputs.expand(4, -1), every)
    left = torch.from_numpy(logits[0, mask]).log_softmax(0)
    np.testing.assert_allclose(log_probs[mask], left, rtol=1e-5, atol=1e-6)
    assert (log_probs[~mask].exp() == 0).all()


def test_no_gradient_passes_through_what_is_forbidden():
    policy = moved_policy(masked(VECTOR, 3), spaces.Discrete(3))
    obs = observation(6, [1, 0, 1])
    outputs, _ = policy(policy.tensors(obs))
    action = torch.tensor([0, 2, 0, 2, 0, 2])
    loss = policy.distribution.log_prob(outputs, action).sum()
    (loss + policy.distribution.entropy(outputs).sum()).backward()
    assert torch.isfinite(policy.grad).all()
    weight, bias = policy.network.weights[-1].grad[0], policy.network.biases[-1].grad[0, 0]
    assert not weight[:, 1].any()
    assert bias[1] == 0
    assert bias[0] != 0


def test_a_single_option_is_certain():
    policy = moved_policy(masked(VECTOR, 3), spaces.Discrete(3))
    obs = observation(50, [0, 0, 1])
    action, extras = policy.actor(0)(obs)
    assert (action == 2).all()
    assert not extras["log_prob"].any()
    outputs, _ = policy(policy.tensors(obs))
    assert not policy.distribution.entropy(outputs).any()


def test_the_rest_of_the_dict_is_the_observation():
    """One entry left is the observation itself; the mask is no part of what the network sees."""
    alone = make_policy(VECTOR, spaces.Discrete(3), seed=4)
    policy = make_policy(masked(VECTOR, 3), spaces.Discrete(3), seed=4)
    assert torch.equal(alone.flat, policy.flat)
    obs = observation(5, [1, 1, 1])
    for got, wanted in zip(policy.outputs(obs), alone.outputs(obs["observation"]), strict=True):
        np.testing.assert_array_equal(got, wanted)
    several = spaces.Dict(**MIXED.spaces, action_mask=spaces.Box(0, 1, (3,), np.int8))
    rest, mask = split_space(several, distribution_for(spaces.Discrete(3)))
    assert rest == MIXED
    batch = sampled(several, 2)
    left, allowed = mask.split(batch)
    assert set(left) == set(MIXED.spaces)
    np.testing.assert_array_equal(allowed, batch["action_mask"] == 1)


def test_masks_of_images_and_of_time_and_envs():
    policy = moved_policy(masked(IMAGE_FIRST, 4), spaces.MultiBinary(2), by=0.01)
    obs = sampled(masked(IMAGE_FIRST, 4), 6)
    obs["action_mask"][:] = [1, 0, 1, 1]
    assert (policy.greedy(obs)[:, 0] == 0).all()
    obs = {key: part.reshape(2, 3, *part.shape[1:]) for key, part in obs.items()}
    (image,), allowed = policy.tensors(obs)
    assert image.dtype == torch.uint8
    assert image.shape == (2, 3, *IMAGE_FIRST.shape)
    assert allowed.shape == (2, 3, 4)
    assert allowed.dtype == torch.bool


def test_masks_stored_as_floats_do_as_well():
    policy = moved_policy(masked(VECTOR, 3), spaces.Discrete(3))
    obs = sampled(masked(VECTOR, 3), 20)
    floats = {**obs, "action_mask": obs["action_mask"].astype(np.float32)}
    np.testing.assert_array_equal(policy.outputs(obs)[0], policy.outputs(floats)[0])


@pytest.mark.parametrize(
    ("action_space", "forbidding", "choice"),
    [(DISCRETE, [0, 0, 0], "option,"), (MULTI, [1, 0, 0, 0, 0], "option of choice 1,")],
)
def test_a_row_that_allows_nothing_is_named(action_space, forbidding, choice):
    policy = make_policy(masked(VECTOR, len(forbidding)), action_space)
    obs = observation(4, np.ones(len(forbidding), np.int8))
    obs["action_mask"] = obs["action_mask"].copy()
    obs["action_mask"][2] = forbidding
    for act in (policy.actor(0), policy.greedy):
        with pytest.raises(TargetError, match=f"env in row 2 of this batch: .* {choice} got none"):
            act(obs)
    assert np.isfinite(policy.outputs(obs)[1]).all()  # its value may be asked for


def test_masks_that_do_not_fit_are_refused():
    spelled = spaces.Dict(observation=VECTOR, action_mask=spaces.Text(3))
    with pytest.raises(TargetError, match=r"action_mask: expected 5 entries, .* got MultiBinary"):
        make_policy(masked(VECTOR, 3), MULTI)
    with pytest.raises(TargetError, match="got one for a Box of actions"):
        make_policy(masked(VECTOR, 2), spaces.Box(-1, 1, (2,)))
    with pytest.raises(TargetError, match=r"action_mask: expected 3 entries, .* got Text"):
        make_policy(spelled, spaces.Discrete(3))
    with pytest.raises(TargetError, match="expected an entry beside 'action_mask'"):
        make_policy(spaces.Dict(action_mask=spaces.MultiBinary(3)), spaces.Discrete(3))
