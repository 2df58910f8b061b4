"""Proximal policy optimisation (Schulman et al. 2017), in the order in which it happens.

Settings, the fragment, the five stages (act, env step, store, advantages, update), one iteration
of them. What other learners share stands elsewhere: the mathematics in `hotloop.ops`,
the network in `policy.py`, training until the policy has proved itself in `training.py`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Layout
from hotloop.envs.make import make_env
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, TargetError
from hotloop.learn.policy import ActorCritic
from hotloop.learn.training import Point, Training, train_until_solved
from hotloop.loop import Loop, stage
from hotloop.ops import gae

Array = NDArray[Any]


@dataclass(frozen=True)
class PPOSettings:
    """Everything that a run of PPO depends on; the defaults are tuned for CartPole-v1."""

    env_id: str = "CartPole-v1"
    """Gymnasium id of the env; "module:id" imports the module first."""
    seed: int = 1
    """Seeds the envs (seed, seed + 1, ...), the first parameters and the actions."""
    total_steps: int = 80_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 8
    """Envs stepped side by side in this process (B)."""
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

    @property
    def batch_steps(self) -> int:
        """Env steps that one update receives."""
        return self.num_envs * self.fragment_steps


def fragment_for(settings: PPOSettings, obs: Array, action: Array) -> Fragment:
    """Room for observations and actions like these, (B, ...) each, in the learner's precision."""
    number = Layout(np.dtype(np.float32), ())
    return Fragment.empty(
        FragmentSpec(
            steps=settings.fragment_steps,
            envs=settings.num_envs,
            obs=Layout(np.dtype(np.float32), obs.shape[1:]),
            action=Layout(action.dtype, action.shape[1:]),
            reward=number,
            extras=(("log_prob", number), ("value", number)),
        )
    )


@dataclass
class Progress:
    """What moves from one iteration to the next."""

    obs: Array  # (B, ...), where every env stands
    env_steps: int = 0
    losses: dict[str, float] = field(default_factory=dict)  # of the last minibatch


class PPO:
    """The learner. `iterate` is the loop's body; the methods before it are its stages, in order.

    envs: what to learn on, of num_envs envs that reset in the same step, such as a simulation's;
    None for envs of settings.env_id, stepped one after the other.

    Raises: SettingError for envs of another number or mode.
    """

    def __init__(self, settings: PPOSettings, envs: VectorEnv | None = None) -> None:
        self.settings = s = settings
        torch.set_num_threads(s.torch_threads)
        self.envs: Any = envs or SerialVectorEnv(
            [partial(make_env, s.env_id)] * s.num_envs, autoreset_mode="same_step"
        )
        mode = self.envs.metadata.get("autoreset_mode")
        if self.envs.num_envs != s.num_envs or mode != AutoresetMode.SAME_STEP:
            raise SettingError(
                f"PPO: expected {s.num_envs} envs (num_envs) with autoreset_mode='same_step'; got "
                f"{self.envs.num_envs} with {mode}"
            )
        self.policy = ActorCritic(
            self.envs.single_observation_space,
            self.envs.single_action_space,
            hidden_sizes=[s.hidden_size] * s.hidden_layers,
            seed=s.seed,
        )
        self.optimizer = torch.optim.Adam([self.policy.flat], s.learning_rate, eps=1e-5, fused=True)
        self.rng = np.random.default_rng(s.seed)
        self.progress = Progress(self.envs.reset(seed=s.seed)[0])
        example = self.policy.greedy(self.progress.obs)
        self.fragment = fragment_for(s, self.progress.obs, example)
        self.act = stage("act", self._act, effect="stateful")
        self.env_step = stage("env step", self._env_step, effect="stateful")
        # The fragment is state, not declared as written: to replay a copy of it costs three times
        # what storing a step does, and where storing is left out an older fragment serves as well.
        self.store = stage("store", self._store, effect="stateful")
        self.advantages = stage("advantages", self._advantages, effect="pure")
        self.update = stage("update", self._update, effect="stateful")
        self._advantages(self.progress.obs)  # compiles the kernel now, not in the first iteration

    def _act(self, obs: Array) -> tuple[Array, Array, Array]:
        """An action for every env, its log-probability, and the value of the observation."""
        outputs, value = self.policy.outputs(obs)
        action, log_prob = self.policy.distribution.sample(outputs, self.rng)
        return action, log_prob, value

    def _env_step(self, action: Array) -> tuple[Array, Array, Array, Array, dict[int, Array]]:
        """The next observations, rewards, endings, and where the episodes that ended arrived."""
        obs, reward, terminated, truncated, infos = self.envs.step(self.policy.for_env(action))
        over = terminated | truncated
        ended = np.flatnonzero(over).tolist() if over.any() else ()
        return obs, reward, terminated, truncated, {b: infos["final_obs"][b] for b in ended}

    def _store(self, t: int, obs: Array, final_obs: dict[int, Array], **step: Any) -> None:
        """Write step t of every env into the fragment; `obs` is where it starts."""
        if t == 0:
            self.fragment.begin(obs)
        self.fragment.write(t, **step)
        for b, arrived in final_obs.items():
            self.fragment.end(t, b, arrived)

    def _advantages(self, obs: Array) -> tuple[Array, Array]:
        """Advantages and returns (T, B); `obs` (B, ...) is where the fragment ends."""
        f = self.fragment
        value = f.extras["value"]
        next_value = np.concatenate((value[1:], self.policy.outputs(obs)[1][None]))
        t, b = f.final_t, f.final_b
        cut = f.truncated[t, b]
        if cut.any():  # cut, not over: what would have come is what the critic expects
            next_value[t[cut], b[cut]] = self.policy.outputs(f.final_obs[cut])[1]
        gamma, lambda_ = self.settings.gamma, self.settings.gae_lambda
        return gae(
            f.reward, value, next_value, f.terminated, f.truncated, gamma=gamma, lambda_=lambda_
        )

    def _update(self, advantage: Array, return_: Array) -> dict[str, float]:
        """Several passes over the fragment; returns the losses of the last minibatch."""
        s, f, grad = self.settings, self.fragment, self.policy.grad
        # Beyond total_steps, where only a benchmark goes, the work stays and the policy rests.
        left = max(0.0, 1 - self.progress.env_steps / s.total_steps) if s.anneal else 1.0
        self.optimizer.param_groups[0]["lr"] = s.learning_rate * left
        # Normalised once over the batch, not over each minibatch: the same where there is one.
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        obs = f.obs.reshape(s.batch_steps, -1)
        batch = [torch.from_numpy(obs)] + [
            torch.from_numpy(a.reshape(s.batch_steps, *a.shape[2:]))
            for a in (f.action, f.extras["log_prob"], advantage, return_)
        ]
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
        """The batch cut at random into minibatches; as it is, where there is only one."""
        if self.settings.minibatches == 1:
            yield batch
            return
        order = torch.from_numpy(self.rng.permutation(self.settings.batch_steps))
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
        """One iteration: a fragment, its advantages, an update on it. Returns its env steps."""
        obs = self.progress.obs
        for t in range(self.settings.fragment_steps):
            action, log_prob, value = self.act(obs)
            next_obs, reward, terminated, truncated, final_obs = self.env_step(action)
            self.store(
                t,
                obs,
                final_obs,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_obs=next_obs,
                extras={"log_prob": log_prob, "value": value},
            )
            obs = next_obs
        advantage, return_ = self.advantages(obs)
        self.progress.losses = self.update(advantage, return_)
        self.progress.obs = obs
        self.progress.env_steps += self.settings.batch_steps
        return self.settings.batch_steps


def loop(settings: PPOSettings) -> Loop:
    """PPO as a loop that can be measured; one iteration is a fragment and its update.

    Raises: TargetError for an env that does not exist or that PPO cannot take.
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
            learner.envs,
            learner.fragment,
            learner.progress,
            learner.rng,
        ],
        close=learner.envs.close,
    )


def train(
    settings: PPOSettings, *, on_iteration: Callable[[Point], None] | None = None
) -> Training:
    """Train until two greedy evaluations in a row reach the target, or `total_steps` are used.

    Raises: TargetError for an env that does not exist or that PPO cannot take.
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
