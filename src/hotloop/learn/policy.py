"""An actor and a critic for small observations, and the distributions of their actions.

Acting is a numpy forward over views of the parameters: one observation of eight envs takes torch
about twice as long, because the dispatch of an operation outweighs its arithmetic. Learning is
plain torch autograd over the same memory. The tests prove the two equal.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import TargetError

Floats = NDArray[np.float32]
Actions = NDArray[np.generic]


class Distribution(Protocol):
    """The distribution of actions for the outputs of an actor. B is the batch, or T x B."""

    @property
    def size(self) -> int:
        """Outputs of the actor for one observation."""
        ...

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Draw actions for outputs (B, size); returns them and their log-probabilities (B,)."""
        ...

    def mode(self, outputs: Floats) -> Actions:
        """Return the likeliest action for each of outputs (B, size)."""
        ...

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log π(action), (B,), differentiable."""
        ...

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy of π, (B,), differentiable."""
        ...


@dataclass(frozen=True)
class Categorical:
    """One choice among `size`, numbered from `start`; the outputs are logits."""

    size: int
    start: int = 0

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Invert the cumulative probabilities at one uniform number a row."""
        shifted = outputs - outputs.max(1, keepdims=True)
        cumulative = np.exp(shifted).cumsum(1)
        total = cumulative[:, -1]
        uniform = rng.random(len(outputs), dtype=np.float32) * total
        choice: NDArray[np.int64] = (cumulative[:, :-1] <= uniform[:, None]).sum(1)
        return choice + self.start, shifted[np.arange(len(choice)), choice] - np.log(total)

    def mode(self, outputs: Floats) -> Actions:
        """The action of the largest logit."""
        choice: NDArray[np.int64] = outputs.argmax(1)
        return choice + self.start

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """log π(a) = logit_a − log Σ exp logit."""
        return outputs.log_softmax(1).gather(1, (action - self.start).unsqueeze(1)).squeeze(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """H = −Σ π log π."""
        log_probs = outputs.log_softmax(1)
        return -(log_probs.exp() * log_probs).sum(1)


@dataclass(frozen=True)
class MultiCategorical:
    """Several independent choices; the outputs are their logits, one after the other."""

    choices: tuple[Categorical, ...]

    @property
    def size(self) -> int:
        """Logits of all choices."""
        return sum(choice.size for choice in self.choices)

    @property
    def _cuts(self) -> list[int]:
        return list(itertools.accumulate(choice.size for choice in self.choices[:-1]))

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Each choice by itself; log-probabilities add."""
        parts = np.split(outputs, self._cuts, axis=1)
        drawn = [c.sample(part, rng) for c, part in zip(self.choices, parts, strict=True)]
        return np.stack([a for a, _ in drawn], 1), np.sum([p for _, p in drawn], 0)

    def mode(self, outputs: Floats) -> Actions:
        """Each choice by itself."""
        parts = np.split(outputs, self._cuts, axis=1)
        return np.stack([c.mode(part) for c, part in zip(self.choices, parts, strict=True)], 1)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """The sum over the choices."""
        parts = zip(
            self.choices, outputs.tensor_split(self._cuts, 1), action.unbind(1), strict=True
        )
        return torch.stack([choice.log_prob(part, taken) for choice, part, taken in parts]).sum(0)

    def entropy(self, outputs: Tensor) -> Tensor:
        """The sum over the choices."""
        parts = zip(self.choices, outputs.tensor_split(self._cuts, 1), strict=True)
        return torch.stack([choice.entropy(part) for choice, part in parts]).sum(0)


@dataclass(frozen=True)
class Gaussian:
    """Independent normals around the outputs' first half; the second half is log σ."""

    dimensions: int

    @property
    def size(self) -> int:
        """A mean and a log standard deviation for each dimension."""
        return 2 * self.dimensions

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Mean plus σ times standard normals; not clipped to the env's bounds."""
        mean, log_std = outputs[:, : self.dimensions], outputs[:, self.dimensions :]
        noise = rng.standard_normal(mean.shape, np.float32)
        log_prob = -(0.5 * noise**2 + log_std + 0.5 * np.float32(math.log(2 * math.pi))).sum(1)
        return mean + np.exp(log_std) * noise, log_prob

    def mode(self, outputs: Floats) -> Actions:
        """The mean."""
        return outputs[:, : self.dimensions]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """log π(a) = −Σ [((a − μ) / σ)² / 2 + log σ + log(2π) / 2]."""
        mean, log_std = outputs[:, : self.dimensions], outputs[:, self.dimensions :]
        scaled = (action - mean) * torch.exp(-log_std)
        return -(0.5 * scaled**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """H = Σ [log σ + log(2πe) / 2]."""
        return (outputs[:, self.dimensions :] + 0.5 * math.log(2 * math.pi * math.e)).sum(1)


def distribution_for(space: gymnasium.Space[object]) -> Distribution:
    """Return the distribution over the actions of `space`.

    Raises: TargetError for a space without one.
    """
    match space:
        case spaces.Discrete():
            return Categorical(int(space.n), int(space.start))
        case spaces.MultiDiscrete() if space.nvec.ndim == 1:
            starts = np.broadcast_to(space.start, space.nvec.shape)
            return MultiCategorical(
                tuple(Categorical(int(n), int(s)) for n, s in zip(space.nvec, starts, strict=True))
            )
        case spaces.MultiBinary() if len(space.shape) == 1:
            return MultiCategorical((Categorical(2),) * space.shape[0])
        case spaces.Box() if len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
            return Gaussian(space.shape[0])
    raise TargetError(
        f"policy: actions: expected Discrete, MultiDiscrete, MultiBinary or a Box of floats with "
        f"one dimension, got {space}; wrap the env so that it takes one of them"
    )


class ActorCritic(nn.Module):
    """Two separate multi-layer perceptrons of one shape, the actor and the critic, run as one.

    Layer weights are stacked (2, inputs, outputs), so that each layer is one batched product for
    both. The critic's last layer is padded to the actor's width; only its first column is used.
    All parameters lie in one flat vector, `flat`, with a flat gradient: the optimiser and the
    clipping of the norm are one operation each, whatever the number of layers.

    Raises: TargetError for observation or action spaces that it does not support.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[object],
        action_space: gymnasium.Space[object],
        *,
        hidden_sizes: Sequence[int],
        seed: int,
    ) -> None:
        super().__init__()
        if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) > 2:
            raise TargetError(
                f"policy: observations: expected a Box of at most two dimensions, got "
                f"{observation_space}; this policy is a perceptron. Wrap the env, for instance "
                "with gymnasium.wrappers.FlattenObservation"
            )
        self.distribution = distribution_for(action_space)
        # A Gaussian draws beyond the bounds of the env, which receives clipped actions.
        box = action_space if isinstance(action_space, spaces.Box) else None
        self._bounds = None if box is None else (box.low, box.high)
        self._env_dtype = np.dtype(action_space.dtype)
        drawn = np.dtype(np.int64 if box is None else np.float32)
        # Of the actions that are stored and learned from: at least as precise as the env's.
        self.action_dtype = drawn if box is None else np.result_type(drawn, self._env_dtype)
        # Whether the env takes actions as they are drawn.
        self.draws_for_env = box is None and self._env_dtype == drawn
        inputs = math.prod(observation_space.shape)
        # The standard deviations of a Gaussian are parameters, no function of the observation.
        self.free = isinstance(self.distribution, Gaussian)
        outputs = self.distribution.size // 2 if self.free else self.distribution.size
        sizes = [inputs, *hidden_sizes, outputs]
        weights = _orthogonal(sizes, torch.Generator().manual_seed(seed))
        biases = [torch.zeros(2, 1, columns) for columns in sizes[1:]]
        log_std = torch.zeros(outputs if self.free else 0)
        self.flat, self.grad, views = _flattened([*weights, *biases, log_std])
        self.weights, self.biases = views[: len(weights)], views[len(weights) : -1]
        self.log_std = views[-1]
        self._layers = [
            (w.detach().numpy(), b.detach().numpy())
            for w, b in zip(self.weights, self.biases, strict=True)
        ]
        self._log_std = self.log_std.detach().numpy()

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the actor (B, size) and values (B,) of observations (B, inputs)."""
        hidden = obs.expand(2, *obs.shape)
        *inner, last = zip(self.biases, self.weights, strict=True)
        for bias, weight in inner:
            hidden = torch.baddbmm(bias, hidden, weight).tanh()
        actor, critic = torch.baddbmm(last[0], hidden, last[1]).unbind(0)
        if self.free:
            actor = torch.cat((actor, self.log_std.expand_as(actor)), 1)
        return actor, critic[:, 0]

    def outputs(self, obs: NDArray[np.generic]) -> tuple[Floats, Floats]:
        """Compute `forward` without gradients, in numpy, for observations of any type and shape."""
        hidden = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        *inner, last = self._layers
        for weight, bias in inner:
            hidden = np.tanh(hidden @ weight + bias)
        actor, critic = hidden @ last[0] + last[1]
        if self.free:
            actor = np.concatenate((actor, np.broadcast_to(self._log_std, actor.shape)), 1)
        return actor, critic[:, 0]

    def greedy(self, obs: NDArray[np.generic]) -> Actions:
        """Return the likeliest action for each observation, as the env takes it."""
        return self.for_env(self.distribution.mode(self.outputs(obs)[0]))

    def for_env(self, action: Actions) -> Actions:
        """Return actions as the env takes them: in its bounds, and of its type."""
        if self._bounds is not None:
            action = np.clip(action, *self._bounds)
        return action.astype(self._env_dtype, copy=False)


def _orthogonal(sizes: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """Draw the first weights of both nets, (2, inputs, outputs) a layer, from `generator` alone.

    The gains are those that PPO is known to need: a small last layer of the actor makes the first
    actions about equally likely.
    """
    weights = []
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        weight = torch.zeros(2, rows, columns)
        actor, critic = weight[0], weight[1, :, :1] if last else weight[1]
        nn.init.orthogonal_(actor, 0.01 if last else math.sqrt(2), generator=generator)
        nn.init.orthogonal_(critic, 1.0 if last else math.sqrt(2), generator=generator)
        weights.append(weight)
    return weights


def _flattened(tensors: Sequence[Tensor]) -> tuple[nn.Parameter, Tensor, list[Tensor]]:
    """Join tensors into one parameter; returns it, its gradient, and leaves of the tensors' shapes.

    The leaves share the memory of the parameter, and their gradients that of its gradient:
    backward adds up there, the optimiser reads it there.
    """
    flat = nn.Parameter(torch.cat([tensor.reshape(-1) for tensor in tensors]))
    flat.grad = grad = torch.zeros_like(flat)
    sizes = [tensor.numel() for tensor in tensors]
    leaves = []
    shares = zip(torch.split(flat.detach(), sizes), torch.split(grad, sizes), strict=True)
    for tensor, (data, slope) in zip(tensors, shares, strict=True):
        leaf = data.view_as(tensor).requires_grad_()
        leaf.grad = slope.view_as(tensor)
        leaves.append(leaf)
    return flat, grad, leaves
