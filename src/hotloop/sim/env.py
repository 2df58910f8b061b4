"""A simulation as Gymnasium envs: a policy sets controls of the model, and observes its state.

One env is one replicate. All of them are stepped in one batch, by one runner, as long as they are
at the same step of their episodes; an env that is reset alone continues in a batch of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from hotloop.envs.actions import ActionCheck
from hotloop.envs.arguments import as_autoreset_mode, as_seeds, reset_rows
from hotloop.envs.infos import merge_infos
from hotloop.errors import SettingError, ShapeError, StateError
from hotloop.sim.env_batches import Batch, Batches, Flags, Rows
from hotloop.sim.executor import Executor, LoadPopulation, ModelSource, resolve_model
from hotloop.sim.record import Record
from hotloop.sim.runner import Runner
from hotloop.sim.state import State

Array = NDArray[Any]
Step = tuple[Array, NDArray[np.float64], Flags, Flags, dict[str, Any]]

# The seeds of later episodes are drawn from 0 to this; any of them can be given to `reset`.
_SEEDS = 2**31


class Task(ABC):
    """What makes a model an env: the controls of an action, the observation, and the reward.

    Tensors have one row for each of R envs. A row must depend on the same row of the state and of
    the actions only, by sums of whole numbers or row by row: then an env does the same in any
    batch.

    observation_space: a Box. action_space: of fixed shape, such as Discrete, MultiDiscrete or Box.
    steps_per_action: steps of the model for one action.
    """

    observation_space: spaces.Box
    action_space: spaces.Space[Any]
    steps_per_action: int = 1

    @abstractmethod
    def controls(self, actions: Array) -> Mapping[str, Tensor]:
        """Return the values that R actions set, (R, ...), by path; substeps only read these."""

    @abstractmethod
    def observation(self, state: State) -> Tensor:
        """Observe a state, (R, ...) in the observation space; also before step 0."""

    @abstractmethod
    def reward(self, state: State, actions: Array, first_step: int) -> Tensor:
        """Compute the reward (R,) of steps first_step to state.step - 1 under these actions."""


class SimulationVectorEnv(VectorEnv[Array, Array, Array]):
    """`num_envs` replicates of a model as one vector env, equal bit for bit to as many of one.

    model: as for an `Executor`. task: see `Task`. population: whatever `LoadPopulation` takes, or
    one; None for a model with sizes of its own. num_steps: steps of the model in an episode, the
    model's own if None; then it is truncated. autoreset_mode: "next_step", "same_step" or
    "disabled", as in Gymnasium. The others: see `hotloop.sim.settings.Settings`.

    `reset(seed=s)` runs env i from seed s + i, as a runner of that seed; later episodes draw seeds
    from the env's own generator, and `episode_seeds` says which. `options={"reset_mask": mask}`
    resets some envs.

    Raises: SettingError for spaces or numbers out of range; what an `Executor` raises.
    """

    def __init__(
        self,
        model: ModelSource,
        task: Task,
        num_envs: int = 1,
        *,
        population: Any = None,
        num_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        device: str | torch.device = "auto",
        fused: bool = True,
        capture: bool = False,
        active_set: bool | Literal["auto"] = "auto",
        threads: int | None = None,
        precision: Literal["double", "mixed"] = "double",
    ) -> None:
        for name, value in (("num_envs", num_envs), ("steps_per_action", task.steps_per_action)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise SettingError(f"simulation env: {name}: expected 1 or more, got {value!r}")
        if not isinstance(task.observation_space, spaces.Box):
            raise SettingError(
                f"simulation env: observation_space: expected a Box, got {task.observation_space}"
            )
        self.num_envs, self.task = int(num_envs), task
        self.single_observation_space = task.observation_space
        self.single_action_space = task.action_space
        self.observation_space = batch_space(task.observation_space, self.num_envs)
        self.action_space = batch_space(task.action_space, self.num_envs)
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self._check_actions = ActionCheck(task.action_space)
        is_loader = population is None or isinstance(population, LoadPopulation)
        self._model = resolve_model(model)
        self._loader = population if is_loader else LoadPopulation(population)
        self._settings: dict[str, Any] = {
            "num_steps": num_steps,
            "device": device,
            "fused": fused,
            "capture": capture,
            "active_set": active_set,
            "threads": threads,
            "precision": precision,
        }
        self._batches = Batches(self.num_envs, self._runner)
        # Later batches share the networks, which may take long to build.
        networks = dict(self._batches.runner.state.networks)
        self._model = replace(self._model, networks=networks)
        self._generators: list[np.random.Generator | None] = [None] * self.num_envs
        self._seeds = np.zeros(self.num_envs, np.int64)
        self._obs = np.zeros(self.observation_space.shape or (), task.observation_space.dtype)
        self._is_started = False

    @property
    def num_steps(self) -> int:
        """Steps of the model in an episode."""
        return self._batches.runner.num_steps

    @property
    def episode_seeds(self) -> Rows:
        """The seed of every env's present episode, (num_envs,); given to `reset`, it repeats."""
        return self._seeds.copy()

    # --- Gymnasium's contract ------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every env, or where `options["reset_mask"]` says.

        An int seeds env i with `seed + i`, a sequence gives each its own, None draws.
        Raises: StateError for a mask in the first reset; TypeError, ValueError for a mask or a
        sequence that does not fit.
        """
        self._refuse_closed()
        rows = reset_rows(options, self.num_envs)
        envs = np.arange(self.num_envs) if rows is None else rows
        seeds = as_seeds(seed, self.num_envs)
        if not self._is_started and len(envs) < self.num_envs:
            raise StateError(
                "simulation env: options['reset_mask'] in the first reset; reset all envs once "
                "before"
            )
        for env in envs.tolist():
            given = seeds[env]
            if given is not None or self._generators[env] is None:
                self._generators[env] = seeding.np_random(given)[0]
            self._seeds[env] = self._drawn(env) if given is None else _as_seed(given)
        self._begin(envs)
        self._is_started = True
        return self._obs.copy(), {}

    def step(self, actions: Array) -> Step:
        """Do one action in every env, held for `task.steps_per_action` steps of the model.

        Raises: ShapeError for actions that do not fit; StateError where a reset is needed first.
        """
        self._refuse_closed()
        if not self._is_started:
            raise StateError(
                "simulation env: step before the first reset; call reset() once before"
            )
        checked = np.asarray(self._check_actions(actions, self.num_envs))
        reward = np.zeros(self.num_envs)
        waiting, truncated = np.zeros((2, self.num_envs), np.bool_)
        for batch in self._batches:
            waiting[batch.envs] = batch.is_over
        if waiting.any() and self.autoreset_mode == AutoresetMode.DISABLED:
            raise StateError(
                f"simulation env: env {waiting.argmax()}: its episode has ended and autoreset is "
                "disabled; call reset(options={'reset_mask': truncated}) before the next step"
            )
        for batch in self._batches:
            if not batch.is_over:
                reward[batch.envs] = self._advance(batch, checked)
                truncated[batch.envs] = batch.is_over
        infos: dict[str, Any] = {}
        begun = np.flatnonzero(waiting)
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            begun = np.flatnonzero(truncated)
            infos = merge_infos(
                self.num_envs,
                [(i, {"final_obs": self._obs[i].copy(), "final_info": {}}) for i in begun.tolist()],
            )
        if len(begun):
            self._seeds[begun] = [self._drawn(env) for env in begun.tolist()]
            self._begin(begun)
        return self._obs.copy(), reward, np.zeros(self.num_envs, np.bool_), truncated, infos

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Close the runners."""
        self._batches.close()

    def get_state(self) -> dict[str, Any]:
        """Copy all that steps and resets change, for `set_state`."""
        return {
            "batches": self._batches.get_state(),
            "generators": [rng and rng.bit_generator.state for rng in self._generators],
            "seeds": self._seeds.copy(),
            "obs": self._obs.copy(),
            "is_started": self._is_started,
        }

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned, as often as wanted."""
        self._batches.set_state(saved["batches"])
        for env, state in enumerate(saved["generators"]):
            rng = None if state is None else np.random.default_rng()
            if rng is not None:
                rng.bit_generator.state = state
            self._generators[env] = rng
        self._seeds, self._obs = saved["seeds"].copy(), saved["obs"].copy()
        self._is_started = saved["is_started"]

    # --- batches ----------------------------------------------------------------------

    def _runner(self, replicates: int) -> Runner:
        executor = Executor(
            self._model,
            self._loader,
            replicates=replicates,
            record=Record(keep=()),
            gradient=False,
            **self._settings,
        )
        return executor.init()

    def _begin(self, envs: Rows) -> None:
        for batch in self._batches.begin(envs, self._seeds):
            self._look(batch)

    def _advance(self, batch: Batch, actions: Array) -> Array:
        """Do one action in a batch; returns the rewards of the envs that are stepped there."""
        runner, own = batch.runner, actions[batch.rows]
        first = runner.state.step
        for path, value in self.task.controls(own).items():
            runner.set_value(path, value)
        runner.step(min(self.task.steps_per_action, runner.num_steps - first))
        self._look(batch)
        reward = self.task.reward(runner.state, own, first)
        return _rows_of("reward", reward, (len(own),))[batch.kept]

    def _look(self, batch: Batch) -> None:
        shape = (len(batch.rows), *self._obs.shape[1:])
        seen = _rows_of("observation", self.task.observation(batch.runner.state), shape)
        self._obs[batch.envs] = seen[batch.kept]

    def _drawn(self, env: int) -> int:
        rng = self._generators[env]
        assert rng is not None
        return draw_seed(rng)

    def _refuse_closed(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(
                "Trying to operate on `SimulationVectorEnv`, after a call to `close()`."
            )


class SimulationEnv(gymnasium.Env[Array, Any]):
    """One simulation as a plain env: a `SimulationVectorEnv` of one env.

    Arguments as there. Raises: as there.
    """

    def __init__(self, model: ModelSource, task: Task, **settings: Any) -> None:
        self.envs = SimulationVectorEnv(
            model, task, autoreset_mode=AutoresetMode.DISABLED, **settings
        )
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = task.observation_space, task.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode from this seed, or from a drawn one."""
        super().reset(seed=seed, options=options)
        drawn = draw_seed(self.np_random) if seed is None else seed
        obs, infos = self.envs.reset(seed=[drawn])
        return obs[0], infos

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Do one action, held for `task.steps_per_action` steps of the model."""
        obs, reward, terminated, truncated, infos = self.envs.step(np.asarray(action)[None])
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), infos

    def close(self) -> None:
        """Close the runner."""
        self.envs.close()


def draw_seed(rng: np.random.Generator) -> int:
    """Draw the seed of an episode for which none was given."""
    return int(rng.integers(_SEEDS))


def _as_seed(seed: int) -> int:
    if not 0 <= seed < 2**63:
        raise SettingError(f"simulation env: seed: expected 0 to 2**63 - 1, got {seed}")
    return int(seed)


def _rows_of(what: str, values: Tensor, shape: tuple[int, ...]) -> Array:
    if tuple(values.shape) != shape:
        raise ShapeError(
            f"simulation env: {what} of the task: expected shape {shape}, one row an env, got "
            f"{tuple(values.shape)}"
        )
    array: Array = values.detach().cpu().numpy()
    return array
