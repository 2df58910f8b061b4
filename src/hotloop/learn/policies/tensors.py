"""Arrays as tensors, and a perceptron on a device: what acting takes of torch, if anything."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from hotloop.data.layout import Tree, tree_map
from hotloop.learn.policies.distributions import Floats
from hotloop.learn.policies.observations import Array


def to_tensors(tree: Tree, device: torch.device) -> Any:
    """Return a tree of arrays as tensors on a device; on the CPU they share memory if they can."""
    return tree_map(lambda array: _tensor(array).to(device), tree)


def _tensor(array: Array) -> Tensor:
    # torch warns of arrays that cannot be written, as those of Ray, and refuses negative strides.
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}  # as in NumPy, `actor.ACTIVATIONS`


def pair_outputs(
    obs: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    free: Tensor,
    activation: str,
) -> tuple[Tensor, Tensor]:
    """Return outputs (N, size) and values (N,) of a pair of perceptrons, for inputs (N, inputs).

    weights: (2, inputs, outputs) a layer. biases: (2, 1, outputs). free: (free,).
    """
    activated = _ACTIVATIONS[activation]
    hidden = obs.expand(2, *obs.shape)
    *inner, last = zip(biases, weights, strict=True)
    for bias, weight in inner:
        hidden = activated(torch.baddbmm(bias, hidden, weight))
    actor, critic = torch.baddbmm(last[0], hidden, last[1]).unbind(0)
    if len(free):
        actor = torch.cat((actor, free.expand(len(actor), -1)), 1)
    return actor, critic[:, 0]


class PreparesAndLoads(Protocol):
    """A perceptron of NumPy, as its copy on a device uses it."""

    parameters: Floats

    def prepared(self, obs: Tree) -> Floats:
        """Return one vector an observation."""
        ...

    def load(self, weights: Any) -> None:
        """Take weights over."""
        ...

    def on(self, device: str) -> Any:
        """Return a copy on a device."""
        ...


class PerceptronOn:
    """A copy of a perceptron that computes on a device, without gradients.

    shapes: of its parameters, in their order. activation: between its layers.
    Raises: what torch raises for a device that is not there.
    """

    def __init__(
        self,
        perceptron: PreparesAndLoads,
        shapes: Sequence[tuple[int, ...]],
        activation: str,
        device: str,
    ) -> None:
        self._perceptron, self._activation = copy.copy(perceptron), activation
        self._flat = torch.from_numpy(self._perceptron.parameters).to(device, copy=True)
        parts = torch.split(self._flat, [math.prod(shape) for shape in shapes])
        views = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        layers = len(views) // 2
        self._weights, self._biases, self._free = views[:layers], views[layers:-1], views[-1]

    def prepared(self, obs: Tree) -> Floats:
        """As `Perceptron`."""
        return self._perceptron.prepared(obs)

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """As `Perceptron`."""
        inputs = to_tensors(self.prepared(obs), self._flat.device)
        outputs, value = pair_outputs(
            inputs, self._weights, self._biases, self._free, self._activation
        )
        return outputs.cpu().numpy(), value.cpu().numpy()

    def load(self, weights: Any) -> None:
        """As `Perceptron`."""
        self._perceptron.load(weights)
        self._flat.copy_(torch.from_numpy(self._perceptron.parameters))

    def on(self, device: str) -> Any:
        """As `Perceptron`."""
        return self._perceptron.on(device)
