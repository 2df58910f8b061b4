"""Asynchronous PPO: actors act while a learner passes over each batch several times.

PPO's clipped loss bounds how far an update moves from the policy that acted, whose lag is part of
that distance; V-trace (Espeholt et al. 2018) corrects what the critic learns. How fragments come
from actors to the update stands in `actors.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.errors import SettingError
from hotloop.learn.actors import ActorSettings, AsynchronousLearner
from hotloop.learn.correction import compile_kernel, corrected
from hotloop.learn.learner import Array, loops_of, rows
from hotloop.learn.losses import Batch, Figures, Terms, clipped_loss
from hotloop.learn.policies.tensors import to_tensors
from hotloop.learn.steps import Steps
from hotloop.loop import stage
from hotloop.ops import normalise_advantages


@dataclass(frozen=True)
class APPOSettings(ActorSettings):
    """Everything that a run of asynchronous PPO depends on; the defaults are for CartPole-v1.

    Raises: SettingError for settings that do not fit.
    """

    algorithm: ClassVar[str] = "appo"

    total_steps: int = 200_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 16
    """Envs of all actors together."""
    epochs: int = 4
    """Passes of an update over its batch."""
    minibatches: int = 1
    """Parts into which a pass cuts the batch; one optimiser step each."""
    clip: float = 0.25
    """How far the probability ratio may leave 1 before its gradient is cut, at the start."""
    value_weight: float = 0.5
    """Weight of the critic's squared error in the loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy, which the loss rewards."""
    trace_lambda: float = 0.95
    """λ of V-trace: decay of its trace a step, 0 trusts the critic, 1 the returns."""
    clip_rho: float = 1.0
    """ρ̄ of V-trace: probability ratios above it count as this much in the critic's targets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.batch_fragments * self.fragment_steps * self.num_envs // self.num_actors
        if steps % self.minibatches:
            raise SettingError(
                f"appo: minibatches: expected a divisor of the batch's {steps} steps "
                f"(batch_fragments x fragment_steps x envs of an actor), got {self.minibatches}"
            )


class APPO(AsynchronousLearner):
    """The learner; `iterate` takes a batch, updates, and sends the parameters out."""

    settings: APPOSettings
    settings_type = APPOSettings

    def __init__(self, settings: APPOSettings) -> None:
        super().__init__(settings)
        self.update = stage("update", self._update, effect="stateful")
        compile_kernel()

    @property
    def batches(self) -> int:
        """Optimiser steps of an iteration."""
        return self.settings.epochs * self.settings.minibatches

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        """Update once, with the fragments side by side."""
        self.update(Steps.of(fragments))
        return True

    def _update(self, steps: Steps) -> None:
        """Several passes down PPO's loss, with advantages and targets of V-trace."""
        s, left = self.settings, self.left()
        self.set_learning_rate(s.learning_rate * left)
        value, advantage, target = self._targets(steps)
        arrays = (
            steps.action,
            steps.extras["log_prob"],
            normalise_advantages(advantage, steps.valid),
            self.value_targets(target, steps.valid),
        )
        obs = self.policy.prepared(rows(steps.obs, steps.valid))
        batch, numbers = (obs, *rows(arrays, steps.valid)), {"clip": s.clip * left}
        for part in self.transfer.minibatches(batch, s.epochs, s.minibatches, self.rng):
            terms = self.step(part, numbers)
        valid = steps.valid
        self._update_figures = Figures(
            terms, self.policy.distribution, value[valid], target[valid], s.clip * left
        )
        self.observe(steps.obs, valid)

    def loss(self, batch: Batch, numbers: Mapping[str, Any], computed: Any) -> tuple[Tensor, Terms]:
        """PPO's clipped loss, of a minibatch."""
        return clipped_loss(self.policy, self.settings, batch, numbers, computed)

    def _targets(self, steps: Steps) -> tuple[Array, Array, Array]:
        """Return values, advantages and what the critic is to learn, (T, B) each."""
        length, width = steps.reward.shape
        outputs, critic = self.policy.outputs(rows(steps.all_obs))
        value = self.values(critic).reshape(length + 1, width)
        with torch.no_grad():
            log_prob = self.policy.distribution.log_prob(
                *to_tensors((outputs[: length * width], rows(steps.action)), torch.device("cpu"))
            )
        rho = np.exp(log_prob.numpy().reshape(length, width) - steps.extras["log_prob"])
        trace = corrected(self.settings, steps, value, rho, self.value_of)
        # The loss has a ratio of its own: that of V-trace's advantage, min(1, ρ), is taken out.
        limited = np.minimum(rho, 1)
        advantage = np.divide(
            trace.advantage, limited, out=np.zeros_like(limited), where=limited > 0
        )
        return value[:-1], advantage, trace.target


APPO_LOOPS = loops_of(APPO, APPOSettings)
"""`appo:ENV_ID` as a target."""
