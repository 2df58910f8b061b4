"""Proximal policy optimisation (Schulman et al. 2017), in the order in which it happens.

Settings, the actor that a collector calls, the learner and its iteration. The stages of an
iteration are act, env step and store, which are the collector's (`hotloop.rollout`), advantages
and update. What other learners share stands elsewhere: the mathematics in `hotloop.ops`, the
network in `policy.py`, training until the policy is good enough in `training.py`.
"""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.envs.make import make_vec
from hotloop.errors import SettingError, TargetError, expect_whole
from hotloop.learn.policy import ActorCritic
from hotloop.learn.training import Point, Training, train_until_solved
from hotloop.loop import Loop, stage
from hotloop.loop.target import LoopFamily, settings_of
from hotloop.ops import gae
from hotloop.rollout import StepCollector
from hotloop.rollout.env_metadata import autoreset_mode, in_process

Array = NDArray[Any]
_LOG = logging.getLogger("hotloop")


@dataclass(frozen=True)
class PPOSettings:
    """Everything that a run of PPO depends on; the defaults are tuned for CartPole-v1.

    Raises: TargetError and SettingError for settings that do not fit.
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the env; "module:id" imports the module first."""
    seed: int = 1
    """Seeds the envs (seed, seed + 1, ...), the first parameters and the actions."""
    total_steps: int = 80_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 8
    """Envs stepped side by side (B)."""
    backend: str = "serial"
    """Where the envs are stepped: serial (this process), process, ray, or auto, which measures."""
    num_workers: int | None = None
    """Worker processes or Ray actors; not with serial. None takes what suits the machine."""
    double_buffer: bool = False
    """Step one half of the envs while the policy acts for the other; not with serial."""
    fragment_steps: int = 32
    """Steps of every env between two updates (T)."""
    epochs: int = 6
    """Passes of an update over its batch."""
    minibatches: int = 1
    """Parts into which a pass cuts the batch of T x B steps; one optimiser step each."""
    learning_rate: float = 5e-3
    """Adam's step size at the start."""
    clip: float = 0.25
    """How far the probability ratio may leave 1 before its gradient is cut, at the start."""
    anneal: bool = True
    """Whether learning rate and clip fall linearly, to nothing at `total_steps`."""
    gamma: float = 0.98
    """Discount a step."""
    gae_lambda: float = 0.95
    """Decay of the advantage's trace a step: 0 trusts the critic, 1 the returns."""
    value_weight: float = 0.5
    """Weight of the critic's squared error in the loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy, which the loss rewards."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to this Euclidean norm."""
    hidden_size: int = 64
    """Units of each hidden layer, in the actor and in the critic."""
    hidden_layers: int = 2
    """Hidden layers, of the actor and of the critic."""
    torch_threads: int = 1
    """Threads of torch in this process; small networks are fastest on one."""
    evaluate_every: int = 2048
    """Env steps between two greedy evaluations, which no reported time contains."""
    target_return: float = math.nan
    """Mean greedy return that solves the env; not a number takes the env's own threshold."""

    def __post_init__(self) -> None:
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.type is int}
        for name, value in counts.items():
            if value < (0 if name == "seed" else 1):
                raise TargetError(f"ppo: {name}: expected a positive number, got {value}")
        if self.batch_steps % self.minibatches:
            raise TargetError(
                f"ppo: minibatches: expected a divisor of the batch's {self.batch_steps} steps "
                f"(num_envs x fragment_steps), got {self.minibatches}"
            )
        self._check_backend()

    def _check_backend(self) -> None:
        expect_whole("ppo: num_workers", self.num_workers, 1)
        if self.backend == "serial" and (self.num_workers is not None or self.double_buffer):
            name = "double_buffer" if self.num_workers is None else "num_workers"
            raise SettingError(
                f"ppo: {name}: expected none with backend 'serial', which steps all envs in this "
                f"process, got {getattr(self, name)}; leave it out, or choose another backend, "
                "such as 'process'"
            )
        if self.double_buffer and self.num_envs % 2:
            raise SettingError(
                f"ppo: num_envs: expected an even number with double_buffer, which steps them in "
                f"two halves, got {self.num_envs}"
            )

    @property
    def batch_steps(self) -> int:
        """Env steps that one update receives."""
        return self.num_envs * self.fragment_steps


@dataclass
class Progress:
    """What is counted from one iteration to the next."""

    env_steps: int = 0
    losses: dict[str, float] = field(default_factory=dict)  # of the last minibatch


@dataclass(frozen=True)
class Actor:
    """A policy as a collector calls it; the actions are drawn from `rng`."""

    policy: ActorCritic
    rng: np.random.Generator

    def __call__(self, obs: Array) -> tuple[Array, dict[str, Array]]:
        """Return actions, their log-probabilities, and the values of the observations."""
        outputs, value = self.policy.outputs(obs)
        action, log_prob = self.policy.distribution.sample(outputs, self.rng)
        return action, {"log_prob": log_prob, "value": value}


class PPO:
    """The learner. `iterate` is the loop's body; the methods before it are its stages, in order.

    envs: what to learn on, num_envs envs that reset themselves, such as a simulation's; None for
    envs of settings.env_id on settings.backend.

    Raises: SettingError for settings, and for envs of another number or mode; TargetError for
    spaces that the policy cannot take; what making the envs raises.
    """

    def __init__(self, settings: PPOSettings, envs: VectorEnv | None = None) -> None:
        self.settings = s = settings
        torch.set_num_threads(s.torch_threads)
        self.envs: Any = _made(s) if envs is None else envs
        with ExitStack() as on_error:
            if envs is None:
                on_error.callback(self.envs.close)
            _check_envs(self.envs, s)
            self.policy = ActorCritic(
                self.envs.single_observation_space,
                self.envs.single_action_space,
                hidden_sizes=[s.hidden_size] * s.hidden_layers,
                seed=s.seed,
            )
            self.optimizer = torch.optim.Adam(
                [self.policy.flat], s.learning_rate, eps=1e-5, fused=True
            )
            self.rng = np.random.default_rng(s.seed)
            self.progress = Progress()
            self.collector = self._collector()
            on_error.pop_all()
        self.advantages = stage("advantages", self._advantages, effect="pure")
        self.update = stage("update", self._update, effect="stateful")
        # Compiles the kernel now, not in the first iteration.
        gae(*np.zeros((3, 1, 1), np.float32), *np.zeros((2, 1, 1), np.bool_), gamma=1, lambda_=1)

    def _collector(self) -> StepCollector:
        """Make the collector: the unclipped action is stored, everything in single precision."""
        s = self.settings
        double_buffer = s.double_buffer and not in_process(self.envs)
        if s.double_buffer and not double_buffer:
            _LOG.info("no double buffering: the envs are stepped in this process")
        return StepCollector(
            self.envs,
            Actor(self.policy, self.rng),
            fragment_steps=s.fragment_steps,
            double_buffer=double_buffer,
            seed=s.seed,
            dtypes={
                "obs": np.float32,
                "action": self.policy.action_dtype,
                "reward": np.float32,
            },
            to_env=None if self.policy.draws_for_env else self.policy.for_env,
        )

    def _advantages(self, fragment: Fragment) -> tuple[Array, Array]:
        """Return advantages and returns, (T, B) each."""
        f, value = fragment, fragment.extras["value"]
        next_value = np.concatenate((value[1:], self.policy.outputs(f.last_obs)[1][None]))
        t, b = f.final_t, f.final_b
        cut = f.truncated[t, b]
        if cut.any():  # cut, not over: what would have come is what the critic expects
            next_value[t[cut], b[cut]] = self.policy.outputs(f.final_obs[cut])[1]
        gamma, lambda_ = self.settings.gamma, self.settings.gae_lambda
        return gae(
            f.reward, value, next_value, f.terminated, f.truncated, gamma=gamma, lambda_=lambda_
        )

    def _update(self, fragment: Fragment, advantage: Array, return_: Array) -> dict[str, float]:
        """Pass over the fragment several times; returns the losses of the last minibatch."""
        s, grad = self.settings, self.policy.grad
        # Beyond total_steps, where only a benchmark goes, the work stays and the policy rests.
        left = max(0.0, 1 - self.progress.env_steps / s.total_steps) if s.anneal else 1.0
        self.optimizer.param_groups[0]["lr"] = s.learning_rate * left
        batch = _batch(fragment, advantage, return_)
        for _ in range(s.epochs):
            for part in self._parts(batch):
                loss, losses = self._loss(*part, clip=s.clip * left)
                grad.zero_()
                torch.autograd.backward(loss)
                # By hand: torch's helper, made for lists of tensors, costs 35 µs more, a 25th
                # of an optimiser step.
                grad.mul_((s.max_grad_norm / (grad.norm() + 1e-6)).clamp(max=1.0))
                self.optimizer.step()
        return {name: float(value) for name, value in losses.items()}

    def _parts(self, batch: list[Tensor]) -> Iterator[list[Tensor]]:
        """Cut the batch at random into minibatches; a single one is the batch as it is."""
        if self.settings.minibatches == 1:
            yield batch
            return
        order = torch.from_numpy(self.rng.permutation(len(batch[0])))
        for index in order.chunk(self.settings.minibatches):
            yield [tensor[index] for tensor in batch]

    def _loss(
        self,
        obs: Tensor,
        action: Tensor,
        log_prob: Tensor,
        advantage: Tensor,
        return_: Tensor,
        *,
        clip: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """−E[min(ρA, clip(ρ, 1 ± ε)A)] + c₁ E[(V − R)²] − c₂ E[H], with ρ = π(a) / μ(a).

        Shapes: (N, inputs), (N, ...), then (N,) each; returns a scalar and its parts.
        Source: Schulman et al. 2017, equations 7 and 9.
        """
        s = self.settings
        outputs, value = self.policy(obs)
        ratio = (self.policy.distribution.log_prob(outputs, action) - log_prob).exp()
        clipped = ratio.clamp(1 - clip, 1 + clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = torch.nn.functional.mse_loss(value, return_)
        loss = s.value_weight * error - gain
        if s.entropy_weight:
            loss = loss - s.entropy_weight * self.policy.distribution.entropy(outputs).mean()
        return loss, {"policy": -gain.detach(), "value": error.detach()}

    def iterate(self) -> int:
        """Collect a fragment and update the policy on it; returns the env steps."""
        fragment = self.collector.collect()
        advantage, return_ = self.advantages(fragment)
        self.progress.losses = self.update(fragment, advantage, return_)
        self.progress.env_steps += fragment.env_steps
        return fragment.env_steps


def loop(settings: PPOSettings) -> Loop:
    """Return PPO as a loop that can be measured; one iteration is a fragment and its update.

    Raises: as `PPO`.
    """
    learner = PPO(settings)
    return Loop(
        body=learner.iterate,
        name=f"ppo:{settings.env_id}",
        unit="env steps",
        batches=settings.epochs * settings.minibatches,
        state=[
            learner.policy,
            learner.optimizer,
            *learner.collector.state,
            learner.progress,
            learner.rng,
        ],
        close=learner.envs.close,
    )


PPO_LOOPS = LoopFamily(
    lambda env_id, settings: loop(settings_of(PPOSettings, {**settings, "env_id": env_id}))
)
"""`ppo:ENV_ID` as a target."""


def train(
    settings: PPOSettings, *, on_iteration: Callable[[Point], None] | None = None
) -> Training:
    """Train until two greedy evaluations in a row reach the target, or `total_steps` are used.

    Raises: as `PPO`, and what the env raises; the envs are closed in any case.
    """
    learner = PPO(settings)
    try:
        return train_until_solved(
            learner.iterate,
            learner.policy,
            env_id=settings.env_id,
            total_steps=settings.total_steps,
            evaluate_every=settings.evaluate_every,
            target_return=settings.target_return,
            on_iteration=on_iteration,
        )
    finally:
        learner.envs.close()


def _made(settings: PPOSettings) -> VectorEnv:
    return make_vec(
        settings.env_id,
        settings.num_envs,
        backend=settings.backend,
        num_workers=settings.num_workers,
        autoreset_mode="same_step",
        splits=2 if settings.double_buffer else 1,
    )


def _check_envs(envs: VectorEnv, settings: PPOSettings) -> None:
    mode = autoreset_mode(envs)
    if envs.num_envs != settings.num_envs or mode == AutoresetMode.DISABLED:
        raise SettingError(
            f"PPO: expected {settings.num_envs} envs (num_envs) with autoreset_mode='same_step' or "
            f"'next_step'; got {envs.num_envs} with {mode}"
        )


def _batch(fragment: Fragment, advantage: Array, return_: Array) -> list[Tensor]:
    """Return what the loss takes of all transitions: (N, inputs), (N, ...), then (N,) each."""
    f = fragment
    valid: Any = slice(None) if f.valid.all() else f.valid.reshape(-1)
    obs, action, log_prob, advantage, return_ = (
        array.reshape(-1, *array.shape[2:])[valid]
        for array in (f.obs, f.action, f.extras["log_prob"], advantage, return_)
    )
    # Normalised once over the batch, not over each minibatch: the same where there is one.
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    obs = obs.reshape(len(obs), -1)
    return [torch.from_numpy(a) for a in (obs, action, log_prob, advantage, return_)]
