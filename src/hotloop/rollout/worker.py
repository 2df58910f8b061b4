"""What a fragment worker does, whatever carries its fragments: a policy beside its own envs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import numpy as np

from hotloop.data.fragment import Fragment
from hotloop.envs.worker import portable
from hotloop.errors import SettingError
from hotloop.rollout.steps import Allocate, AnyVectorEnv, Policy, StepCollector


@runtime_checkable
class TakesWeights(Protocol):
    """A policy that can be updated without being sent whole."""

    def load_weights(self, weights: Any) -> None:
        """Act by these weights from now on."""
        ...


@runtime_checkable
class TakesSeed(Protocol):
    """A policy that draws: without a seed of its own every worker's copy draws the same."""

    def seed(self, seed: int) -> None:
        """Draw from a generator of this seed from now on."""
        ...


@dataclass(frozen=True)
class WorkerPlan:
    """What all workers have in common."""

    make_envs: Callable[[], AnyVectorEnv]
    num_workers: int
    fragment_steps: int
    seed: int
    double_buffer: bool | Literal["auto"]
    frame_stack: int
    frame_skip: int | None
    policy_effect: Literal["pure", "stateful", "effectful"]


class Update(NamedTuple):
    """A policy, or weights for the policy there is, pickled once for all workers."""

    payload: bytes
    version: int

    @classmethod
    def of(cls, policy_or_weights: Any, version: int) -> "Update":
        """Pickle it, by value where it is defined in a script."""
        return cls(cloudpickle.dumps(policy_or_weights), version)


class Failure(NamedTuple):
    """An exception on its way home."""

    error: bytes
    name: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """The exception, with its traceback as a note; as a WorkerError if it cannot travel."""
        return cls(cloudpickle.dumps(portable(error)), type(error).__qualname__)


class FragmentWorker:
    """Owns a vector env and a collector; built from a pickled plan and policy where it works.

    The envs of worker w of W are seeded with seed + (g W + w) B + i, where B is its number of envs
    and g how often it was restarted: no two episodes of a run begin alike. Their ids, which a
    restart does not change, are w B + i. A policy that takes a seed gets one made of the first
    env's and its own version.
    """

    def __init__(self, plan: bytes, policy: Update, index: int, generation: int) -> None:
        made: WorkerPlan = cloudpickle.loads(plan)
        self.envs = made.make_envs()
        width = self.envs.num_envs
        self._seed = made.seed + (generation * made.num_workers + index) * width
        self.collector = StepCollector(
            self.envs,
            self._seeded(cloudpickle.loads(policy.payload), policy.version),
            fragment_steps=made.fragment_steps,
            double_buffer=made.double_buffer,
            seed=self._seed,
            first_env_id=index * width,
            policy_version=policy.version,
            frame_stack=made.frame_stack,
            frame_skip=made.frame_skip,
            policy_effect=made.policy_effect,
        )

    def update(self, update: Update) -> None:
        """Take a policy or weights, unless what is here is newer.

        Raises: SettingError for weights if the policy takes none.
        """
        collector = self.collector
        if update.version <= collector.policy_version:
            return
        given = cloudpickle.loads(update.payload)
        if callable(given):
            collector.update(self._seeded(given, update.version), update.version)
        elif isinstance(collector.policy, TakesWeights):
            collector.policy.load_weights(given)
            collector.policy_version = update.version
        else:
            raise SettingError(
                f"update: expected a policy, or weights for a policy with load_weights(weights), "
                f"got {type(given).__qualname__} for a {type(collector.policy).__qualname__}"
            )

    def fragment(self, allocate: Allocate | None = None) -> Fragment:
        """The next fragment, see `StepCollector.collect`."""
        return self.collector.collect(allocate)

    def _seeded(self, policy: Policy, version: int) -> Policy:
        if isinstance(policy, TakesSeed):
            policy.seed(int(np.random.SeedSequence((self._seed, version)).generate_state(1)[0]))
        return policy

    def close(self) -> None:
        """Close the envs."""
        self.envs.close()
