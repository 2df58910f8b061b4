"""Learners whose actors send fragments while they learn: IMPALA, APPO, Ape-X.

The lag of a fragment is how many updates the learner has made since the policy that acted in it.
What waits is bounded: an actor has at most one fragment under way and one that waits to be taken.
"""

import statistics
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from numpy.typing import DTypeLike

from hotloop.data.fragment import Fragment
from hotloop.envs.make import make_vec
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, WorkerError, did_you_mean
from hotloop.learn.learner import Learner, policy_for, spaces_of
from hotloop.learn.places import placed
from hotloop.learn.policies.actor import Actor
from hotloop.learn.policies.policy import Policy
from hotloop.learn.settings import ENVS, HEAD, SERVER, LearnerSettings
from hotloop.rollout import FragmentCollector
from hotloop.rollout.fragments import IN_FLIGHT

BACKENDS = ("serial", "process", "ray")


@dataclass(frozen=True)
class ActorSettings(LearnerSettings):
    """The settings of learners with actors of their own.

    Raises: SettingError for settings that do not fit.
    """

    backend: str = "process"
    """Where actors act: processes of this machine, ray, or serial: here, with the same bits."""
    policy_at: str = ENVS
    """Where the policy acts: envs (a copy beside the envs of each actor), head (this process),
    server (one inference server for all actors), or auto, which measures."""
    batch_fragments: int = 1
    """Fragments that an iteration learns from; each is of one actor's envs."""
    max_lag: int = 4
    """Fragments whose policy is more updates old than this are dropped."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise SettingError(
                f"{self.algorithm}: backend: expected {', '.join(map(repr, BACKENDS))}, got "
                f"{self.backend!r}{did_you_mean(self.backend, BACKENDS)}"
            )
        super().__post_init__()


def collector_of(
    settings: LearnerSettings,
    policy: Policy,
    actor: Actor,
    dtypes: Mapping[str, DTypeLike],
    seed: int,
    *,
    work_ahead: bool = True,
) -> FragmentCollector:
    """Make what collects fragments where the policy is to act.

    At the head there is one worker in this process, whose envs the backend steps.
    actor: what acts for `policy`. Raises: as `FragmentCollector`.
    """
    s, count = settings, settings.num_actors
    at_head = s.policy_at == HEAD
    where = (s.backend, s.num_workers) if at_head else ("serial", None)
    return FragmentCollector(
        partial(_envs, *where, s.copy, s.env_id, s.num_envs // count),
        actor,
        fragment_steps=s.fragment_steps,
        num_workers=count,
        backend="serial" if at_head else s.backend,
        seed=seed,
        restarts=s.restarts,
        work_ahead=work_ahead,
        double_buffer=False,
        dtypes=dtypes,
        to_env=None if policy.draws_for_env else policy.for_env,
        # Here, the generator that actions are drawn from can be put back after an experiment;
        # elsewhere it goes on, as it does from one action to the next.
        policy_effect="stateful" if s.backend == "serial" else "pure",
        num_cpus=s.num_cpus,
        num_gpus=s.num_gpus,
        placement=s.placement,
        server=s.inference_settings() if s.policy_at == SERVER else None,
    )


class Actors:
    """The actors of a learner, and the lag of what they send.

    actor: what acts for `policy`. Fragments that are older than `max_lag` are dropped and counted.
    Raises: as `FragmentCollector`.
    """

    def __init__(
        self,
        settings: ActorSettings,
        policy: Policy,
        actor: Actor,
        dtypes: Mapping[str, DTypeLike],
        seed: int,
    ) -> None:
        self._policy, self._max_lag = policy, settings.max_lag
        self.here = settings.backend == "serial"
        self.collector = collector_of(settings, policy, actor, dtypes, seed)
        waits = self.here or settings.policy_at == HEAD
        self.in_flight = 0 if waits else IN_FLIGHT * settings.num_actors
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
        """Updates since the policy that acted. Raises: WorkerError for one that never was."""
        newest = self.collector.policy_version
        if fragment.policy_version > newest:
            raise WorkerError(
                f"fragment of envs {fragment.env_ids.min()} to {fragment.env_ids.max()}: expected "
                f"a policy of version {newest} or older, got version {fragment.policy_version}, "
                "which was never sent; look for actors or a server of another training"
            )
        return newest - fragment.policy_version

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
            **self.collector.server_figures(),
        }


class AsynchronousLearner(Learner):
    """Learns from what actors send, in the order in which it arrives.

    `iterate` takes fragments, learns from them, and sends the parameters out. The stages are
    fragment wait and broadcast, those of learning, and act, env step and store in the actors.

    Raises: SettingError for settings; TargetError for spaces that the policy cannot take; what
    making the envs raises.
    """

    settings: ActorSettings
    synchronous = False

    def __init__(self, settings: ActorSettings) -> None:
        settings = placed(type(self), settings)
        torch.set_num_threads(settings.torch_threads)
        self.observation_space, self.action_space = spaces_of(settings.env_id)
        policy = policy_for(settings, self.observation_space, self.action_space)
        super().__init__(settings, policy)
        self.actors = self._made_actors(settings.seed)

    def _made_actors(self, seed: int) -> Actors:
        return Actors(self.settings, self.policy, self.actor(seed), self.stored_dtypes(), seed)

    def actor(self, seed: int) -> Actor:
        """What acts for this learner; a copy goes to every actor."""
        return self.policy.actor(seed)

    def shown_returns(self, fragment: Fragment) -> list[float]:
        """Returns of a fragment's episodes, as they are shown."""
        returns: list[float] = fragment.episode_returns.tolist()
        return returns

    @abstractmethod
    def learn(self, fragments: Sequence[Fragment]) -> bool:
        """Learn from fragments; returns whether the parameters have changed."""

    def iterate(self) -> int:
        """Take fragments, learn, publish what changed; returns the env steps learned from."""
        fragments = self.actors.take(self.settings.batch_fragments)
        if self.learn(fragments):
            self.actors.publish()
        self.progress.add(fragments, self.shown_returns)
        return sum(fragment.env_steps for fragment in fragments)

    @property
    def state(self) -> list[object]:
        """What an iteration changes, as its `Loop` declares it."""
        return [*super().state, *self.may_go_on]

    @property
    def may_go_on(self) -> list[object]:
        """The envs and their collector, where they are in this process."""
        return [self.actors.collector] if self.actors.here else []

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


def _envs(
    backend: str, num_workers: int | None, copy: bool, env_id: str, num_envs: int
) -> VectorEnv:
    return make_vec(
        env_id,
        num_envs,
        backend=backend,
        num_workers=num_workers,
        autoreset_mode="same_step",
        copy=copy,
    )
