"""Networks: their layers, first weights and seeds, and networks of one's own."""

import math
import sys
import types

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from hotloop.errors import SettingError, TargetError
from hotloop.learn.policies.actor_critic import ModuleActorCritic, PerceptronPair
from hotloop.learn.policies.cnn import ImageLayout, ImagesAndVector, ResidualBlock
from hotloop.learn.policies.policy import make_policy
from support.policies import IMAGE_FIRST, IMAGE_LAST, MIXED, VECTOR, masked, moved_policy, sampled

TWO = spaces.Discrete(2)


class Flat(nn.Module):
    """Features of a Dict with an image: everything flat, through one layer."""

    def __init__(self, space):
        super().__init__()
        self.linear = nn.LazyLinear(7)

    def forward(self, obs):
        assert obs["camera"].dtype == torch.uint8
        assert obs["speed"].dtype == torch.float32
        camera = obs["camera"].flatten(1).float() / 255
        return self.linear(torch.cat((camera, obs["speed"], obs["gear"][:, None]), 1)).tanh()


class Vector(nn.Module):
    """Features of a vector by the module that it is given."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, obs):
        return self.inner(obs)


def linear_network(space):
    return nn.Sequential(nn.Linear(space.shape[0], 6), nn.Tanh())


def modules(policy, kind):
    return [m for m in policy.network.module.modules() if isinstance(m, kind)]


def expect_orthogonal(weight, gain):
    """Rows, or columns if there are fewer, are at right angles and of one length."""
    matrix = weight.detach().flatten(1).numpy().astype(np.float64)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    expected = gain**2 * np.eye(len(matrix))
    np.testing.assert_allclose(matrix @ matrix.T, expected, atol=1e-4 * max(gain, 1e-2))


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4)])
def test_the_nature_cnn(shape):
    policy = make_policy(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(6))
    convolutions = modules(policy, nn.Conv2d)
    made = [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions]
    assert made == [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
    linear, actor, critic = modules(policy, nn.Linear)
    assert linear.weight.shape == (512, 64 * 7 * 7)
    for layer in (*convolutions, linear):
        expect_orthogonal(layer.weight, math.sqrt(2))
    expect_orthogonal(actor.weight, 0.01)
    expect_orthogonal(critic.weight, 1.0)
    assert not any(layer.bias.any() for layer in (*convolutions, linear, actor, critic))
    # The known size of the network of Mnih et al., with six actions and a value.
    assert len(policy.flat) == 8224 + 32832 + 36928 + 1606144 + 513 * 7


def test_the_nature_cnn_with_layer_norm():
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    policy = make_policy(space, spaces.Discrete(6), network="nature_cnn_layer_norm")
    norms = modules(policy, nn.LayerNorm)
    shapes = [(32, 20, 20), (64, 9, 9), (64, 7, 7), (512,)]
    assert [norm.normalized_shape for norm in norms] == shapes
    plain = make_policy(space, spaces.Discrete(6), network="nature_cnn")
    assert len(policy.flat) == len(plain.flat) + 2 * sum(map(math.prod, shapes))
    # Before they have learned, the layers give the same for an image half as bright.
    image = torch.randint(0, 128, (2, 4, 84, 84), generator=torch.manual_seed(0)).byte()
    features = modules(policy, ImagesAndVector)[0]
    with torch.no_grad():
        torch.testing.assert_close(features((image,)), features((2 * image,)), atol=0.01, rtol=0.01)


def test_the_impala_cnn():
    policy = make_policy(IMAGE_LAST, TWO, network="impala_cnn")
    made = [(c.in_channels, c.out_channels) for c in modules(policy, nn.Conv2d)]
    expected = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
        expected += [(inputs, outputs), *[(outputs, outputs)] * 4]
    assert made == expected
    assert [pool.stride for pool in modules(policy, nn.MaxPool2d)] == [2, 2, 2]
    # 36 x 40, halved and rounded up three times, is 5 x 5.
    assert modules(policy, nn.Linear)[0].weight.shape == (256, 32 * 5 * 5)
    small = make_policy(spaces.Box(0, 255, (7, 7, 3), np.uint8), TWO, network="impala_cnn")
    assert small.greedy(np.zeros((2, 7, 7, 3), np.uint8)).shape == (2,)


def test_a_residual_block_adds_to_its_input():
    block, x = ResidualBlock(2), torch.randn(3, 2, 5, 5, generator=torch.manual_seed(0))
    for parameter in block.second.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("network", ["nature_cnn", "nature_cnn_layer_norm", "impala_cnn"])
def test_channels_first_or_last_and_bytes_or_floats_are_the_same_image(network):
    image = sampled(IMAGE_FIRST, 3)
    floats = image.astype(np.float32) / 255
    forms = [
        (IMAGE_FIRST, image),
        (spaces.Box(0, 255, (40, 36, 3), np.uint8), image.transpose(0, 2, 3, 1)),
        (spaces.Box(0, 1, (3, 40, 36), np.float32), floats),
        (spaces.Box(0, 1, (40, 36, 3), np.float64), floats.transpose(0, 2, 3, 1).astype(float)),
    ]
    results = []
    for space, obs in forms:
        policy = moved_policy(space, TWO, network=network, seed=2, by=0.01)
        assert policy.obs_dtype is None
        results.append(policy.outputs(obs))
    for outputs, value in results[1:]:
        np.testing.assert_allclose(outputs, results[0][0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(value, results[0][1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("network", ["nature_cnn", "nature_cnn_layer_norm", "impala_cnn"])
@pytest.mark.parametrize("of_bytes", [True, False])
def test_channels_last_in_memory_change_no_gradient(network, of_bytes, monkeypatch):
    dtype, high = (np.uint8, 255) if of_bytes else (np.float32, 1)
    space = spaces.Box(0, high, (3, 40, 36), dtype)
    image = torch.as_tensor(sampled(space, 5))
    features = modules(make_policy(space, TWO, network=network), ImagesAndVector)[0].double()

    def gradients():
        features.zero_grad()
        made = features((image,))
        (made * torch.linspace(-1, 1, made.shape[1])).sum().backward()
        return [made.detach(), *(p.grad.clone() for p in features.parameters())]

    monkeypatch.setattr(ImageLayout, "forward", lambda _, image: plain_layout(image).double())
    expected = gradients()
    monkeypatch.undo()
    last = ImageLayout.forward
    monkeypatch.setattr(ImageLayout, "forward", lambda self, image: last(self, image).double())
    for got, plain in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(got, plain)


def plain_layout(image):
    return image.float() / 255 if image.dtype == torch.uint8 else image


def test_a_vector_is_joined_to_the_features_of_images():
    two = spaces.Dict(**MIXED.spaces, rear=spaces.Box(0, 1, (36, 36, 1), np.float32))
    policy = moved_policy(two, TWO, by=0.01)
    assert len(modules(policy, nn.Conv2d)) == 6
    assert policy.network.module.actor.in_features == 2 * 512 + 2 + 3
    obs = sampled(two, 3)
    before = policy.outputs(obs)[1]
    for key, part in obs.items():
        changed = {**obs, key: np.roll(part, 1, 0)}
        assert not np.allclose(policy.outputs(changed)[1], before), key


def test_auto_takes_the_network_for_the_observations():
    assert isinstance(make_policy(VECTOR, TWO).network, PerceptronPair)
    assert isinstance(make_policy(spaces.Discrete(3), TWO).network, PerceptronPair)
    for space in (MIXED, masked(IMAGE_FIRST, 2)):
        policy = make_policy(space, TWO)
        assert isinstance(policy.network, ModuleActorCritic)
        assert modules(policy, nn.Conv2d)
    flat = make_policy(IMAGE_FIRST, TWO, network="mlp", hidden_size=8)
    assert isinstance(flat.network, PerceptronPair)
    assert flat.greedy(sampled(IMAGE_FIRST, 2)).shape == (2,)


@pytest.mark.parametrize("own", [Flat, "planted_networks:Flat"])
def test_networks_of_ones_own(own, monkeypatch):
    module = types.ModuleType("planted_networks")
    module.Flat = Flat
    monkeypatch.setitem(sys.modules, "planted_networks", module)
    policy = moved_policy(MIXED, spaces.Box(-1, 1, (2,)), network=own)
    obs = sampled(MIXED, 4)
    outputs, value = policy(policy.tensors(obs))
    assert outputs.shape == (4, 4)
    for got, wanted in zip(policy.outputs(obs), (outputs, value), strict=True):
        np.testing.assert_allclose(got, wanted.detach(), rtol=1e-5, atol=1e-6)
    (outputs.sum() + value.sum()).backward()
    assert policy.grad.any()


@pytest.mark.parametrize("network", ["mlp", linear_network])
def test_the_same_seed_gives_the_same_parameters(network):
    before = torch.get_rng_state()
    first, again, other = (make_policy(VECTOR, TWO, network=network, seed=s) for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.flat, again.flat)
    assert not torch.equal(first.flat, other.flat)
    torch.manual_seed(9)
    assert torch.equal(make_policy(VECTOR, TWO, network=network, seed=3).flat, first.flat)


def test_first_weights_of_the_perceptron_are_orthogonal():
    network = make_policy(VECTOR, TWO).network
    for weight in network.weights[:-1]:
        for net in weight:
            expect_orthogonal(net, math.sqrt(2))
    actor, critic = network.weights[-1]
    expect_orthogonal(actor, 0.01)
    expect_orthogonal(critic[:, :1], 1.0)
    assert not critic[:, 1:].any()


def test_dropout_is_off_and_shared_parameters_stay_shared():
    shared = nn.Linear(5, 5)
    inner = nn.Sequential(shared, nn.Dropout(0.5), shared)
    policy = make_policy(VECTOR, TWO, network=lambda space: Vector(inner))
    obs = sampled(VECTOR, 8)
    np.testing.assert_array_equal(policy.outputs(obs)[1], policy.outputs(obs)[1])
    heads = (5 + 1) * 2 + (5 + 1)
    assert len(policy.flat) == 30 + heads


def test_frozen_parameters_stay_as_they_are():
    def network(space):
        layer = nn.Linear(5, 4)
        layer.weight.requires_grad_(False)
        return layer

    policy = make_policy(VECTOR, TWO, network=network)
    layer = policy.network.module.features
    frozen, bias = layer.weight.clone(), layer.bias.detach().clone()
    optimizer = torch.optim.Adam([policy.flat], 0.1)
    outputs, value = policy(policy.tensors(sampled(VECTOR, 8)))
    (outputs.sum() + value.sum()).backward()
    optimizer.step()
    assert torch.equal(layer.weight, frozen)
    assert not torch.equal(layer.bias, bias)


def test_networks_that_do_not_fit_are_refused():
    def refused(match, network, space=VECTOR, kind=TargetError, **settings):
        with pytest.raises(kind, match=match):
            make_policy(space, TWO, network=network, **settings)

    small = spaces.Box(0, 255, (35, 84, 3), np.uint8)
    refused(r"at least 36 x 36 pixels, got 35 x 84 .* 'impala_cnn'", "auto", small)
    refused(r"'nature_cnn': expected an image .* take network 'mlp'", "nature_cnn")
    refused(r"BatchNorm take LayerNorm", lambda space: nn.BatchNorm1d(5))
    refused(
        r"'weight': expected torch.float32, got torch.float64",
        lambda space: nn.Linear(5, 3).double(),
    )
    refused(r"returns a torch.nn.Module, got int", lambda space: 3)
    refused(r"expected features \(N, F\) .* got \(2, 5, 1\)", lambda space: nn.Unflatten(1, (5, 1)))
    refused(r"expected features \(N, F\) .* got .*tuple", lambda space: Vector(lambda x: (x, x)))
    refused(r"'mpl'.*did you mean 'mlp'", "mpl", kind=SettingError)
    refused(r"of the name 'no_such_module'", "no_such_module:f")
    refused(r"of the name 'make_polcy'.*did you mean", "hotloop.learn.policies.policy:make_polcy")
    with pytest.raises(RuntimeError, match="shapes") as raised:
        make_policy(VECTOR, TWO, network=lambda space: nn.Linear(9, 3))
    assert "called with two observations of zeros" in raised.value.__notes__[0]
    refused(r"hidden_size.*linear_network", linear_network, kind=SettingError, hidden_size=32)
    refused(r"activation.*linear_network", linear_network, kind=SettingError, activation="relu")
    refused(
        r"normalise_observations.*images are scaled",
        "auto",
        MIXED,
        SettingError,
        normalise_observations=True,
    )
    refused(r"hidden_layers: expected a whole number", "mlp", kind=SettingError, hidden_layers=0)
