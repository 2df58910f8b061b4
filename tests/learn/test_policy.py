"""Policies: NumPy against torch for every kind of space, moments, state, and refusals."""

import math
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.data.layout import Layout, tree_map
from hotloop.errors import DeviceError, SettingError, ShapeError, TargetError
from hotloop.learn.policies.policy import make_policy
from hotloop.loop.state import Snapshot
from support.policies import (
    ACTIONS,
    IMAGE_FIRST,
    IMAGE_LAST,
    MIXED,
    VECTOR,
    masked,
    moved_policy,
    sampled,
)

TREE = spaces.Dict(
    pair=spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3])]),
    flags=spaces.MultiBinary(2),
    matrix=spaces.Box(-1, 1, (2, 3), np.float64),
)
OBSERVATIONS = {
    "vector": VECTOR,
    "matrix": spaces.Box(-1, 1, (2, 3), np.float64),
    "four dimensions": spaces.Box(-1, 1, (1, 2, 1, 2), np.float32),
    "number": spaces.Box(-1, 1, (), np.float32),
    "discrete": spaces.Discrete(4),
    "tree": TREE,
    "masked": masked(TREE, 3),
    "image": IMAGE_FIRST,
    "mixed": MIXED,
    "masked image": masked(IMAGE_LAST, 3),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_fast_equals_plain(name):
    """What acts and what learns give the same, for envs and for fragments of them."""
    space = OBSERVATIONS[name]
    policy = moved_policy(space, spaces.Discrete(3), by=0.02)
    obs = sampled(space, 6)
    outputs, value = policy.outputs(obs)
    assert outputs.dtype == value.dtype == np.float32
    assert outputs.shape == (6, 3)
    assert value.shape == (6,)
    fragment = tree_map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), obs)
    for given in (
        policy.tensors(obs),
        tree_map(lambda leaf: leaf.flatten(0, 1), policy.tensors(fragment)),
    ):
        learned = policy(given)
        for got, expected in zip((outputs, value), learned, strict=True):
            np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert policy.flat.grad is policy.grad
    (learned[0].clamp(min=-1e3).sum() + learned[1].sum()).backward()
    assert policy.grad.any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_two_separate_perceptrons(space, activation):
    """Run as one, actor and critic are what each would be alone, wherever they are computed."""
    policy = moved_policy(
        spaces.Box(-1, 1, (2, 3), np.float64), space, hidden_size=16, activation=activation
    )
    activated = {"tanh": torch.tanh, "relu": torch.relu}[activation]
    obs = np.random.default_rng(1).normal(size=(7, 2, 3))
    flat = torch.from_numpy(obs.reshape(7, -1).astype(np.float32))
    network = policy.network
    for net, expected in enumerate(policy.outputs(obs)):
        hidden = flat
        for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
            hidden = activated(hidden @ weight[net] + bias[net])
        alone = (hidden @ network.weights[-1][net] + network.biases[-1][net]).detach().numpy()
        width = policy.distribution.size - policy.distribution.free
        got = expected[:, :width] if net == 0 else expected[:, None]
        np.testing.assert_allclose(alone[:, : got.shape[1]], got, rtol=1e-5, atol=1e-6)
    copied = pickle.loads(pickle.dumps(policy.network.acting))
    learned = (part.detach() for part in policy(policy.tensors(obs)))
    for *others, expected in zip(
        copied(obs), copied.on("cpu")(obs), learned, policy.outputs(obs), strict=True
    ):
        for other in others:
            np.testing.assert_allclose(other, expected, rtol=1e-5, atol=1e-6)
    if isinstance(space, spaces.Box):
        free = policy.outputs(obs)[0][:, 2:]
        np.testing.assert_array_equal(free, network.free.detach().expand(7, 2))


@pytest.mark.parametrize("name", ["tree", "mixed"])
def test_gradients_are_those_of_differences(name):
    """Along one random direction of all parameters."""
    policy = moved_policy(OBSERVATIONS[name], spaces.Box(-1, 1, (2,)), by=0.02)
    obs = policy.tensors(sampled(OBSERVATIONS[name], 4))
    action = torch.randn(4, 2, generator=torch.manual_seed(1))

    def loss():
        outputs, value = policy(obs)
        return policy.distribution.log_prob(outputs, action).mean() + value.square().mean()

    loss().backward()
    # Upwards along the gradient itself, where the change is far above the rounding of float32.
    direction = policy.grad / policy.grad.norm()
    step = 1e-3 / max(1.0, policy.grad.norm().item())
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            policy.flat += sign * step * direction
            ends.append(loss().item())
            policy.flat -= sign * step * direction
    slope = (ends[0] - ends[1]) / (2 * step)
    assert slope == pytest.approx(policy.grad.norm().item(), rel=0.05)


@pytest.mark.parametrize("name", ["vector", "image"])
def test_one_vector_holds_all_parameters(name):
    policy = moved_policy(OBSERVATIONS[name], spaces.Box(-1, 1, (2,), np.float32), by=0.01)
    obs = sampled(OBSERVATIONS[name], 2)
    before, grad = policy.outputs(obs)[0], policy.grad
    outputs, value = policy(policy.tensors(obs))
    (outputs.sum() + value.sum()).backward()
    assert policy.grad is policy.flat.grad is grad
    network = policy.network
    leaves = (
        [*network.weights, *network.biases, network.free]
        if name == "vector"
        else list(network.module.parameters())
    )
    gathered = torch.cat([leaf.grad.reshape(-1) for leaf in leaves])
    assert torch.equal(policy.grad, gathered)
    assert gathered.any()
    torch.optim.Adam([policy.flat], 0.05, fused=True).step()
    assert not np.allclose(policy.outputs(obs)[0], before)
    policy.grad.zero_()
    assert not any(leaf.grad.any() for leaf in leaves)


def test_types_that_are_stored():
    box = make_policy(VECTOR, spaces.Box(-1, 1, (2,), np.float64))
    assert (box.obs_dtype, box.action_dtype, box.draws_for_env) == (np.float32, np.float64, False)
    discrete = make_policy(IMAGE_FIRST, spaces.Discrete(2))
    assert (discrete.obs_dtype, discrete.action_dtype) == (None, np.int64)
    assert discrete.draws_for_env


def test_arrays_that_cannot_be_written_or_run_backwards_become_tensors():
    policy = make_policy(VECTOR, spaces.Discrete(2))
    obs = sampled(VECTOR, 3)
    expected = policy.tensors(obs[::-1].copy())
    assert torch.equal(policy.tensors(obs[::-1]), expected)
    obs.flags.writeable = False  # as of a fragment from Ray; torch would warn
    assert torch.equal(policy.tensors(obs), expected.flip(0))


# --- normalisation -------------------------------------------------------------------------


def test_moments_are_those_of_all_that_was_seen():
    policy = moved_policy(TREE, spaces.Discrete(2), normalise_observations=True)
    obs = sampled(TREE, 60)
    fresh = policy.tensors(obs)
    plain = make_policy(TREE, spaces.Discrete(2)).tensors(obs)
    assert torch.equal(fresh, plain)  # nothing seen: nothing changed
    for part in (slice(0, 7), slice(7, 7), slice(7, 40)):
        policy.update_moments(tree_map(lambda leaf, part=part: leaf[part], obs))
    last = tree_map(lambda leaf: leaf[40:].reshape(4, 5, *leaf.shape[1:]), obs)
    policy.update_moments(last)
    vectors = plain.numpy().astype(np.float64)
    state = policy.state_dict()
    assert state["count"] == 60
    np.testing.assert_allclose(state["mean"], vectors.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state["variance"], vectors.var(0), rtol=1e-9, atol=1e-12)
    normalised = policy.tensors(obs)
    np.testing.assert_allclose(normalised.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(0, correction=0), 1, atol=1e-4)
    learned = policy(normalised)
    for got, expected in zip(policy.outputs(obs), learned, strict=True):
        np.testing.assert_allclose(got, expected.detach(), rtol=1e-4, atol=1e-5)


def test_outliers_are_clipped_and_constants_stay_finite():
    policy = make_policy(
        spaces.Box(-1e9, 1e9, (2,)), spaces.Discrete(2), normalise_observations=True
    )
    policy.update_moments(np.stack((np.linspace(-1, 1, 9), np.full(9, 0.3)), 1).astype(np.float32))
    tensors = policy.tensors(np.array([[1e6, 0.3], [-1e6, 5.0], [0, 0.3]], np.float32))
    np.testing.assert_allclose(tensors, [[10, 0], [-10, 10], [0, 0]], atol=1e-5)


def test_masks_are_not_normalised():
    space = masked(VECTOR, 3)
    policy = moved_policy(space, spaces.Discrete(3), normalise_observations=True)
    obs = sampled(space, 20)
    policy.update_moments(obs)
    observation, allowed = policy.tensors(obs)
    np.testing.assert_array_equal(allowed, obs["action_mask"] == 1)
    np.testing.assert_allclose(observation.mean(0), 0, atol=1e-5)
    assert policy.state_dict()["mean"].shape == (5,)


# --- state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vector", "mixed"])
def test_state_can_be_saved_and_put_back(name):
    space = OBSERVATIONS[name]
    normalise = name == "vector"
    obs = sampled(space, 5)
    saved = moved_policy(space, spaces.Discrete(2), normalise_observations=normalise, by=0.02)
    if normalise:
        saved.update_moments(obs)
    other = make_policy(space, spaces.Discrete(2), normalise_observations=normalise, seed=9)
    actor, flat = other.actor(0), other.flat
    state = saved.state_dict()
    assert all(type(part) is np.ndarray for part in state.values())
    other.load_state_dict(state)
    assert other.flat is flat
    for got, expected in zip(other.outputs(obs), saved.outputs(obs), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(actor(obs)[1]["value"], saved.outputs(obs)[1])
    for part in state.values():
        part[...] = 0  # a copy: the policies keep theirs
    assert saved.flat.any()
    assert other.flat.any()


def test_a_snapshot_covers_parameters_and_moments():
    policy = moved_policy(VECTOR, spaces.Discrete(2), normalise_observations=True)
    obs = sampled(VECTOR, 5)
    actor = policy.actor(3)
    snapshot = Snapshot([policy, actor])
    outcomes = []
    for _ in range(2):
        policy.update_moments(obs)
        with torch.no_grad():
            policy.flat += 0.1
        action, extras = actor(obs)
        outcomes.append((action.tolist(), extras["value"].tolist(), policy.state_dict()["count"]))
        snapshot.restore()
    assert outcomes[0] == outcomes[1]
    assert policy.state_dict()["count"] == 0


def test_the_state_of_another_policy_is_refused_and_changes_nothing():
    policy = moved_policy(VECTOR, spaces.Discrete(2))
    before = policy.state_dict()["parameters"]
    other = make_policy(VECTOR, spaces.Discrete(2), hidden_size=8)
    with pytest.raises(ShapeError, match=r"state: parameters: expected shape \(\d+,\), got"):
        policy.load_state_dict(other.state_dict())
    with_moments = make_policy(VECTOR, spaces.Discrete(2), normalise_observations=True)
    with pytest.raises(ShapeError, match=r"state: expected \['parameters'\], got \['count'"):
        policy.load_state_dict(with_moments.state_dict())
    np.testing.assert_array_equal(policy.state_dict()["parameters"], before)


@pytest.mark.parametrize("observations", [VECTOR, IMAGE_FIRST], ids=["vector", "image"])
def test_continuous_actions_begin_with_the_standard_deviation_that_is_asked_for(observations):
    policy = make_policy(observations, spaces.Box(-1, 1, (2,)), initial_std=0.25, seed=1)
    obs = sampled(observations, 500)
    action, extras = policy.actor(0)(obs)
    means = policy.outputs(obs)[0][:, :2]
    drawn = (action - means).std()
    assert drawn == pytest.approx(0.25, rel=0.1)  # of 1,000 draws
    distance = (action - means) / 0.25
    expected = -(distance**2 / 2 + math.log(0.25 * math.sqrt(2 * math.pi))).sum(1)
    np.testing.assert_allclose(extras["log_prob"], expected, rtol=1e-4, atol=1e-4)
    usual = make_policy(observations, spaces.Box(-1, 1, (2,)), seed=1)
    np.testing.assert_array_equal(usual.greedy(obs), policy.greedy(obs))


def test_messages():
    with pytest.raises(TargetError, match=r"actions: expected Discrete, .* got Dict"):
        make_policy(VECTOR, spaces.Dict(a=spaces.Discrete(2)))
    with pytest.raises(TargetError, match=r"observations: expected a Box, .* got Text"):
        make_policy(spaces.Text(3), spaces.Discrete(2))
    with pytest.raises(SettingError, match="made with normalise_observations=True"):
        make_policy(VECTOR, spaces.Discrete(2)).update_moments(np.zeros((1, 5)))
    with pytest.raises(SettingError, match="hidden_size: expected a whole number of 1 or more"):
        make_policy(VECTOR, spaces.Discrete(2), hidden_size=0)
    with pytest.raises(SettingError, match="expected 'tanh' or 'relu', got 'rely'; did you mean"):
        make_policy(VECTOR, spaces.Discrete(2), activation="rely")
    with pytest.raises(SettingError, match="initial_std: expected a finite number above 0, got 0"):
        make_policy(VECTOR, spaces.Box(-1, 1, (2,)), initial_std=0)
    with pytest.raises(SettingError, match=r"expected none for actions that are choices, got 0\.5"):
        make_policy(VECTOR, spaces.Discrete(2), initial_std=0.5)
    with pytest.raises(DeviceError, match=r"device: .* got 'no such device'.*take 'cpu'"):
        make_policy(VECTOR, spaces.Discrete(2), device="no such device")


def test_layouts_of_any_batch_are_taken():
    """A batch of one and an empty batch."""
    for name, space in OBSERVATIONS.items():
        policy = make_policy(space, spaces.Discrete(3))
        for rows in (0, 1):
            outputs, value = policy.outputs(Layout.of(space).empty(rows))
            assert (outputs.shape, value.shape) == ((rows, 3), (rows,)), name
