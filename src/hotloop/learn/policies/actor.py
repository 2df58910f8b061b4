"""Acting, apart from learning: what a collector calls, in the learner's process or in a worker.

A copy of an actor needs no learner, and for perceptrons no torch: unpickling one in a worker
loads neither. Small batches are faster in NumPy as well: for the observations of eight envs torch
takes about twice as long, because the dispatch of an operation outweighs its arithmetic.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from hotloop.data.layout import Tree
from hotloop.errors import ShapeError
from hotloop.learn.policies.distributions import Actions, ActionSpec, Floats
from hotloop.learn.policies.masks import ActionMask
from hotloop.learn.policies.observations import Observations


def _relu(hidden: Floats, out: Floats) -> Floats:
    rectified: Floats = np.maximum(hidden, 0, out=out)
    return rectified


ACTIVATIONS: dict[str, Callable[..., Floats]] = {"tanh": np.tanh, "relu": _relu}
"""What may stand between a perceptron's layers; each is called with the array and with `out`."""
CLIP = 10.0
"""Normalised observations are clipped to ±CLIP: one outlier does not upset a young policy."""


class Weights(NamedTuple):
    """What an actor needs to act by newer parameters.

    parameters: all in one vector. scaling: (2, inputs), the means of the observations and one
    over their standard deviations; None where observations are not normalised.
    """

    parameters: Floats
    scaling: Floats | None = None


class ActingNetwork(Protocol):
    """A network as an actor uses it: arrays in and out, no gradients. It can be pickled."""

    def prepared(self, obs: Tree) -> Tree:
        """Return the arrays that the network takes for observations (..., *shape)."""
        ...

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """Return outputs (B, size) and values (B,) for observations (B, ...)."""
        ...

    def load(self, weights: Weights) -> None:
        """Take weights over. Raises: ShapeError for those of another network."""
        ...

    def on(self, device: str) -> "ActingNetwork":
        """Return a copy that computes on a device of torch."""
        ...


class Perceptron:
    """An actor and a critic of one shape, run as one, in NumPy.

    sizes: units of each layer, from the inputs to the outputs of the actor. free: outputs after
    those, which are parameters. activation: of `ACTIVATIONS`, between the layers. parameters:
    (parameters,), shared, not copied; see `perceptron_shapes` for their order. scaling: as in
    `Weights`, shared too.
    """

    def __init__(
        self,
        observations: Observations,
        sizes: Sequence[int],
        free: int,
        activation: str,
        parameters: Floats,
        scaling: Floats | None,
    ) -> None:
        self.observations, self.sizes, self.free = observations, tuple(sizes), free
        self.activation, self._activated = activation, ACTIVATIONS[activation]
        self.parameters, self.scaling = parameters, scaling
        *views, self._free_outputs = _views(parameters, perceptron_shapes(sizes, free))
        layers = len(views) // 2
        *self._inner, self._last = zip(views[:layers], views[layers:], strict=True)

    def prepared(self, obs: Tree) -> Floats:
        """Return one vector an observation, (..., inputs), normalised where that is asked for."""
        vector = self.observations.vector(obs)
        if self.scaling is None:
            return vector
        mean, scale = self.scaling
        scaled: Floats = np.clip((vector - mean) * scale, -CLIP, CLIP)
        return scaled

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """Return outputs (B, size) and values (B,) for observations (B, ...)."""
        hidden = self.prepared(obs)
        for weight, bias in self._inner:
            hidden = hidden @ weight
            hidden += bias
            self._activated(hidden, out=hidden)
        weight, bias = self._last
        hidden = hidden @ weight
        hidden += bias
        actor, critic = hidden
        if self.free:
            free = np.broadcast_to(self._free_outputs, (len(actor), self.free))
            actor = np.concatenate((actor, free), 1)
        return actor, critic[:, 0]

    def load(self, weights: Weights) -> None:
        """Take weights over. Raises: ShapeError for those of another network."""
        take_over(self.parameters, weights.parameters, "weights: parameters")
        if (self.scaling is None) != (weights.scaling is None):
            with_or_without = "without" if self.scaling is None else "with"
            raise ShapeError(
                f"weights: scaling: expected those of a policy {with_or_without} normalised "
                "observations, got others; load weights into an actor of the same policy"
            )
        if self.scaling is not None and weights.scaling is not None:
            take_over(self.scaling, weights.scaling, "weights: scaling")

    def on(self, device: str) -> ActingNetwork:
        """Return a copy that computes with torch, on a device."""
        # Here, as acting on the CPU needs no torch.
        from hotloop.learn.policies.tensors import PerceptronOn

        shapes = perceptron_shapes(self.sizes, self.free)
        return PerceptronOn(self, shapes, self.activation, device)

    def __reduce__(self) -> tuple[Any, ...]:
        # The vector travels once; the layers are views of it again where it arrives.
        scaling = None if self.scaling is None else self.scaling.copy()
        parameters = self.parameters.copy()
        shape = (self.observations, self.sizes, self.free, self.activation)
        return Perceptron, (*shape, parameters, scaling)


def perceptron_shapes(sizes: Sequence[int], free: int) -> list[tuple[int, ...]]:
    """Return the shapes of a perceptron's parameters, in the order of the flat vector.

    First the weights of each layer, (2, inputs, outputs), actor and critic, then the biases,
    (2, 1, outputs), then the free outputs. The critic's last layer is padded to the actor's width;
    only its first column is used.
    """
    weights = [(2, rows, columns) for rows, columns in itertools.pairwise(sizes)]
    return [*weights, *((2, 1, columns) for columns in sizes[1:]), (free,)]


def _views(parameters: Floats, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    if parameters.shape != (ends[-1],):
        raise ShapeError(f"parameters: expected ({ends[-1]},), got {parameters.shape}")
    parts = np.split(parameters, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def take_over(held: Floats, given: Floats, name: str) -> None:
    """Copy an array into the one that is held. Raises: ShapeError if it does not fit."""
    if np.shape(given) != held.shape:
        raise ShapeError(
            f"{name}: expected shape {held.shape}, got {np.shape(given)}; load what a policy with "
            "the same spaces and settings gave"
        )
    np.copyto(held, given)


class Forward:
    """A network and the action mask of its observations."""

    def __init__(self, network: ActingNetwork, mask: ActionMask | None) -> None:
        self.network, self.mask = network, mask

    def __call__(self, obs: Tree) -> tuple[Floats, Floats]:
        """Return outputs (B, size), masked, and values (B,) for observations (B, ...)."""
        if self.mask is None:
            return self.network(obs)
        rest, allowed = self.mask.split(obs)
        outputs, value = self.network(rest)
        return self.mask.apply(outputs, allowed), value

    def to_act(self, obs: Tree) -> tuple[Floats, Floats]:
        """As a call. Raises: TargetError for an observation that allows no action."""
        outputs, value = self(obs)
        if self.mask is not None:
            self.mask.expect_options(outputs)
        return outputs, value


class Actor:
    """A policy as a collector calls it; the actions are drawn from `rng`.

    It shares the memory of the policy that made it. A pickled copy has memory of its own, and
    takes newer weights by `load_weights`.
    """

    def __init__(self, forward: Forward, actions: ActionSpec, rng: np.random.Generator) -> None:
        self._forward, self._actions, self.rng = forward, actions, rng

    def __call__(self, obs: Tree) -> tuple[Actions, dict[str, Floats]]:
        """Return actions (B, ...), their log-probabilities, and the values of the observations.

        Raises: TargetError for an observation whose mask allows no action.
        """
        outputs, value = self._forward.to_act(obs)
        action, log_prob = self._actions.distribution.sample(outputs, self.rng)
        return action, {"log_prob": log_prob, "value": value}

    def for_env(self, action: Actions) -> Actions:
        """Return actions as the env takes them: in its bounds, and of its type."""
        return self._actions.for_env(action)

    def on(self, device: str) -> "Actor":
        """Compute on a device of torch from now on, apart from the policy; returns this actor.

        Raises: what torch raises for a device that is not there.
        """
        self._forward = Forward(self._forward.network.on(device), self._forward.mask)
        return self

    def seed(self, seed: int) -> None:
        """Draw from a generator of this seed from now on."""
        self.rng = np.random.default_rng(seed)

    def load_weights(self, weights: Weights) -> None:
        """Act by what `Policy.weights` gave. Raises: ShapeError for those of another policy."""
        self._forward.network.load(weights)
