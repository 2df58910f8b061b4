"""The parts of losses that several learners share, and the figures that say how learning goes."""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from hotloop.data.layout import leaves, tree_map
from hotloop.learn.policies.distributions import Distribution
from hotloop.learn.policies.policy import Policy

# What is gathered of a batch at once, at most: the rows of several minibatches.
MOST_GATHERED_BYTES = 1 << 25


class Batch(NamedTuple):
    """Transitions as PPO's loss takes them, N of them."""

    obs: Any
    """What the policy takes: a tree of tensors (N, ...)."""
    action: Tensor
    """(N, ...), as drawn."""
    log_prob: Tensor
    """(N,), log μ(a) of the policy that acted."""
    advantage: Tensor
    """(N,)."""
    target: Tensor
    """(N,): what the critic is to learn."""

    def parts(self, count: int, rng: np.random.Generator) -> Iterator["Batch"]:
        """Cut the batch at random into `count` minibatches; a single one is the batch as it is."""
        if count == 1:
            yield self
            return
        rows = len(self.action)
        order = torch.from_numpy(rng.permutation(rows)).to(self.action.device)
        size = -(-rows // count)
        # Many small minibatches are gathered at once: one by one it would take 30 µs for each.
        gathered_bytes = size * sum(leaf[:1].nbytes for leaf in leaves(tuple(self)))
        for index in order.split(size * max(1, MOST_GATHERED_BYTES // gathered_bytes)):
            columns = [_cut(tree_map(operator.itemgetter(index), part), size) for part in self]
            yield from map(Batch._make, zip(*columns, strict=True))


def _cut(tree: Any, rows: int) -> Iterable[Any]:
    """Cut a tree of tensors (N, ...) into trees of so many rows, and of what is left."""
    if isinstance(tree, Tensor):
        views: Sequence[Tensor] = tree.split(rows)
        return views
    count = len(next(leaves(tree)))
    parts = (slice(start, start + rows) for start in range(0, count, rows))
    return (tree_map(operator.itemgetter(part), tree) for part in parts)


class Terms(NamedTuple):
    """What a loss is made of. N transitions."""

    gain: Tensor  # what the policy's gradient ascends, a scalar
    value_error: Tensor  # mean squared error of the critic, a scalar
    entropy: Tensor | None  # mean entropy of the policy, a scalar; None where it has no weight
    log_ratio: Tensor  # log π(a) − log μ(a), (N,)
    outputs: Tensor  # of the actor, (N, size)


class ClippedSettings(Protocol):
    """The settings of PPO's loss."""

    @property
    def value_weight(self) -> float:
        """Weight of the critic's squared error."""
        ...

    @property
    def entropy_weight(self) -> float:
        """Weight of the policy's entropy."""
        ...


def clipped_loss(
    policy: Policy,
    settings: ClippedSettings,
    batch: Batch,
    numbers: Mapping[str, Any],
    computed: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Terms]:
    """−E[min(ρA, clip(ρ, 1 ± ε)A)] + c₁ E[(V − R)²] − c₂ E[H], with ρ = π(a) / μ(a).

    numbers: "clip", ε. computed: outputs and values of the policy for the batch, if they are known.
    Returns a scalar and its terms.
    Source: Schulman et al. 2017, equations 7 and 9.
    """
    outputs, value = policy(batch.obs) if computed is None else computed
    weights = LossWeights(settings.value_weight, settings.entropy_weight, numbers["clip"])
    # A compiler derives the gradient of the plain formula, and better than it is written out here.
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return _derived_loss(policy.distribution, outputs, value, batch, weights)
    with torch.no_grad():
        loss, gradients, terms = _loss_and_gradients(
            policy.distribution, outputs, value, batch, weights
        )
    with_graph: Tensor = _WithGradients.apply(outputs, value, loss, *gradients)  # type: ignore[no-untyped-call]
    return with_graph, terms


class LossWeights(NamedTuple):
    """What the parts of PPO's loss weigh, and the bound of its ratio."""

    value: float
    entropy: float
    clip: float | Tensor


def _derived_loss(
    distribution: Distribution, outputs: Tensor, value: Tensor, batch: Batch, weights: LossWeights
) -> tuple[Tensor, Terms]:
    """The loss by its formula, whose gradient torch derives."""
    log_ratio = distribution.log_prob(outputs, batch.action) - batch.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - weights.clip, 1 + weights.clip)  # type: ignore[arg-type]
    gain = torch.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    error = torch.nn.functional.mse_loss(value, batch.target)
    loss, entropy = weights.value * error - gain, None
    if weights.entropy:
        entropy = distribution.entropy(outputs).mean()
        loss = loss - weights.entropy * entropy
    return loss, Terms(gain, error, entropy, log_ratio, outputs)


def _loss_and_gradients(
    distribution: Distribution, outputs: Tensor, value: Tensor, batch: Batch, weights: LossWeights
) -> tuple[Tensor, tuple[Tensor, Tensor], Terms]:
    """The loss, and its gradients by outputs and values written out.

    Without a graph of the loss a step of the optimiser takes 414 in place of 461 µs, with 64
    transitions and two layers of 64.
    """
    count, clip = len(value), weights.clip
    at = distribution.evaluated(outputs, batch.action)
    log_ratio = at.log_prob - batch.log_prob
    ratio = log_ratio.exp()
    # The smaller of ρA and clip(ρ)A has the ratio bounded on one side, by the sign of A.
    is_good = batch.advantage >= 0
    lowest = torch.where(is_good, -math.inf, 1 - clip)
    highest = torch.where(is_good, 1 + clip, math.inf)
    bounded = ratio.clamp(lowest, highest)
    gained = bounded * batch.advantage
    gain = gained.mean()
    # Zero where the ratio is bounded; what is no number stays so, as a factor and not by a choice.
    by_log_prob = gained * (bounded == ratio) * (-1 / count)
    missed = value - batch.target
    error = (missed * missed).mean()
    loss, entropy = weights.value * error - gain, None
    if weights.entropy:
        entropy = at.entropy.mean()
        loss = torch.sub(loss, entropy, alpha=weights.entropy)
    gradients = (
        at.gradient(by_log_prob, -weights.entropy / count),
        missed * (2 * weights.value / count),
    )
    return loss, gradients, Terms(gain, error, entropy, log_ratio, outputs)


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients by outputs and values are known."""

    @staticmethod
    def forward(
        ctx: Any,
        _outputs: Tensor,
        _value: Tensor,
        loss: Tensor,
        by_outputs: Tensor,
        by_value: Tensor,
    ) -> Tensor:
        """Keep the gradients."""
        ctx.save_for_backward(by_outputs, by_value)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Hand them out."""
        by_outputs, by_value = ctx.saved_tensors
        return by_loss * by_outputs, by_loss * by_value, None, None, None


class Figures:
    """The figures of an update by the names that CleanRL logs, computed when asked for.

    value, return_: what the critic said of the transitions, and what came. clip: of the ratio.
    """

    def __init__(
        self,
        terms: Terms,
        distribution: Distribution,
        value: NDArray[Any],
        return_: NDArray[Any],
        clip: float | None = None,
    ) -> None:
        # Without the graph, which would keep all of an update's memory.
        self._terms = Terms._make(None if term is None else term.detach() for term in terms)
        self._distribution, self._clip = distribution, clip
        self._value, self._return = value, return_

    @torch.no_grad()
    def __call__(self) -> dict[str, float]:
        """approx_kl is E[(ρ − 1) − log ρ], old_approx_kl E[−log ρ]: two estimates of KL(μ, π)."""
        gain, value_error, entropy, log_ratio, outputs = self._terms
        ratio = log_ratio.exp()
        if entropy is None:
            entropy = self._distribution.entropy(outputs).mean()
        figures = {
            "policy_loss": -gain,
            "value_loss": value_error,
            "entropy": entropy,
            "old_approx_kl": -log_ratio.mean(),
            "approx_kl": (ratio - 1 - log_ratio).mean(),
        }
        if self._clip is not None:
            figures["clipfrac"] = ((ratio - 1).abs() > self._clip).float().mean()
        found = {name: float(figure) for name, figure in figures.items()}
        return found | {"explained_variance": explained_variance(self._value, self._return)}


def explained_variance(value: NDArray[Any], return_: NDArray[Any]) -> float:
    """1 − Var(R − V) / Var(R) over arrays of one shape; not a number for equal returns.

    1: the critic foresees every return; 0: no better than their mean.
    """
    variance = float(np.var(return_))
    return float("nan") if variance == 0 else 1 - float(np.var(return_ - value)) / variance
