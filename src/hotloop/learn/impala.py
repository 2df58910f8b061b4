"""IMPALA (Espeholt et al. 2018): actors act, a learner corrects for their lag by V-trace.

Settings, and the update. How fragments come from actors to the update stands in `actors.py`,
V-trace in `correction.py` and `hotloop.ops`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.learn.actors import ActorSettings, AsynchronousLearner
from hotloop.learn.correction import compile_kernel, corrected
from hotloop.learn.learner import loops_of, rows
from hotloop.learn.losses import Batch, Figures, Terms
from hotloop.learn.steps import Steps
from hotloop.loop import stage


@dataclass(frozen=True)
class IMPALASettings(ActorSettings):
    """Everything that a run of IMPALA depends on; the defaults are tuned for CartPole-v1.

    Raises: SettingError for settings that do not fit.
    """

    algorithm: ClassVar[str] = "impala"

    total_steps: int = 400_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 32
    """Envs of all actors together."""
    fragment_steps: int = 20
    """Steps of every env in a fragment (T)."""
    normalise_values: bool = True
    """Whether the critic learns returns shifted and scaled by their running mean and deviation."""
    learning_rate: float = 2e-3
    """Adam's step size at the start."""
    anneal: bool = False
    """Whether the learning rate falls linearly, to nothing at `total_steps`."""
    value_weight: float = 0.5
    """Weight of the critic's squared error in the loss."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy, which the loss rewards."""
    trace_lambda: float = 0.95
    """λ of V-trace: decay of its trace a step, 0 trusts the critic, 1 the returns."""
    clip_rho: float = 1.0
    """ρ̄ of V-trace: probability ratios above it count as this much in the critic's targets."""
    clip_pg_rho: float = 1.0
    """ρ̄_pg of V-trace: ratios above it count as this much in the policy's gradient."""


class IMPALA(AsynchronousLearner):
    """The learner; `iterate` takes a batch, updates, and sends the parameters out."""

    settings: IMPALASettings
    settings_type = IMPALASettings

    def __init__(self, settings: IMPALASettings) -> None:
        super().__init__(settings)
        self.update = stage("update", self._update, effect="stateful")
        compile_kernel()

    @property
    def batches(self) -> int:
        """Optimiser steps of an iteration."""
        return 1

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        """Update once, with the fragments side by side."""
        self.update(Steps.of(fragments))
        return True

    def _update(self, steps: Steps) -> None:
        """One step down −E[A log π(a)] + c₁ E[(V − vs)²] − c₂ E[H]; A and vs are V-trace's.

        Source: Espeholt et al. 2018, section 4.2.
        """
        s, distribution = self.settings, self.policy.distribution
        self.set_learning_rate(s.learning_rate * self.left())
        length, width = steps.reward.shape
        obs, action, behaviour = self.transfer.move(
            (
                self.policy.prepared(rows(steps.all_obs)),
                rows(steps.action),
                rows(steps.extras["log_prob"]),
            )
        )
        with self.step.computing():
            # One pass for the observations acted on and the last ones, which only bootstrap.
            computed = _, critic, log_prob = self._computed(obs, action)
            log_ratio = log_prob - behaviour
        value = self.values(critic.detach().cpu().numpy()).reshape(length + 1, width)
        rho = log_ratio.detach().exp().cpu().numpy().reshape(length, width)
        trace = corrected(s, steps, value, rho, self.value_of, clip_pg_rho=s.clip_pg_rho)
        targets = self.value_targets(trace.target, steps.valid)
        target, advantage = self.transfer.move((rows(targets), rows(trace.advantage)))
        terms = self.step(Batch(obs, action, behaviour, advantage, target), {}, computed)
        self.observe(steps.obs, steps.valid)
        valid = steps.valid
        self._update_figures = Figures(terms, distribution, value[:-1][valid], trace.target[valid])

    def loss(self, batch: Batch, numbers: Mapping[str, Any], computed: Any) -> tuple[Tensor, Terms]:
        """The loss of `_update`; the observations of the batch are all, also the last ones."""
        del numbers
        s, distribution = self.settings, self.policy.distribution
        if computed is None:
            computed = self._computed(batch.obs, batch.action)
        outputs, critic, log_prob = computed
        # Steps that are no transitions have the advantage 0, and their own value for a target.
        gain = (batch.advantage * log_prob).mean()
        error = torch.nn.functional.mse_loss(critic[: len(outputs)], batch.target)
        loss = s.value_weight * error - gain
        entropy = None
        if s.entropy_weight:
            entropy = distribution.entropy(outputs).mean()
            loss = loss - s.entropy_weight * entropy
        return loss, Terms(gain, error, entropy, log_prob - batch.log_prob, outputs)

    def _computed(self, obs: Any, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs for the observations acted on, values of all, and log π of the actions."""
        outputs, critic = self.policy(obs)
        outputs = outputs[: len(action)]
        return outputs, critic, self.policy.distribution.log_prob(outputs, action)


IMPALA_LOOPS = loops_of(IMPALA, IMPALASettings)
"""`impala:ENV_ID` as a target."""
