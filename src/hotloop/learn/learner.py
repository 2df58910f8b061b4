"""What all learners have in common: a policy, its optimiser, what is counted, what is saved."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.envs.ids import make_env
from hotloop.errors import CheckpointError, HotloopError
from hotloop.learn.levers import levers_of
from hotloop.learn.optimiser_step import STEPS, Descent, OptimiserStep, make_optimizer
from hotloop.learn.policies.policy import Policy, make_policy
from hotloop.learn.settings import LearnerSettings
from hotloop.learn.state import expect_alike
from hotloop.learn.transfer import TRANSFERS
from hotloop.loop import Loop
from hotloop.loop.target import LoopFamily, settings_of
from hotloop.ops import Moments, denormalise, merge_moments, no_moments, normalise

Array = NDArray[Any]
Flags = NDArray[np.bool_]
RECENT_EPISODES = 100  # of training, of which the mean return is shown


class LossError(HotloopError):
    """A loss or gradient that is not a number. `batch` holds the arrays that led to it."""

    def __init__(self, message: str, batch: Mapping[str, Array]) -> None:
        super().__init__(message)
        self.batch = batch


@dataclass
class Progress:
    """What is counted from one iteration to the next."""

    env_steps: int = 0
    updates: int = 0
    episodes: int = 0
    recent_returns: list[float] = field(default_factory=list)  # of the last episodes of training
    returns: Moments = field(default_factory=no_moments)  # of what a normalised critic learns

    def add(
        self,
        fragments: Sequence[Fragment],
        shown: "Callable[[Fragment], list[float]]" = lambda f: f.episode_returns.tolist(),
    ) -> None:
        """Count an update, and the fragments that it learned from; shown: returns of a fragment."""
        self.updates += 1
        for fragment in fragments:
            self.env_steps += fragment.env_steps
            if len(fragment.endings):
                self.episodes += fragment.episodes
                self.recent_returns.extend(shown(fragment))
                del self.recent_returns[:-RECENT_EPISODES]

    @property
    def mean_return(self) -> float:
        """Mean return of the last episodes of training; not a number before the first."""
        return float(np.mean(self.recent_returns)) if self.recent_returns else math.nan


class Learner(ABC):
    """A policy that learns from fragments; `iterate` is the body of its loop.

    It holds no file and no clock: `training.py` evaluates, saves and stops it.
    """

    settings_type: ClassVar[type[LearnerSettings]]
    synchronous: bool
    """Whether the same settings give the same bits, also after a resume from a checkpoint."""
    free_parts: ClassVar[tuple[str, ...]] = ()
    """Parts of the saved state that a learner checks itself, as their size may differ."""

    def __init__(self, settings: LearnerSettings, policy: Policy) -> None:
        self.settings = settings
        self.policy = policy
        self.optimizer = make_optimizer(policy.flat, settings.learning_rate, settings.compiled)
        self.transfer = TRANSFERS[settings.transfer](policy.flat.device)
        self.step: OptimiserStep = STEPS[settings.compiled](self.descent())
        self.rng = np.random.default_rng(settings.seed)
        self.progress = Progress()
        self._update_figures: Callable[[], dict[str, float]] | None = None  # set by an update

    # --- what each learner says ------------------------------------------------------------------

    @abstractmethod
    def loss(self, batch: Any, numbers: Mapping[str, Any], computed: Any) -> tuple[Tensor, Any]:
        """Return the loss of a batch and its terms: a `Loss` of `optimiser_step.py`."""

    @abstractmethod
    def iterate(self) -> int:
        """Collect, update, and return the env steps that were learned from."""

    @property
    @abstractmethod
    def batches(self) -> int:
        """Optimiser steps of an iteration."""

    @abstractmethod
    def restart_envs(self) -> None:
        """Begin new episodes in all envs, with seeds that follow from settings and env steps.

        So that a training that goes on from a checkpoint meets what the unbroken one met.
        """

    @abstractmethod
    def close(self) -> None:
        """Close envs and workers. Idempotent."""

    def wait_until_started(self) -> None:
        """Wait for processes that act for the learner, so that no time of training contains it."""
        return  # there are none, unless a learner says so

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing acts or learns inside, so that what is done there takes none of its time."""
        yield

    @property
    def state(self) -> list[object]:
        """What an iteration changes, as its `Loop` declares it."""
        return [self.policy, self.optimizer, self.progress, self.rng]

    @property
    def may_go_on(self) -> list[object]:
        """Those of `state` that go on where they cannot be put back: envs, and what steps them."""
        return []

    @property
    def in_flight(self) -> int:
        """How many fragments are under way at once, elsewhere than in `iterate`."""
        return 0

    def loop(self) -> Loop:
        """This learner as a loop that can be measured; closing it closes the learner."""
        return Loop(
            body=self.iterate,
            name=f"{self.settings.algorithm}:{self.settings.env_id}",
            unit="env steps",
            batches=self.batches,
            state=self.state,
            may_go_on=self.may_go_on,
            in_flight=self.in_flight,
            close=self.close,
            levers=levers_of(self.settings, self.synchronous),
            result=lambda: self.policy.flat,
        )

    # --- collecting ------------------------------------------------------------------------------

    def stored_dtypes(self) -> dict[str, DTypeLike]:
        """The types in which a collector stores what this learner takes."""
        dtypes: dict[str, DTypeLike] = {"action": self.policy.action_dtype, "reward": np.float32}
        if self.policy.obs_dtype is not None:
            dtypes["obs"] = self.policy.obs_dtype
        return dtypes

    def next_seed(self) -> int:
        """A seed for new episodes that follows from the settings and the env steps so far."""
        steps = self.progress.env_steps
        return int(np.random.SeedSequence((self.settings.seed, steps)).generate_state(1)[0])

    # --- values ----------------------------------------------------------------------------------

    def values(self, critic: Array) -> Array:
        """The values that outputs of the critic stand for, of any shape."""
        return (
            denormalise(critic, self.progress.returns) if self.settings.normalise_values else critic
        )

    def value_of(self, obs: Tree) -> Array:
        """The values (B,) of observations (B, ...), without gradients."""
        return self.values(self.policy.outputs(obs)[1])

    def value_targets(self, return_: Array, valid: Flags) -> Array:
        """What the critic is to learn of returns (T, B), which are counted into their moments.

        Raises: LossError for returns that are not finite; they are not counted then.
        """
        if not self.settings.normalise_values:
            return return_
        if not np.isfinite(return_[valid]).all():
            raise self._loss_error("finite returns", "some that are not", {"target": return_})
        self.progress.returns = merge_moments(self.progress.returns, return_[valid])
        return normalise(return_, self.progress.returns)

    def observe(self, obs: Tree, valid: Flags) -> None:
        """Count observations (T, B, ...) into the policy's moments, where it has any."""
        if self.settings.normalise_observations:
            self.policy.update_moments(rows(obs, valid))

    # --- learning --------------------------------------------------------------------------------

    def left(self) -> float:
        """The share of `total_steps` that is left where settings are annealed, else 1.

        Beyond total_steps, where only a benchmark goes, the work stays and the policy rests.
        """
        if not self.settings.anneal:
            return 1.0
        return max(0.0, 1 - self.progress.env_steps / self.settings.total_steps)

    def descent(self) -> Descent:
        """What a step of the optimiser is made of; it raises LossError, and changes nothing then,
        where the gradient is no number.
        """
        s = self.settings
        return Descent(
            self.policy, self.optimizer, self.loss, s.max_grad_norm, s.precision, self._not_finite
        )

    def set_learning_rate(self, rate: float) -> None:
        """Let the next steps of the optimiser be so long."""
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # a graph reads it where it lies
        else:
            group["lr"] = rate

    def _not_finite(self, got: str, batch: Any) -> LossError:
        return self._loss_error("a finite loss and gradient", got, _arrays(batch._asdict()))

    def _loss_error(self, expected: str, got: str, batch: Mapping[str, Array]) -> LossError:
        return LossError(
            f"{self.settings.algorithm}: update {self.progress.updates + 1}: expected {expected}, "
            f"got {got}; look for rewards or observations that are not finite, lower "
            "learning_rate, or go on from an earlier checkpoint",
            batch,
        )

    # --- what is shown and what is saved ---------------------------------------------------------

    def figures(self) -> dict[str, float]:
        """The figures of the last update, by the names that CleanRL logs them with.

        Computed when asked for, as they cost a tenth of a small update.
        """
        figures = {} if self._update_figures is None else self._update_figures()
        return {**figures, "learning_rate": float(self.optimizer.param_groups[0]["lr"])}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed training needs: dicts, lists, numbers, text and arrays.

        The figures of the last update are left out, as nothing follows from them.
        """
        count, mean, variance = self.progress.returns
        returns = {"count": count, "mean": np.array(mean), "variance": np.array(variance)}
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self._adam_moments(),
            "generator": self.rng.bit_generator.state,
            "progress": asdict(self.progress) | {"returns": returns},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises: CheckpointError for a state that is not one of this learner with these settings.
        """
        own = self.state_dict()
        own |= {name: state[name] for name in self.free_parts if name in state}
        expect_alike(state, own, f"state of {self.settings.algorithm}")
        self.policy.load_state_dict(state["policy"])
        adam = self.optimizer.state_dict()
        adam["state"] = {0: {n: torch.from_numpy(a.copy()) for n, a in state["optimizer"].items()}}
        self.optimizer.load_state_dict(adam)
        self.step.forget()
        try:
            self.rng.bit_generator.state = state["generator"]
        except (ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"generator: expected the state of one, got {error}") from None
        progress = copy.deepcopy(dict(state["progress"]))
        self.progress = Progress(**progress | {"returns": Moments(**progress["returns"])})

    def _adam_moments(self) -> dict[str, Array]:
        """Adam's state. Before its first step it has none, which means the same as zeros."""
        found = self.optimizer.state_dict()["state"].get(0)
        if found is None:
            zeros = torch.zeros_like(self.policy.flat)
            found = {"step": torch.zeros(()), "exp_avg": zeros, "exp_avg_sq": zeros}
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in found.items()}


def loops_of(kind: Callable[[Any], Learner], settings_type: type[LearnerSettings]) -> LoopFamily:
    """Return the family of a learner's loops, such as `ppo:ENV_ID`."""
    return LoopFamily(
        lambda env_id, settings: kind(
            settings_of(settings_type, {**settings, "env_id": env_id})
        ).loop()
    )


def spaces_of(env_id: str) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return the spaces of an env's observations and actions. Raises: what making it raises."""
    env = make_env(env_id)
    env.close()
    return env.observation_space, env.action_space


def policy_for(
    settings: LearnerSettings,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
) -> Policy:
    """Make the policy that settings ask for. Raises: as `make_policy`."""
    return make_policy(
        observation_space,
        action_space,
        network=settings.network,
        hidden_size=settings.hidden_size,
        hidden_layers=settings.hidden_layers,
        activation=settings.activation,
        initial_std=settings.initial_std,
        normalise_observations=settings.normalise_observations,
        seed=settings.seed,
        device=settings.device,
    )


class Endings(Protocol):
    """Where episodes ended in the steps of (T, B), and at which observations."""

    @property
    def truncated(self) -> Flags:
        """(T, B)."""
        ...

    @property
    def final_t(self) -> Array:
        """(F,)."""
        ...

    @property
    def final_b(self) -> Array:
        """(F,)."""
        ...

    @property
    def final_obs(self) -> Tree:
        """Tree of (F, ...)."""
        ...


def next_values(
    endings: Endings, value: Array, last_value: Array, value_of: Callable[[Tree], Array]
) -> Array:
    """The values (T, B) of the observations truly arrived at in each step.

    value: (T, B), of the observations acted on. last_value: (B,), of those after the last step.
    value_of: computes values of observations; asked where an episode was cut, not over: what
    would have come is what the critic expects there.
    """
    arrived = np.concatenate((value[1:], last_value[None]))
    t, b = endings.final_t, endings.final_b
    cut = endings.truncated[t, b]
    if cut.any():
        arrived[t[cut], b[cut]] = value_of(tree_map(lambda rows: rows[cut], endings.final_obs))
    return arrived


def rows(tree: Tree, valid: Flags | None = None) -> Tree:
    """A tree of arrays (T, B, ...) as one of (T x B, ...), or of the valid steps alone.

    Without a copy, where the arrays' memory and the flags allow it.
    """
    flat = tree_map(lambda array: array.reshape(-1, *array.shape[2:]), tree)
    if valid is None or valid.all():
        return flat
    kept = valid.reshape(-1)
    return tree_map(lambda array: array[kept], flat)


def _arrays(batch: Mapping[str, Any]) -> dict[str, Array]:
    """The leaves of trees of tensors as arrays, numbered where a name has several."""
    found: dict[str, Array] = {}
    for name, tree in batch.items():
        parts = list(leaves(tree))
        for number, tensor in enumerate(parts):
            key = name if len(parts) == 1 else f"{name}.{number}"
            found[key] = tensor.detach().cpu().numpy()
    return found
