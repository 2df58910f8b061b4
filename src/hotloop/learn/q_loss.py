"""The loss of Ape-X: errors of Q against a target network, weighted as they were drawn."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hotloop.learn.policies.explorer import action_values
from hotloop.learn.policies.policy import Policy


class DrawnBatch(NamedTuple):
    """What an optimiser step learns from: n transitions, as tensors or arrays."""

    obs: Any
    """What the policy takes: a tree of (n, ...)."""
    action: Any
    """(n,), as stored."""
    reward: Any
    """(n,), of n steps."""
    discount: Any
    """(n,), of what comes after them."""
    next_obs: Any
    """As `obs`."""
    weight: Any
    """(n,), that correct for the priorities."""


class Errors(NamedTuple):
    """The terms of the loss, without gradients."""

    loss: Tensor  # a scalar
    q: Tensor  # of what was done, (n,)
    error: Tensor  # y − Q, (n,)


@dataclass(frozen=True)
class QLoss:
    """E[w · huber(y − Q(x, a))] with y = R + discount · Q_target(x', argmax Q(x')).

    first: the number of the first action. double: whether the policy chooses the action that the
    target network values, or that one itself.
    Source: Horgan et al. 2018, section 3; the double estimate: van Hasselt et al. 2016.
    """

    policy: Policy
    target: Policy
    first: int
    dueling: bool
    double: bool

    def __call__(self, batch: DrawnBatch, y: Tensor | None) -> tuple[Tensor, Errors]:
        """Return the loss, a scalar, and its terms; y: (n,), if it is known."""
        target = batch.reward + batch.discount * self.best(batch.next_obs) if y is None else y
        chosen = (batch.action - self.first)[:, None]
        q = self._q(self.policy(batch.obs)).gather(1, chosen).squeeze(1)
        losses = torch.nn.functional.huber_loss(q, target, reduction="none")
        loss = (batch.weight * losses).mean()
        return loss, Errors(loss.detach(), q.detach(), (target - q).detach())

    @torch.no_grad()
    def best(self, next_obs: Any) -> Tensor:
        """The target network's Q of the best action in each observation, (n,)."""
        following = self._q(self.target(next_obs))
        chooses = self._q(self.policy(next_obs)) if self.double else following
        return following.gather(1, chooses.argmax(1, keepdim=True)).squeeze(1)

    def _q(self, computed: tuple[Tensor, Tensor]) -> Tensor:
        q: Tensor = action_values(*computed, dueling=self.dueling)
        return q
