"""The networks of a policy: the table of those with a name, and networks of one's own."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from hotloop.data.layout import Tree
from hotloop.errors import SettingError, TargetError, nearest
from hotloop.learn.policies.actor_critic import (
    ActorCritic,
    ModuleActorCritic,
    PerceptronPair,
    WithHeads,
)
from hotloop.learn.policies.cnn import ImagesAndVector, impala_cnn, nature_cnn
from hotloop.learn.policies.distributions import Distribution, Floats
from hotloop.learn.policies.observations import Entry, Observations
from hotloop.learn.policies.tensors import to_tensors

HIDDEN_SIZE, HIDDEN_LAYERS, ACTIVATION = 64, 2, "tanh"
INITIAL_STD = 1.0  # of continuous actions

NetworkFunction = Callable[[gymnasium.Space[Any]], nn.Module]
"""From the space of the observations (without their mask) to a module of features.

The module takes a tree of tensors (N, ...), as observations are stored, floats in single
precision, and gives features (N, F), single precision.
"""


@dataclass(frozen=True)
class NetworkRequest:
    """What a network is made for.

    space: of the observations, without their mask. scaling: see `Weights`; None without
    normalisation.
    """

    space: gymnasium.Space[Any]
    observations: Observations
    distribution: Distribution
    hidden_size: int
    hidden_layers: int
    activation: str
    initial_std: float
    scaling: Floats | None
    seed: int
    device: torch.device


def make_network(network: str | NetworkFunction, request: NetworkRequest) -> ActorCritic:
    """Make the network of a name of `NETWORKS`, of "module:function", or of a function.

    The same seed gives the same parameters; torch's global generator is left as it was.
    Raises: SettingError for a name that does not exist and for settings that the network does not
    take; TargetError for a network that does not fit the observations.
    """
    if not isinstance(network, str):
        return _own(network, request)
    if network in NETWORKS:
        return NETWORKS[network](request)
    return _own(_function(network), request)


def _auto(request: NetworkRequest) -> ActorCritic:
    """The Nature CNN where there is an image, else the perceptron."""
    return NETWORKS["nature_cnn" if request.observations.images else "mlp"](request)


def _mlp(request: NetworkRequest) -> ActorCritic:
    """Separate perceptrons for actor and critic, on one flat vector."""
    return PerceptronPair(
        request.observations,
        request.distribution,
        [request.hidden_size] * request.hidden_layers,
        activation=request.activation,
        initial_std=request.initial_std,
        scaling=request.scaling,
        seed=request.seed,
        device=request.device,
    )


def _cnn(
    name: str, make: Callable[[Entry], tuple[nn.Module, int]], request: NetworkRequest
) -> ActorCritic:
    """A CNN for each image; actor and critic share it."""
    observations = request.observations
    images = observations.images
    if not images:
        raise TargetError(
            f"policy: network {name!r}: expected an image among the observations (a Box of three "
            f"dimensions, of uint8 or floats), got {request.space}; take network 'mlp'"
        )
    vector = observations.inputs - sum(image.size for image in images)
    return _with_heads(
        request,
        repr(name),
        lambda: ImagesAndVector(images, vector, make),
        observations.images_and_vector,
    )


_NORMALISED = "nature_cnn_layer_norm"
NETWORKS: Mapping[str, Callable[[NetworkRequest], ActorCritic]] = {
    "auto": _auto,
    "mlp": _mlp,
    "nature_cnn": partial(_cnn, "nature_cnn", nature_cnn),
    _NORMALISED: partial(_cnn, _NORMALISED, partial(nature_cnn, name=_NORMALISED, normalised=True)),
    "impala_cnn": partial(_cnn, "impala_cnn", impala_cnn),
}
"""The networks with a name."""


def _own(function: NetworkFunction, request: NetworkRequest) -> ActorCritic:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return _with_heads(
        request, name, lambda: function(request.space), request.observations.as_given
    )


def _with_heads(
    request: NetworkRequest,
    name: str,
    make: Callable[[], nn.Module],
    prepare: Callable[[Tree], Tree],
) -> ActorCritic:
    """Make features and put the heads on, all from a generator of the request's seed."""
    _expect_no_perceptron_settings(request, name)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed the generators of all cards too.
        torch.default_generator.manual_seed(request.seed)
        features = make()
        if not isinstance(features, nn.Module):
            raise TargetError(
                f"policy: network {name}: expected a function that returns a torch.nn.Module, got "
                f"{type(features).__qualname__}"
            )
        _expect_plain_parameters(features, name)
        width = _width(features, name, prepare(request.observations.layout.empty(2)))
        module = WithHeads(features, width, request.distribution, request.initial_std)
    return ModuleActorCritic(module.to(request.device), prepare)


def _expect_no_perceptron_settings(request: NetworkRequest, name: str) -> None:
    given = request.hidden_size, request.hidden_layers, request.activation
    if given != (HIDDEN_SIZE, HIDDEN_LAYERS, ACTIVATION):
        raise SettingError(
            f"policy: hidden_size, hidden_layers, activation: expected none with network {name}, "
            f"which has layers of its own, got {', '.join(map(repr, given))}; leave them out, or "
            "take network 'mlp'"
        )
    if request.scaling is not None:
        raise SettingError(
            f"policy: normalise_observations: expected False with network {name}: only the "
            "perceptron ('mlp') has the flat vector whose entries are normalised; images are "
            "scaled by 1/255 already. Leave it out, or normalise in the env"
        )


def _width(features: nn.Module, name: str, example: Tree) -> int:
    """Return how many features a module gives; this also sets the shapes of lazy layers."""
    try:
        with torch.no_grad():
            made = features(to_tensors(example, torch.device("cpu")))
    except Exception as error:
        error.add_note(f"in network {name} of the policy, called with two observations of zeros")
        raise
    fits = isinstance(made, Tensor) and made.ndim == 2 and len(made) == 2 and made.shape[1] > 0
    if not fits or made.dtype != torch.float32:
        got = f"{tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made)
        raise TargetError(
            f"policy: network {name}: expected features (N, F) of torch.float32 for observations "
            f"of N = 2 rows, got {got}; flatten what the module returns"
        )
    return int(made.shape[1])


def _expect_plain_parameters(features: nn.Module, name: str) -> None:
    """Refuse what one flat vector of float32 cannot hold."""
    for key, parameter in features.named_parameters():
        if parameter.dtype != torch.float32:
            raise TargetError(
                f"policy: network {name}: parameter {key!r}: expected torch.float32, got "
                f"{parameter.dtype}; make the module in single precision"
            )
    kept = set(features.state_dict()) - {
        key for key, _ in features.named_parameters(remove_duplicate=False)
    }
    if kept:
        raise TargetError(
            f"policy: network {name}: expected a module without buffers, whose weights are all in "
            f"its parameters, got {sorted(kept)}; instead of BatchNorm take LayerNorm or "
            "GroupNorm, and register constants with persistent=False"
        )


def _function(named: str) -> NetworkFunction:
    """Find what "module:function" names."""
    place, colon, name = named.rpartition(":")
    if not colon or not place or not name:
        raise SettingError(
            f"policy: network: expected one of {', '.join(map(repr, NETWORKS))}, or "
            f"'module:function', got {named!r}{nearest(named, NETWORKS)}"
        )
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise TargetError(
            f"policy: network {named!r}: expected a module that can be imported, got none of the "
            f"name {place!r}; correct it, or put its folder on PYTHONPATH"
        ) from None
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise TargetError(
            f"policy: network {named!r}: expected a function of {place}, got none of the name "
            f"{name!r}{nearest(name, functions)}"
        )
    return found  # type: ignore[no-any-return]
