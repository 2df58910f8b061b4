"""Distributions of actions: drawn from with NumPy, learned from with tensors.

The methods of learning use the methods of the tensors that they are given, so that this module
imports no torch: actors in worker processes do not need it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.errors import TargetError

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]
Actions = NDArray[Any]


class Distribution(Protocol):
    """The distribution of actions for the outputs of an actor. B is the batch, or T x B."""

    @property
    def size(self) -> int:
        """Outputs of the actor for one observation."""
        ...

    @property
    def free(self) -> int:
        """Outputs, the last ones, that are parameters and no function of the observation."""
        ...

    @property
    def choices(self) -> "tuple[Categorical, ...]":
        """The choices whose logits are the outputs, in order; none for continuous actions."""
        ...

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Draw actions for outputs (B, size); returns them and their log-probabilities (B,)."""
        ...

    def mode(self, outputs: Floats) -> Actions:
        """Return the likeliest action for each of outputs (B, size)."""
        ...

    def log_prob(self, outputs: "Tensor", action: "Tensor") -> "Tensor":
        """Return log π(action), (B,), differentiable."""
        ...

    def entropy(self, outputs: "Tensor") -> "Tensor":
        """Return the entropy of π, (B,), differentiable."""
        ...

    def evaluated(self, outputs: "Tensor", action: "Tensor") -> "Evaluated":
        """Return log π(action) and the entropy, with their derivatives; without a graph."""
        ...


class Evaluated(Protocol):
    """A distribution at outputs (B, size) and actions, for gradients that are written out."""

    @property
    def log_prob(self) -> "Tensor":
        """log π(action), (B,)."""
        ...

    @property
    def entropy(self) -> "Tensor":
        """(B,)."""
        ...

    def gradient(self, by_log_prob: "Tensor", by_entropy: float) -> "Tensor":
        """Return the gradient (B, size) by the outputs of Σ by_log_prob log π + by_entropy Σ H.

        by_log_prob: (B,).
        """
        ...


@dataclass(frozen=True)
class Categorical:
    """One choice among `size`, numbered from `start`; the outputs are logits."""

    size: int
    start: int = 0
    free = 0

    @property
    def choices(self) -> "tuple[Categorical, ...]":
        """Itself."""
        return (self,)

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Invert the cumulative probabilities at one uniform number a row.

        A choice of probability 0 is never drawn: the number is below the total, and steps over
        choices that add nothing to the sum.
        """
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

    def log_prob(self, outputs: "Tensor", action: "Tensor") -> "Tensor":
        """log π(a) = logit_a − log Σ exp logit."""
        return outputs.log_softmax(1).gather(1, self._index(action)).squeeze(1)

    def entropy(self, outputs: "Tensor") -> "Tensor":
        """H = −Σ π log π."""
        return _entropy(outputs.log_softmax(1))

    def evaluated(self, outputs: "Tensor", action: "Tensor") -> "EvaluatedChoice":
        """By one softmax."""
        return EvaluatedChoice(outputs.log_softmax(1), self._index(action))

    def _index(self, action: "Tensor") -> "Tensor":
        return (action - self.start if self.start else action).unsqueeze(1)


def _entropy(log_probs: "Tensor") -> "Tensor":
    return -(log_probs.exp() * log_probs).sum(1)


class EvaluatedChoice:
    """One choice: log-probabilities (B, size), and which option was taken, (B, 1)."""

    def __init__(self, log_probs: "Tensor", index: "Tensor") -> None:
        self._log_probs, self._index = log_probs, index
        self.log_prob = log_probs.gather(1, index).squeeze(1)
        self._probs = log_probs.exp()

    @cached_property
    def entropy(self) -> "Tensor":
        """H = −Σ π log π."""
        return -(self._probs * self._log_probs).sum(1)

    def gradient(self, by_log_prob: "Tensor", by_entropy: float) -> "Tensor":
        """∂ log π_a / ∂z = 1_a − π and ∂H / ∂z = −π (log π + H), for logits z."""
        taken = by_log_prob.unsqueeze(1)
        found = (self._probs * -taken).scatter_add_(1, self._index, taken)
        if by_entropy:
            surprise = self._log_probs + self.entropy.unsqueeze(1)
            found.addcmul_(self._probs, surprise, value=-by_entropy)
        return found


@dataclass(frozen=True)
class MultiCategorical:
    """Several independent choices; the outputs are their logits, one after the other."""

    choices: tuple[Categorical, ...]
    free = 0

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

    def log_prob(self, outputs: "Tensor", action: "Tensor") -> "Tensor":
        """The sum over the choices."""
        parts = zip(
            self.choices, outputs.tensor_split(self._cuts, 1), action.unbind(1), strict=True
        )
        return _total([choice.log_prob(part, taken) for choice, part, taken in parts])

    def entropy(self, outputs: "Tensor") -> "Tensor":
        """The sum over the choices."""
        parts = zip(self.choices, outputs.tensor_split(self._cuts, 1), strict=True)
        return _total([choice.entropy(part) for choice, part in parts])

    def evaluated(self, outputs: "Tensor", action: "Tensor") -> "EvaluatedChoices":
        """Each choice by itself."""
        parts = zip(
            self.choices, outputs.tensor_split(self._cuts, 1), action.unbind(1), strict=True
        )
        return EvaluatedChoices([choice.evaluated(part, taken) for choice, part, taken in parts])


class EvaluatedChoices:
    """Several independent choices."""

    def __init__(self, choices: "Sequence[EvaluatedChoice]") -> None:
        self._choices = choices
        self.log_prob = _total([choice.log_prob for choice in choices])

    @property
    def entropy(self) -> "Tensor":
        """The sum over the choices."""
        return _total([choice.entropy for choice in self._choices])

    def gradient(self, by_log_prob: "Tensor", by_entropy: float) -> "Tensor":
        """Those of the choices side by side, as each has outputs of its own."""
        parts = [choice.gradient(by_log_prob, by_entropy) for choice in self._choices]
        found = by_log_prob.new_empty((len(by_log_prob), sum(part.shape[1] for part in parts)))
        start = 0
        for part in parts:
            found[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        return found


def _total(parts: "Sequence[Tensor]") -> "Tensor":
    first, *others = parts
    return sum(others, first)


@dataclass(frozen=True)
class Gaussian:
    """Independent normals around the outputs' first half; the second half is log σ."""

    dimensions: int
    choices = ()

    @property
    def size(self) -> int:
        """A mean and a log standard deviation for each dimension."""
        return 2 * self.dimensions

    @property
    def free(self) -> int:
        """The standard deviations are parameters, no function of the observation."""
        return self.dimensions

    def sample(self, outputs: Floats, rng: np.random.Generator) -> tuple[Actions, Floats]:
        """Mean plus σ times standard normals; not clipped to the env's bounds."""
        mean, log_std = outputs[:, : self.dimensions], outputs[:, self.dimensions :]
        noise = rng.standard_normal(mean.shape, np.float32)
        log_prob = -(0.5 * noise**2 + log_std + 0.5 * np.float32(math.log(2 * math.pi))).sum(1)
        return mean + np.exp(log_std) * noise, log_prob

    def mode(self, outputs: Floats) -> Actions:
        """The mean."""
        return outputs[:, : self.dimensions]

    def log_prob(self, outputs: "Tensor", action: "Tensor") -> "Tensor":
        """log π(a) = −Σ [((a − μ) / σ)² / 2 + log σ + log(2π) / 2]."""
        mean, log_std = outputs[:, : self.dimensions], outputs[:, self.dimensions :]
        return _normal_log_prob((action - mean) * (-log_std).exp(), log_std)

    def entropy(self, outputs: "Tensor") -> "Tensor":
        """H = Σ [log σ + log(2πe) / 2]."""
        return (outputs[:, self.dimensions :] + 0.5 * math.log(2 * math.pi * math.e)).sum(1)

    def evaluated(self, outputs: "Tensor", action: "Tensor") -> "EvaluatedGaussian":
        """By the distances from the means, in standard deviations."""
        return EvaluatedGaussian(self, outputs, action)


def _normal_log_prob(distance: "Tensor", log_std: "Tensor") -> "Tensor":
    return -(0.5 * distance**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(1)


class EvaluatedGaussian:
    """Independent normals around the first half of outputs (B, size)."""

    def __init__(self, gaussian: Gaussian, outputs: "Tensor", action: "Tensor") -> None:
        self._gaussian, self._outputs = gaussian, outputs
        mean, log_std = outputs[:, : gaussian.dimensions], outputs[:, gaussian.dimensions :]
        self._inverse = (-log_std).exp()  # 1 / σ
        self._distance = (action - mean) * self._inverse
        self.log_prob = _normal_log_prob(self._distance, log_std)

    @property
    def entropy(self) -> "Tensor":
        """H = Σ [log σ + log(2πe) / 2]."""
        return self._gaussian.entropy(self._outputs)

    def gradient(self, by_log_prob: "Tensor", by_entropy: float) -> "Tensor":
        """∂ log π / ∂μ = d / σ, ∂ log π / ∂ log σ = d² − 1 and ∂H / ∂ log σ = 1, d: distance."""
        size, by = self._gaussian.dimensions, by_log_prob.unsqueeze(1)
        found = by.new_empty((len(by), 2 * size))
        found[:, :size] = by * self._distance * self._inverse
        found[:, size:] = by * (self._distance**2 - 1) + by_entropy
        return found


@dataclass(frozen=True, eq=False)
class ActionSpec:
    """The actions of one space: how they are drawn, stored, and given to the env.

    dtype: of the actions that are stored and learned from: at least as precise as the env's.
    bounds: lowest and highest, of a Box; a Gaussian draws beyond them.
    """

    distribution: Distribution
    dtype: np.dtype[Any]
    env_dtype: np.dtype[Any]
    bounds: tuple[Actions, Actions] | None

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> "ActionSpec":
        """The actions of `space`. Raises: TargetError for a space without a distribution."""
        distribution, env_dtype = distribution_for(space), np.dtype(space.dtype)
        if isinstance(space, spaces.Box):
            stored = np.result_type(np.float32, env_dtype)
            return cls(distribution, stored, env_dtype, (space.low, space.high))
        return cls(distribution, np.dtype(np.int64), env_dtype, None)

    @property
    def draws_for_env(self) -> bool:
        """Whether the env takes actions as they are drawn."""
        return self.bounds is None and self.env_dtype == self.dtype

    def for_env(self, action: Actions) -> Actions:
        """Return actions as the env takes them: in its bounds, and of its type."""
        if self.bounds is not None:
            action = np.clip(action, *self.bounds)
        return action.astype(self.env_dtype, copy=False)


def distribution_for(space: gymnasium.Space[Any]) -> Distribution:
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
