"""What IMPALA and APPO have in common: actors send fragments while the learner learns.

The lag of a fragment is how many updates the learner has made since the policy that acted in it.
It is bounded: older fragments are dropped and counted. So is what waits: an actor has at most one
fragment under way and one that waits to be taken.
"""

import statistics
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, tree_map
from hotloop.envs.ids import make_env
from hotloop.envs.make import make_vec
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, did_you_mean
from hotloop.learn.learner import Learner, next_values, policy_for
from hotloop.learn.policies.policy import Policy
from hotloop.learn.settings import LearnerSettings
from hotloop.loop import stage
from hotloop.loop.host import usable_cpus
from hotloop.ops import VTrace, vtrace
from hotloop.rollout import FragmentCollector
from hotloop.rollout.fragments import IN_FLIGHT

Array = NDArray[Any]
BACKENDS = ("serial", "process", "ray")


@dataclass(frozen=True)
class AsynchronousSettings(LearnerSettings):
    """The settings that IMPALA and APPO share.

    Raises: SettingError for settings that do not fit.
    """

    backend: str = "process"
    """Where actors act: processes of this machine, ray, or serial: here, with the same bits."""
    batch_fragments: int = 1
    """Fragments that an update learns from, side by side; each is of one actor's envs."""
    max_lag: int = 4
    """Fragments whose policy is more updates old than this are dropped."""
    restarts: int = 3
    """How many actors that died may be replaced; what an actor raises is raised here."""
    trace_lambda: float = 1.0
    """λ of V-trace: decay of its trace a step, 0 trusts the critic, 1 the returns."""
    clip_rho: float = 1.0
    """ρ̄ of V-trace: probability ratios above it count as this much in the critic's targets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend not in BACKENDS:
            raise SettingError(
                f"{self.algorithm}: backend: expected {', '.join(map(repr, BACKENDS))}, got "
                f"{self.backend!r}{did_you_mean(self.backend, BACKENDS)}"
            )
        _ = self.num_actors

    @property
    def num_actors(self) -> int:
        """Actors, each with equally many envs; one for each core if `num_workers` is None.

        Raises: SettingError for more than envs, and for envs that cannot be shared out evenly.
        """
        if self.backend == "serial":
            return 1
        if self.num_workers is None:
            most = min(len(usable_cpus()), self.num_envs)
            return next(n for n in range(most, 0, -1) if self.num_envs % n == 0)
        if self.num_envs % self.num_workers:
            raise SettingError(
                f"{self.algorithm}: num_workers: expected a divisor of num_envs, "
                f"{self.num_envs}, as every actor has equally many, got {self.num_workers}"
            )
        return self.num_workers


class Actors:
    """The actors of a learner, and the lag of what they send. Raises: as `FragmentCollector`."""

    def __init__(
        self,
        settings: AsynchronousSettings,
        policy: Policy,
        dtypes: Mapping[str, DTypeLike],
        seed: int,
    ) -> None:
        s, count = settings, settings.num_actors
        self._policy, self._max_lag = policy, s.max_lag
        self.here = s.backend == "serial"
        self.collector = FragmentCollector(
            partial(_envs, s.env_id, s.num_envs // count),
            policy.actor(seed),
            fragment_steps=s.fragment_steps,
            num_workers=count,
            backend=s.backend,
            seed=seed,
            restarts=s.restarts,
            double_buffer=False,
            dtypes=dtypes,
            to_env=None if policy.draws_for_env else policy.for_env,
            # Here, the generator that actions are drawn from can be put back after an experiment;
            # elsewhere it goes on, as it does from one action to the next.
            policy_effect="stateful" if self.here else "pure",
        )
        self.in_flight = 0 if self.here else IN_FLIGHT * count
        self.dropped = 0  # fragments that were too old
        self.lags: list[int] = []  # of the fragments of the last batch, in updates
        self._taken: list[Fragment] = []  # for a batch that is not complete, as an actor raised

    def take(self, n: int) -> list[Fragment]:
        """The next `n` fragments that are not too old, from the actors that have them first."""
        while len(self._taken) < n:
            for fragment in self.collector.collect(n - len(self._taken)):
                if self._lag(fragment) > self._max_lag:
                    self.dropped += 1
                else:
                    self._taken.append(fragment)
        fragments, self._taken = self._taken, []
        self.lags = [self._lag(fragment) for fragment in fragments]
        return fragments

    def _lag(self, fragment: Fragment) -> int:
        return self.collector.policy_version - fragment.policy_version

    def publish(self) -> None:
        """Send the parameters of now to all actors, for the fragments that they begin next."""
        self.collector.update(self._policy.weights())

    def figures(self) -> dict[str, float]:
        """How old the last batch was, what waits, and what was dropped."""
        return {
            "lag_min": float(min(self.lags, default=0)),
            "lag_mean": statistics.fmean(self.lags) if self.lags else 0.0,
            "lag_max": float(max(self.lags, default=0)),
            "queue_depth": float(self.collector.waiting),
            "fragments_dropped": float(self.dropped),
        }


@dataclass(frozen=True)
class Steps:
    """The steps of one or several fragments side by side: B envs of all together.

    obs: tree of (T + 1, B, ...). action: tree of (T, B, ...). reward, terminated, truncated, valid,
    log_prob: (T, B). final_t, final_b: (F,), where episodes ended; final_obs: tree of (F, ...).
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    log_prob: Array
    final_t: Array
    final_b: Array
    final_obs: Tree

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> "Steps":
        """Put fragments of equal length side by side; of a single one, nothing is copied."""

        def beside(*trees: Tree) -> Tree:
            return tree_map(_beside, *trees)

        first = np.cumsum([0, *(f.spec.envs for f in fragments)])
        return cls(
            obs=beside(*(f.all_obs for f in fragments)),
            action=beside(*(f.action for f in fragments)),
            reward=beside(*(f.reward for f in fragments)),
            terminated=beside(*(f.terminated for f in fragments)),
            truncated=beside(*(f.truncated for f in fragments)),
            valid=beside(*(f.valid for f in fragments)),
            log_prob=beside(*(f.extras["log_prob"] for f in fragments)),
            final_t=np.concatenate([f.final_t for f in fragments]),
            final_b=np.concatenate(
                [f.final_b + start for f, start in zip(fragments, first, strict=False)]
            ),
            final_obs=tree_map(
                lambda *parts: np.concatenate(parts), *(f.final_obs for f in fragments)
            ),
        )


class AsynchronousLearner(Learner):
    """Learns from what actors send, in the order in which it arrives.

    `iterate` takes a batch, updates, and sends the parameters out. The stages are fragment wait,
    update and broadcast here, and act, env step and store in the actors.

    Raises: SettingError for settings; TargetError for spaces that the policy cannot take; what
    making the envs raises.
    """

    settings: AsynchronousSettings

    def __init__(self, settings: AsynchronousSettings) -> None:
        torch.set_num_threads(settings.torch_threads)
        env = make_env(settings.env_id)
        spaces = env.observation_space, env.action_space
        env.close()
        super().__init__(settings, policy_for(settings, *spaces))
        self.actors = self._made_actors(settings.seed)
        self.update = stage("update", self._update, effect="stateful")
        # Compiles the kernel now, not in the first iteration.
        vtrace(*np.zeros((4, 1, 1), np.float32), *np.zeros((2, 1, 1), np.bool_), gamma=1)

    def _made_actors(self, seed: int) -> Actors:
        return Actors(self.settings, self.policy, self.stored_dtypes(), seed)

    @abstractmethod
    def _update(self, steps: Steps) -> None:
        """Learn from steps."""

    def iterate(self) -> int:
        """Take a batch, update, publish; returns the env steps that were learned from."""
        fragments = self.actors.take(self.settings.batch_fragments)
        self.update(Steps.of(fragments))
        self.actors.publish()
        self.progress.add(fragments)
        return sum(fragment.env_steps for fragment in fragments)

    def trace(self, steps: Steps, value: Array, rho: Array, *, clip_pg_rho: float = 1.0) -> VTrace:
        """V-trace of steps, with values (T + 1, B) and ratios (T, B) of the policy of now."""
        s = self.settings
        return vtrace(
            steps.reward,
            value[:-1],
            next_values(steps, value[:-1], value[-1], self.value_of),
            rho,
            steps.terminated,
            steps.truncated,
            gamma=s.gamma,
            lambda_=s.trace_lambda,
            clip_rho=s.clip_rho,
            clip_pg_rho=clip_pg_rho,
            valid_t=None if steps.valid.all() else steps.valid,
        )

    @property
    def batches(self) -> int:
        """Optimiser steps of an iteration."""
        return 1

    @property
    def state(self) -> list[object]:
        """What an iteration changes, as its `Loop` declares it."""
        return [*super().state, *([self.actors.collector] if self.actors.here else [])]

    @property
    def in_flight(self) -> int:
        """How many fragments the actors have under way at once."""
        return self.actors.in_flight

    def figures(self) -> dict[str, float]:
        """Those of the last update, and of the actors: lag, queue depth, fragments dropped."""
        return super().figures() | self.actors.figures()

    def restart_envs(self) -> None:
        """Start the actors anew, with seeds that follow from settings and env steps.

        Fragments under way are lost with the actors; none is learned from twice.
        """
        dropped = self.actors.dropped
        self.actors.collector.close()
        self.actors = self._made_actors(self.next_seed())
        self.actors.dropped = dropped

    def wait_until_started(self) -> None:
        """Wait until the actors have sent their first fragments."""
        self.actors.collector.wait_until_started()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No actor acts inside; what was under way waits to be taken."""
        with self.actors.collector.resting():
            yield

    def close(self) -> None:
        """End all actors. Idempotent."""
        self.actors.collector.close()


def _envs(env_id: str, num_envs: int) -> VectorEnv:
    return make_vec(env_id, num_envs, backend="serial", autoreset_mode="same_step")


def _beside(*parts: Array) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
