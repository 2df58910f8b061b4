"""A fragment worker: a policy beside its own envs, the same in a process and in a Ray actor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree
from hotloop.envs.pickling import portable_error
from hotloop.errors import SettingError
from hotloop.rollout.env_metadata import AnyVectorEnv
from hotloop.rollout.steps import Policy, StepCollector
from hotloop.rollout.writer import Allocate


@runtime_checkable
class TakesWeights(Protocol):
    """A policy that can be updated by its weights alone."""

    def load_weights(self, weights: Any) -> None:
        """Act by these weights from now on."""
        ...


@runtime_checkable
class TakesSeed(Protocol):
    """A policy that draws random numbers; without `seed` all copies draw the same."""

    def seed(self, seed: int) -> None:
        """Draw from a generator of this seed from now on."""
        ...


@runtime_checkable
class TakesEnvs(Protocol):
    """A policy that acts otherwise in one env than in another."""

    def act_for(self, env_ids: NDArray[np.integer[Any]]) -> None:
        """Act for these envs from now on: one a row of the observations, in this order."""
        ...


@dataclass(frozen=True)
class WorkerSettings:
    """What all workers have in common; the settings of `FragmentCollector`."""

    make_envs: Callable[[], AnyVectorEnv]
    num_workers: int
    fragment_steps: int
    seed: int
    double_buffer: bool | Literal["auto"]
    frame_stack: int
    frame_skip: int | None
    policy_effect: Literal["pure", "stateful", "effectful"]
    dtypes: Mapping[str, DTypeLike]
    to_env: Callable[[Tree], Tree] | None


class Update(NamedTuple):
    """A policy, or weights for one, pickled once for all workers."""

    payload: bytes
    version: int
    of_policy: int
    """The version of the policy that the weights are for; of a policy, its own."""

    @classmethod
    def of(cls, policy_or_weights: Any, version: int, of_policy: int | None = None) -> "Update":
        """Pickle a policy or weights, by value where they are defined in a script."""
        of_policy = version if of_policy is None else of_policy
        return cls(cloudpickle.dumps(policy_or_weights), version, of_policy)

    @property
    def is_policy(self) -> bool:
        """Whether it is no weights."""
        return self.version == self.of_policy


class Pending:
    """The updates for a worker's next fragment: the newest policy, and the newest weights.

    Weights alone would not do where they are for a policy that was sent before them.
    """

    def __init__(self) -> None:
        self._newest: dict[bool, Update] = {}  # by `is_policy`

    def put(self, update: Update) -> None:
        """Keep an update in the place of the one before of its kind."""
        self._newest[update.is_policy] = update

    def take(self) -> list[Update]:
        """Return what is kept, in the order of the versions, and keep it no longer."""
        updates = sorted(self._newest.values(), key=lambda update: update.version)
        self._newest.clear()
        return updates


class Failure(NamedTuple):
    """An exception in a worker, pickled for the driver."""

    error: bytes
    name: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Pickle the exception, its traceback as a note; a WorkerError if it cannot be pickled."""
        return cls(cloudpickle.dumps(portable_error(error)), type(error).__qualname__)


class FragmentWorker:
    """A vector env and its collector, made in the worker from pickled settings and policy.

    The envs of worker w of W are seeded with seed + (g W + w) B + i, where B is its number of envs
    and g how often it was restarted: no two episodes of a run begin alike. Their ids, which a
    restart does not change, are w B + i. A policy that takes a seed gets one made of the seed of
    the first env and of its own version; one that takes envs gets those ids.
    """

    def __init__(self, settings: bytes, policy: Update, index: int, generation: int) -> None:
        made: WorkerSettings = cloudpickle.loads(settings)
        self.envs = made.make_envs()
        width = self.envs.num_envs
        self._of_policy = policy.version
        self._env_ids = index * width + np.arange(width)
        self._seed = made.seed + (generation * made.num_workers + index) * width
        self.collector = StepCollector(
            self.envs,
            self._placed(cloudpickle.loads(policy.payload), policy.version),
            fragment_steps=made.fragment_steps,
            double_buffer=made.double_buffer,
            seed=self._seed,
            first_env_id=index * width,
            policy_version=policy.version,
            frame_stack=made.frame_stack,
            frame_skip=made.frame_skip,
            policy_effect=made.policy_effect,
            dtypes=made.dtypes,
            to_env=made.to_env,
        )

    def update(self, update: Update) -> None:
        """Take a policy or weights, unless the present ones are newer.

        Weights for another policy are left: that policy is on its way, and they come again.
        Raises: SettingError for weights if the policy takes none.
        """
        collector = self.collector
        if update.version <= collector.policy_version:
            return
        if not update.is_policy and update.of_policy != self._of_policy:
            return
        given = cloudpickle.loads(update.payload)
        if update.is_policy:
            collector.update(self._placed(given, update.version), update.version)
            self._of_policy = update.version
        elif isinstance(collector.policy, TakesWeights):
            collector.policy.load_weights(given)
            collector.policy_version = update.version
        else:
            raise SettingError(
                f"update: expected a policy, or weights for a policy with load_weights(weights), "
                f"got {type(given).__qualname__} for a {type(collector.policy).__qualname__}"
            )

    @property
    def policy_version(self) -> int:
        """The version of the policy that acts."""
        return self.collector.policy_version

    def fragment(self, allocate: Allocate | None = None) -> Fragment:
        """Collect the next fragment, see `StepCollector.collect`."""
        return self.collector.collect(allocate)

    def _placed(self, policy: Policy, version: int) -> Policy:
        """Tell a policy what is this worker's own: its seed, and its envs."""
        if isinstance(policy, TakesSeed):
            policy.seed(int(np.random.SeedSequence((self._seed, version)).generate_state(1)[0]))
        if isinstance(policy, TakesEnvs):
            policy.act_for(self._env_ids)
        return policy

    def close(self) -> None:
        """Close the envs."""
        self.envs.close()
