"""Actors and critics in torch, with all parameters in one flat vector.

The optimiser, the clipping of the gradient's norm and the copy that travels to workers are then
one operation each, whatever the number of layers. Two kinds: a pair of perceptrons run as one, and
any torch module with an actor's and a critic's head.
"""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hotloop.data.layout import Tree
from hotloop.learn.policies.actor import (
    ActingNetwork,
    Perceptron,
    Weights,
    perceptron_shapes,
    take_over,
)
from hotloop.learn.policies.distributions import Distribution, Floats
from hotloop.learn.policies.observations import Observations
from hotloop.learn.policies.tensors import pair_outputs, to_tensors

# The gains that PPO is known to need: a small last layer of the actor makes the first actions
# about equally likely.
ACTOR_GAIN, CRITIC_GAIN, INNER_GAIN = 0.01, 1.0, math.sqrt(2)


class ActorCritic(Protocol):
    """A network of outputs and values.

    flat: all parameters. grad: their gradient, which backward adds to and the optimiser reads.
    leaves: the parameters that gradients are of, views of `flat`; the `grad` of each, of `grad`.
    acting: the same network without gradients, on the memory of this one.
    """

    flat: nn.Parameter
    grad: Tensor
    leaves: Sequence[Tensor]
    acting: ActingNetwork

    def __call__(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return outputs (N, size) and values (N,), for tensors of what `acting` prepared."""
        ...


class PerceptronPair:
    """Two separate multi-layer perceptrons of one shape, the actor and the critic, run as one.

    Layer weights are stacked (2, inputs, outputs), so that each layer is one batched product for
    both; see `perceptron_shapes`. weights, biases, free: leaves of these shapes, which share the
    memory of `flat`. activation: between the layers. initial_std: of continuous actions.
    """

    def __init__(
        self,
        observations: Observations,
        distribution: Distribution,
        hidden_sizes: Sequence[int],
        *,
        activation: str,
        initial_std: float,
        scaling: Floats | None,
        seed: int,
        device: torch.device,
    ) -> None:
        free = distribution.free
        sizes = [observations.inputs, *hidden_sizes, distribution.size - free]
        weights = _orthogonal(sizes, torch.Generator().manual_seed(seed))
        rest = perceptron_shapes(sizes, free)[len(weights) :]
        *biases, free_outputs = (torch.zeros(shape) for shape in rest)
        first = [*weights, *biases, free_outputs.fill_(math.log(initial_std))]
        self.flat, self.grad, parts = _flattened([tensor.to(device) for tensor in first])
        leaves = []
        for data, slope in parts:
            leaf = data.requires_grad_()
            leaf.grad = slope
            leaves.append(leaf)
        self.weights, self.biases = leaves[: len(weights)], leaves[len(weights) : -1]
        self.free = leaves[-1]
        self.leaves: Sequence[Tensor] = leaves
        on_cpu = device.type == "cpu"
        parameters = self.flat.detach().cpu().numpy()
        self.activation = activation
        acting = Perceptron(observations, sizes, free, activation, parameters, scaling)
        self.acting: ActingNetwork = acting if on_cpu else CopiedPerceptron(acting, self.flat)

    def __call__(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (N, size) and values (N,) of observations (N, inputs)."""
        return pair_outputs(obs, self.weights, self.biases, self.free, self.activation)


class CopiedPerceptron:
    """A perceptron whose parameters are learned on another device: they are copied to act."""

    def __init__(self, perceptron: Perceptron, flat: Tensor) -> None:
        self._perceptron, self._flat = perceptron, flat

    def prepared(self, obs: Tree) -> Floats:
        """As `Perceptron`."""
        return self._perceptron.prepared(obs)

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """As `Perceptron`, by the newest parameters."""
        return self._newest()(obs)

    def load(self, weights: Weights) -> None:
        """As `Perceptron`; the parameters on the device change too."""
        self._perceptron.load(weights)
        self._flat.data.copy_(torch.from_numpy(self._perceptron.parameters))

    def on(self, device: str) -> ActingNetwork:
        """As `Perceptron`."""
        return self._newest().on(device)

    def _newest(self) -> Perceptron:
        np.copyto(self._perceptron.parameters, self._flat.detach().cpu().numpy())
        return self._perceptron

    def __reduce__(self) -> tuple[Any, ...]:
        return self._newest().__reduce__()


class WithHeads(nn.Module):
    """An actor's and a critic's head on the features that a module makes of observations.

    features: from observations to (N, width). initial_std: of continuous actions.
    """

    def __init__(
        self, features: nn.Module, width: int, distribution: Distribution, initial_std: float
    ) -> None:
        super().__init__()
        self.features = features
        self.actor = nn.Linear(width, distribution.size - distribution.free)
        self.critic = nn.Linear(width, 1)
        self.free = nn.Parameter(torch.full((distribution.free,), math.log(initial_std)))
        for head, gain in ((self.actor, ACTOR_GAIN), (self.critic, CRITIC_GAIN)):
            nn.init.orthogonal_(head.weight, gain)
            nn.init.zeros_(head.bias)

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return outputs (N, size) and values (N,)."""
        features = self.features(obs)
        actor, critic = self.actor(features), self.critic(features)
        if len(self.free):
            actor = torch.cat((actor, self.free.expand(len(actor), -1)), 1)
        return actor, critic[:, 0]


class ModuleActorCritic:
    """Any torch module from observations to outputs and values, on its own device.

    prepare: from observations as the env gives them to the arrays that the module takes. The
    module is put into evaluation mode for good: with dropout, the policy that acts and the one
    that learns would not be the same. Its parameters become views of `flat`.
    """

    def __init__(self, module: nn.Module, prepare: Callable[[Tree], Tree]) -> None:
        self.module, self.prepare = module.eval(), prepare
        parameters = list(module.parameters())
        self.flat, self.grad, parts = _flattened(parameters)
        for parameter, (data, slope) in zip(parameters, parts, strict=True):
            parameter.data, parameter.grad = data, slope
        self.leaves: Sequence[Tensor] = parameters
        self.acting: ActingNetwork = ActingModule(self)

    def __call__(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return outputs (N, size) and values (N,)."""
        outputs, value = self.module(obs)
        return outputs, value

    @classmethod
    def rebuilt(
        cls, module: nn.Module, prepare: Callable[[Tree], Tree], parameters: Floats
    ) -> ActingNetwork:
        """Make a network of a module's frame, see `frame`, and of its parameters."""
        made = cls(module, prepare).acting
        made.load(Weights(parameters))
        return made

    def frame(self) -> nn.Module:
        """Copy the module, on the CPU and without its parameters: only their shapes are kept.

        Pickled as they are, the parameters would each bring along the whole vector of which they
        are views.
        """
        frame = copy.deepcopy(self.module).cpu()
        for parameter in frame.parameters():
            parameter.data = torch.zeros(()).expand(parameter.shape)
        return frame


class ActingModule:
    """A `ModuleActorCritic` without gradients. A pickled copy acts on the CPU."""

    def __init__(self, net: ModuleActorCritic) -> None:
        self._net = net

    def prepared(self, obs: Tree) -> Tree:
        """Return the arrays that the module takes."""
        return self._net.prepare(obs)

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """Return outputs (B, size) and values (B,) for observations (B, ...)."""
        with torch.no_grad():
            outputs, value = self._net(to_tensors(self.prepared(obs), self._net.flat.device))
        return outputs.cpu().numpy(), value.cpu().numpy()

    def load(self, weights: Weights) -> None:
        """Take weights over. Raises: ShapeError for those of another network."""
        # By way of an array, for arrays that came with a message cannot be written.
        parameters = np.empty(self._net.flat.shape, np.float32)
        take_over(parameters, weights.parameters, "weights: parameters")
        self._net.flat.data.copy_(torch.from_numpy(parameters))

    def on(self, device: str) -> ActingNetwork:
        """Return a copy on a device of torch."""
        frame, prepare, parameters = self._parts()
        return ModuleActorCritic.rebuilt(frame.to(device), prepare, parameters)

    def _parts(self) -> tuple[nn.Module, Callable[[Tree], Tree], Floats]:
        net = self._net
        return net.frame(), net.prepare, net.flat.detach().cpu().numpy().copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleActorCritic.rebuilt, self._parts()


def _orthogonal(sizes: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """Draw the first weights of both nets, (2, inputs, outputs) a layer, from `generator` alone."""
    weights = []
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        weight = torch.zeros(2, rows, columns)
        actor, critic = weight[0], weight[1, :, :1] if last else weight[1]
        nn.init.orthogonal_(actor, ACTOR_GAIN if last else INNER_GAIN, generator=generator)
        nn.init.orthogonal_(critic, CRITIC_GAIN if last else INNER_GAIN, generator=generator)
        weights.append(weight)
    return weights


def _flattened(
    tensors: Sequence[Tensor],
) -> tuple[nn.Parameter, Tensor, list[tuple[Tensor, Tensor]]]:
    """Join tensors into one parameter.

    Returns it, its gradient, and for each tensor the views of both in its shape.
    """
    flat = nn.Parameter(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]))
    flat.grad = grad = torch.zeros_like(flat)
    sizes = [tensor.numel() for tensor in tensors]
    shares = zip(torch.split(flat.detach(), sizes), torch.split(grad, sizes), strict=True)
    parts = [
        (data.view(tensor.shape), slope.view(tensor.shape))
        for tensor, (data, slope) in zip(tensors, shares, strict=True)
    ]
    return flat, grad, parts
