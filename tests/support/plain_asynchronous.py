"""The plain twins of IMPALA and APPO in one process: loops over steps, straight from the formulas.

Only the policy's network, its distribution of actions and its moments of observations are those of
the package. Envs are Gymnasium's own.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs.ids import make_env
from hotloop.learn.learner import policy_for
from hotloop.ops import Moments, denormalise, no_moments, normalise


class Step(NamedTuple):
    """What one env did in one step."""

    obs: Any
    action: Any
    log_prob: float
    reward: float
    terminated: bool
    truncated: bool
    arrived: Any  # the observation that the step truly led to


class Twin:
    """The learner. `update` is one iteration.

    start: parameters to begin with. never_sent: the policy that acts stays the first one.
    """

    def __init__(self, settings: Any, start: Any, never_sent: bool) -> None:
        s = self.s = settings
        self.envs = SyncVectorEnv(
            [lambda: make_env(s.env_id)] * s.num_envs, autoreset_mode=AutoresetMode.SAME_STEP
        )
        space = self.envs.single_observation_space, self.envs.single_action_space
        self.policy = policy_for(s, *space)
        self.acting = policy_for(s, *space) if never_sent else self.policy
        for policy in (self.policy, self.acting):
            policy.flat.data.copy_(torch.from_numpy(start))
        self.adam = torch.optim.Adam([self.policy.flat], s.learning_rate, eps=1e-5)
        self.obs = self.envs.reset(seed=s.seed)[0]
        self.draws = np.random.default_rng(np.random.SeedSequence((s.seed, 0)).generate_state(1)[0])
        self.shuffles = np.random.default_rng(s.seed)
        self.env_steps, self.targets_seen = 0, np.zeros(0)

    def collect(self) -> list[list[Step]]:
        """One fragment: its steps, each of all envs."""
        policy, fragment = self.acting, []
        for _ in range(self.s.fragment_steps):
            outputs, _ = policy.outputs(self.obs)
            action, log_prob = policy.distribution.sample(outputs, self.draws)
            obs, reward, terminated, truncated, infos = self.envs.step(policy.for_env(action))
            row = []
            for b in range(self.s.num_envs):
                over = terminated[b] or truncated[b]
                arrived = infos["final_obs"][b] if over else obs[b]
                flags = bool(terminated[b]), bool(truncated[b])
                row.append(
                    Step(self.obs[b].copy(), action[b], log_prob[b], reward[b], *flags, arrived)
                )
            fragment.append(row)
            self.obs = obs.copy()
        return fragment

    def value(self, obs: Any) -> float:
        """V of one observation, of the policy of now."""
        value = self.policy.outputs(obs[None])[1]
        return float(denormalise(value, self.moments)[0] if self.s.normalise_values else value[0])

    @property
    def moments(self) -> Moments:
        """Of all targets that the critic was ever given."""
        seen = self.targets_seen
        return Moments(len(seen), seen.mean(), seen.var()) if len(seen) else no_moments()

    def trace(self, steps: list[Step], clip_pg_rho: float) -> list[tuple[float, float, float]]:
        """Target, advantage and ratio of the steps of one env in one fragment, by V-trace."""
        s, found = self.s, []
        correction, next_target = 0.0, None
        for step in reversed(steps):
            outputs = torch.from_numpy(self.policy.outputs(step.obs[None])[0])
            action = torch.from_numpy(np.asarray(step.action)[None])
            log_prob = float(self.policy.distribution.log_prob(outputs, action)[0])
            rho = float(np.exp(log_prob - step.log_prob))
            value, after = self.value(step.obs), self.value(step.arrived)
            if step.terminated or step.truncated:
                correction, next_target = 0.0, None
            q = after
            if next_target is not None:
                q = s.trace_lambda * next_target + (1 - s.trace_lambda) * after
            gamma = 0.0 if step.terminated else s.gamma
            delta = min(s.clip_rho, rho) * (step.reward + gamma * after - value)
            correction = delta + gamma * s.trace_lambda * min(1.0, rho) * correction
            advantage = min(clip_pg_rho, rho) * (step.reward + gamma * q - value)
            next_target = value + correction
            found.append((next_target, advantage, rho))
        return found[::-1]

    def update(self) -> None:
        """Take a batch and learn from it."""
        s = self.s
        fragments = [self.collect() for _ in range(s.batch_fragments)]
        columns = [column for f in fragments for column in zip(*f, strict=True)]
        pg = s.clip_pg_rho if s.algorithm == "impala" else 1.0
        traces = [self.trace(list(column), pg) for column in columns]
        # Time first, as the learner shuffles its minibatches.
        order = [(t, b) for t in range(s.fragment_steps) for b in range(len(columns))]
        steps = [columns[b][t] for t, b in order]
        target, advantage, rho = (np.array([traces[b][t][i] for t, b in order]) for i in range(3))
        if s.normalise_values:
            self.targets_seen = np.concatenate((self.targets_seen, target))
            target = normalise(target, self.moments)
        left = 1 - self.env_steps / s.total_steps if s.anneal else 1.0
        self.adam.param_groups[0]["lr"] = s.learning_rate * left
        obs = np.array([step.obs for step in steps])
        batch = (
            self.policy.tensors(obs),
            torch.from_numpy(np.array([step.action for step in steps])),
            torch.from_numpy(np.array([step.log_prob for step in steps], np.float32)),
        )
        self.learn(batch, target, advantage, rho, left)
        if s.normalise_observations:
            self.policy.update_moments(obs)
        self.env_steps += len(steps)

    def learn(self, batch: Any, target: Any, advantage: Any, rho: Any, left: float) -> None:
        """Take the steps of the optimiser, as the algorithm does."""
        s, count = self.s, len(target)
        to_tensor = lambda array: torch.from_numpy(np.asarray(array, np.float32))  # noqa: E731
        if s.algorithm == "impala":
            everything = torch.arange(count)
            self.descend(batch, to_tensor(target), to_tensor(advantage), everything, clip=None)
            return
        advantage = advantage / np.minimum(rho, 1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(s.epochs):
            index = [np.arange(count)]
            if s.minibatches > 1:
                index = np.split(self.shuffles.permutation(count), s.minibatches)
            for part in index:
                self.descend(
                    batch,
                    to_tensor(target),
                    to_tensor(advantage),
                    torch.from_numpy(part),
                    clip=s.clip * left,
                )

    def descend(
        self, batch: Any, target: Any, advantage: Any, index: Any, clip: float | None
    ) -> None:
        """One step down the loss of the steps in `index`."""
        s, distribution = self.s, self.policy.distribution
        obs, action, behaviour = (part[index] for part in batch)
        outputs, value = self.policy(obs)
        log_prob = distribution.log_prob(outputs, action)
        if clip is None:
            gain = log_prob * advantage[index]
        else:
            ratio = torch.exp(log_prob - behaviour)
            limited = torch.clip(ratio, 1 - clip, 1 + clip)
            gain = torch.minimum(ratio * advantage[index], limited * advantage[index])
        loss = -gain.mean() + s.value_weight * ((value - target[index]) ** 2).mean()
        loss = loss - s.entropy_weight * distribution.entropy(outputs).mean()
        self.policy.grad.zero_()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([self.policy.flat], s.max_grad_norm)
        self.adam.step()


def plain_parameters(settings: Any, updates: int, start: Any, *, never_sent: bool) -> Any:
    """The parameters after so many updates."""
    twin = Twin(settings, start, never_sent)
    for _ in range(updates):
        twin.update()
    twin.envs.close()
    return twin.policy.flat.detach().numpy().copy()
