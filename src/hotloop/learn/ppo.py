"""Proximal policy optimisation (Schulman et al. 2017), in the order in which it happens.

Settings, the learner and its iteration. The stages of an iteration are act, env step and store,
which are the collector's (`hotloop.rollout`), advantages and update. What other learners share
stands elsewhere: the mathematics in `hotloop.ops`, policies in `policies`, workers with policies
of their own in `actors.py`, settings, the optimiser's step and what is saved in `settings.py` and
`learner.py`, training until the policy is good enough in `training.py`.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree
from hotloop.envs.make import make_vec
from hotloop.errors import SettingError
from hotloop.learn.actors import collector_of
from hotloop.learn.learner import (
    Learner,
    loops_of,
    next_values,
    policy_for,
    rows,
    spaces_of,
)
from hotloop.learn.losses import Batch, Figures, Terms, clipped_loss
from hotloop.learn.places import placed
from hotloop.learn.settings import HEAD, SERVER, LearnerSettings
from hotloop.learn.steps import Steps
from hotloop.loop import stage
from hotloop.ops import gae, normalise_advantages
from hotloop.rollout import FragmentCollector, StepCollector
from hotloop.rollout.env_metadata import autoreset_mode, in_process

Array = NDArray[Any]
_LOG = logging.getLogger("hotloop")


@dataclass(frozen=True)
class PPOSettings(LearnerSettings):
    """Everything that a run of PPO depends on; the defaults are tuned for CartPole-v1.

    `backend` may also be auto, which measures; `anneal` lets `clip` fall as well.

    Raises: SettingError for settings that do not fit.
    """

    algorithm: ClassVar[str] = "ppo"

    double_buffer: bool = False
    """Step one half of the envs while the policy, at the head, acts for the other; not serial."""
    epochs: int = 6
    """Passes of an update over its batch."""
    minibatches: int = 1
    """Parts into which a pass cuts the batch of T x B steps; one optimiser step each."""
    clip: float = 0.25
    """How far the probability ratio may leave 1 before its gradient is cut, at the start."""
    gae_lambda: float = 0.95
    """Decay of the advantage's trace a step: 0 trusts the critic, 1 the returns."""
    value_weight: float = 0.5
    """Weight of the critic's squared error in the loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy, which the loss rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_steps % self.minibatches:
            raise SettingError(
                f"ppo: minibatches: expected a divisor of the batch's {self.batch_steps} steps "
                f"(num_envs x fragment_steps), got {self.minibatches}"
            )
        if self.backend == "serial" or self.policy_at != HEAD:
            where = f"backend {self.backend!r} and policy_at {self.policy_at!r}"
            instead = "let the policy act at the head, for envs of workers"
            self._expect_unset("double_buffer", False, where, instead)
        if self.double_buffer and self.num_envs % 2:
            raise SettingError(
                f"ppo: num_envs: expected an even number with double_buffer, which steps them in "
                f"two halves, got {self.num_envs}"
            )


class PPO(Learner):
    """The learner. `iterate` is the loop's body; the methods before it are its stages, in order.

    At the head, one collector steps all envs; elsewhere every worker makes a fragment of its own
    envs with the newest policy, and they are learned from side by side. What an inference server
    computes depends on which requests meet there, in the last bits.

    envs: what to learn on, num_envs envs that reset themselves, such as a simulation's; None for
    envs of settings.env_id on settings.backend.

    Raises: SettingError for settings, and for envs of another number or mode; TargetError for
    spaces that the policy cannot take; what making the envs raises.
    """

    settings: PPOSettings
    settings_type = PPOSettings
    synchronous = True

    def __init__(self, settings: PPOSettings, envs: VectorEnv | None = None) -> None:
        settings = settings if envs is not None else placed(PPO, settings)
        torch.set_num_threads(settings.torch_threads)
        self.synchronous = settings.policy_at != SERVER
        with ExitStack() as on_error:
            if settings.policy_at == HEAD:
                self.envs: Any = _made(settings) if envs is None else envs
                if envs is None:
                    on_error.callback(self.envs.close)
                _check_envs(self.envs, settings)
                spaces = self.envs.single_observation_space, self.envs.single_action_space
                super().__init__(settings, policy_for(settings, *spaces))
                self.collector: StepCollector | FragmentCollector = self._at_head()
            elif envs is None:
                super().__init__(settings, policy_for(settings, *spaces_of(settings.env_id)))
                self.collector = self._elsewhere(settings.seed)
            else:
                raise SettingError(
                    "ppo: policy_at: expected 'head' with envs that are given, got "
                    f"{settings.policy_at!r}; name the envs by env_id, or leave policy_at out"
                )
            on_error.pop_all()
        self.advantages = stage("advantages", self._advantages, effect="pure")
        self.update = stage("update", self._update, effect="stateful")
        # Compiles the kernel now, not in the first iteration.
        gae(*np.zeros((3, 1, 1), np.float32), *np.zeros((2, 1, 1), np.bool_), gamma=1, lambda_=1)

    def _at_head(self) -> StepCollector:
        """Make the collector: the unclipped action is stored, rewards in single precision."""
        s = self.settings
        double_buffer = s.double_buffer and not in_process(self.envs)
        if s.double_buffer and not double_buffer:
            _LOG.info("no double buffering: the envs are stepped in this process")
        return StepCollector(
            self.envs,
            self.policy.actor(self.rng),
            fragment_steps=s.fragment_steps,
            double_buffer=double_buffer,
            seed=s.seed,
            dtypes=self.stored_dtypes(),
            to_env=None if self.policy.draws_for_env else self.policy.for_env,
        )

    def _elsewhere(self, seed: int) -> FragmentCollector:
        """Make the collector of workers that act by themselves, or with an inference server."""
        actor = self.policy.actor(seed)
        dtypes = self.stored_dtypes()
        return collector_of(self.settings, self.policy, actor, dtypes, seed, work_ahead=False)

    def _collect(self) -> list[Fragment]:
        """Collect a fragment of all envs, or one of each worker, in the order of the envs."""
        if isinstance(self.collector, FragmentCollector):
            fragments = self.collector.collect(self.settings.num_actors)
            return sorted(fragments, key=lambda fragment: int(fragment.env_ids[0]))
        return [self.collector.collect()]

    def _advantages(self, steps: Fragment | Steps) -> tuple[Array, Array]:
        """Return advantages and returns, (T, B) each."""
        f = steps
        value = self.values(f.extras["value"])
        return gae(
            f.reward,
            value,
            next_values(f, value, self.value_of(f.last_obs), self.value_of),
            f.terminated,
            f.truncated,
            gamma=self.settings.gamma,
            lambda_=self.settings.gae_lambda,
            valid_t=None if f.valid.all() else f.valid,
        )

    def _update(self, steps: Fragment | Steps, advantage: Array, return_: Array) -> None:
        """Pass over the steps several times."""
        s, left = self.settings, self.left()
        self.set_learning_rate(s.learning_rate * left)
        batch, numbers = self._batch(steps, advantage, return_), {"clip": s.clip * left}
        for part in self.transfer.minibatches(batch, s.epochs, s.minibatches, self.rng):
            terms = self.step(part, numbers)
        value, valid = self.values(steps.extras["value"]), steps.valid
        self._update_figures = Figures(
            terms, self.policy.distribution, value[valid], return_[valid], s.clip * left
        )
        self.observe(steps.obs, valid)

    def loss(self, batch: Batch, numbers: Mapping[str, Any], computed: Any) -> tuple[Tensor, Terms]:
        """PPO's clipped loss, of a minibatch."""
        return clipped_loss(self.policy, self.settings, batch, numbers, computed)

    def _batch(self, steps: Fragment | Steps, advantage: Array, return_: Array) -> Tree:
        """Return what the loss takes of all transitions: a `Batch` of arrays, unnamed."""
        f = steps
        targets = self.value_targets(return_, f.valid)
        parts = (f.obs, f.action, f.extras["log_prob"], advantage, targets)
        obs, action, log_prob, advantage, target = rows(parts, f.valid)
        # Normalised once over the batch, not over each minibatch: the same where there is one.
        advantage = normalise_advantages(advantage)
        return self.policy.prepared(obs), action, log_prob, advantage, target

    def iterate(self) -> int:
        """Collect fragments and update the policy on them; returns the env steps."""
        fragments = self._collect()
        steps = fragments[0] if len(fragments) == 1 else Steps.of(fragments)
        advantage, return_ = self.advantages(steps)
        self.update(steps, advantage, return_)
        if isinstance(self.collector, FragmentCollector):
            self.collector.update(self.policy.weights())
        self.progress.add(fragments)
        return sum(fragment.env_steps for fragment in fragments)

    @property
    def batches(self) -> int:
        """Optimiser steps of an iteration."""
        return self.settings.epochs * self.settings.minibatches

    @property
    def state(self) -> list[object]:
        """What an iteration changes, as its `Loop` declares it."""
        return [*super().state, *self.may_go_on]

    @property
    def may_go_on(self) -> list[object]:
        """The envs and their collector, where they are in this process."""
        return [] if isinstance(self.collector, FragmentCollector) else self.collector.state

    def figures(self) -> dict[str, float]:
        """Those of the last update, and of an inference server."""
        if isinstance(self.collector, FragmentCollector):
            return super().figures() | self.collector.server_figures()
        return super().figures()

    def restart_envs(self) -> None:
        """Begin new episodes in all envs, with seeds that follow from settings and env steps.

        Workers are started anew.
        """
        if isinstance(self.collector, FragmentCollector):
            self.collector.close()
            self.collector = self._elsewhere(self.next_seed())
        else:
            self.collector.reset(self.next_seed())

    def wait_until_started(self) -> None:
        """Wait until all workers have made their first fragments."""
        if isinstance(self.collector, FragmentCollector):
            self.collector.wait_until_started()

    def close(self) -> None:
        """Close the envs, and end workers. Idempotent."""
        if isinstance(self.collector, FragmentCollector):
            self.collector.close()
        else:
            self.envs.close()


PPO_LOOPS = loops_of(PPO, PPOSettings)
"""`ppo:ENV_ID` as a target."""


def _made(settings: PPOSettings) -> VectorEnv:
    return make_vec(
        settings.env_id,
        settings.num_envs,
        backend=settings.backend,
        num_workers=settings.num_workers,
        autoreset_mode="same_step",
        splits=2 if settings.double_buffer else 1,
        copy=settings.copy,
    )


def _check_envs(envs: VectorEnv, settings: PPOSettings) -> None:
    mode = autoreset_mode(envs)
    if envs.num_envs != settings.num_envs or mode == AutoresetMode.DISABLED:
        raise SettingError(
            f"PPO: expected {settings.num_envs} envs (num_envs) with autoreset_mode='same_step' or "
            f"'next_step'; got {envs.num_envs} with {mode}"
        )
