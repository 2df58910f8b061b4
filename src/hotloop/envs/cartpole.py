"""CartPole-v1 for many envs at once, compiled: Gymnasium's numbers at the speed of an array.

Also the measure of what a vector env's own overhead may cost: the physics of 64 envs takes about
as long as one step of one env in Python.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.envs import cartpole_kernel
from hotloop.envs.arguments import as_autoreset_mode, as_seeds, reset_rows
from hotloop.envs.cartpole_kernel import (
    AHEAD,
    ANGLE,
    ANGLE_LIMIT,
    COS,
    DRAWN,
    HIGH,
    LOW,
    PENDING,
    SIN,
    STEPS,
    X_LIMIT,
    Flags,
    Floats,
    Ints,
    Obs,
)
from hotloop.errors import SettingError, ShapeError, StateError, TargetError

Step = tuple[Obs, Floats, Flags, Flags, dict[str, Any]]

_MODES = {
    AutoresetMode.DISABLED: cartpole_kernel.DISABLED,
    AutoresetMode.NEXT_STEP: cartpole_kernel.NEXT_STEP,
    AutoresetMode.SAME_STEP: cartpole_kernel.SAME_STEP,
}


class CartPoleVectorEnv(VectorEnv[Obs, Ints, NDArray[Any]]):
    """`num_envs` CartPole-v1 in one compiled step.

    Observations (N, 4) float32, actions (N,) integers 0 or 1, rewards (N,) float64. Equal bit for
    bit to `gymnasium.vector.SyncVectorEnv` over CartPole-v1 in every autoreset mode: the same
    starts for the same seeds (env i of seed s is seeded with s + i), states in double precision,
    and sines from NumPy, as Gymnasium takes them. `reset` knows the options "low", "high" and
    "reset_mask". With `copy=False` the observations returned change with the next step. Nothing
    is drawn: `render_mode` is None.
    Raises: SettingError. Source of the equations: Barto, Sutton and Anderson 1983; Florian 2007.
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int = 500,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        sutton_barto_reward: bool = False,
    ) -> None:
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise SettingError(f"cartpole: {name}: expected an integer from 1, got {value!r}")
        self.num_envs = int(num_envs)
        self.max_episode_steps = int(max_episode_steps)
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        self.copy = copy
        self.sutton_barto_reward = sutton_barto_reward
        self.metadata = {
            "render_modes": [],
            "render_fps": 50,
            "autoreset_mode": self.autoreset_mode,
        }
        self.spec = dataclasses.replace(
            gymnasium.spec("CartPole-v1"),
            max_episode_steps=self.max_episode_steps,
            kwargs={"sutton_barto_reward": sutton_barto_reward},
        )
        bound = np.array([X_LIMIT * 2, np.inf, ANGLE_LIMIT * 2, np.inf], np.float32)
        self.single_observation_space = spaces.Box(-bound, bound, dtype=np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._generators: list[np.random.Generator] = []
        self._state: Floats = np.zeros((6, self.num_envs))
        self._counts: Ints = np.zeros((3, self.num_envs), np.int64)
        self._starts: Floats = np.zeros((self.num_envs, AHEAD, 4))
        self._actions: Ints = np.zeros(self.num_envs, np.int64)
        self._obs: Obs = np.zeros((self.num_envs, 4), np.float32)
        self._final: Obs = np.zeros((self.num_envs, 4), np.float32)
        self._rules = (self.max_episode_steps, _MODES[self.autoreset_mode], sutton_barto_reward)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Obs, dict[str, Any]]:
        """Start an episode in every env, or where `options["reset_mask"]` says.

        An int seeds env i with `seed + i`, a sequence gives every env its own; None goes on with
        the random numbers that an env has. "low" and "high" bound this start in every component.
        Raises: SettingError for bounds; StateError for a mask in the first reset; TypeError,
        ValueError for a mask or a sequence that does not fit.
        """
        low, high = _bounds(options)
        rows = reset_rows(options, self.num_envs)
        chosen = np.arange(self.num_envs) if rows is None else rows
        self._seed(seed, chosen)
        drawn = self._counts[DRAWN]
        start = low + (high - low) * self._starts[chosen, drawn[chosen]]
        self._state[:4, chosen] = start.T
        self._counts[STEPS, chosen] = 0
        self._counts[PENDING, chosen] = 0
        drawn[chosen] += 1
        self._draw_ahead()
        self._obs[:] = self._state[:4].T
        return self._obs.copy() if self.copy else self._obs, {}

    def step(self, actions: Ints) -> Step:
        """One step of every env.

        Raises: ShapeError for actions that are not (N,) integers; TargetError for one other than
        0 or 1; StateError where a reset has to come first. Then no env has been stepped.
        """
        actions = np.asarray(actions)
        count = self.num_envs
        if actions.shape != (count,) or actions.dtype.kind not in "iu":
            raise ShapeError(
                f"cartpole: actions: expected integers of shape ({count},), got {actions.dtype} "
                f"of shape {actions.shape}; give one action, 0 or 1, for each env"
            )
        if not self._generators:
            raise StateError("cartpole: step before the first reset; call reset() once before")
        self._actions[:] = actions  # one type, writable and in one piece: compiled once
        state = self._state  # no views of it are kept: a copied or unpickled env would lose them
        np.sin(state[ANGLE], state[SIN])
        np.cos(state[ANGLE], state[COS])
        obs: Obs = np.empty((count, 4), np.float32) if self.copy else self._obs
        reward: Floats = np.empty(count)
        terminated: Flags = np.empty(count, np.bool_)
        truncated: Flags = np.empty(count, np.bool_)
        refused, ended, spent = cartpole_kernel.step(
            self._actions,
            *self._rules,
            state,
            self._counts,
            self._starts,
            self._final,
            obs,
            reward,
            terminated,
            truncated,
        )
        if refused >= 0:
            self._refuse(refused)
        if spent:
            self._draw_ahead()
        infos: dict[str, Any] = {}
        if ended and self.autoreset_mode == AutoresetMode.SAME_STEP:
            infos = self._final_infos(terminated | truncated)
        return obs, reward, terminated, truncated, infos

    def _seed(self, seed: int | Sequence[int | None] | None, chosen: Ints) -> None:
        seeds = as_seeds(seed, self.num_envs)
        if not self._generators:
            if len(chosen) < self.num_envs:
                raise StateError(
                    "cartpole: options['reset_mask'] in the first reset; reset all envs once before"
                )
            self._generators = [seeding.np_random(one)[0] for one in seeds]
        else:
            chosen = np.array([i for i in chosen.tolist() if seeds[i] is not None], np.int64)
            for i in chosen.tolist():
                self._generators[i] = seeding.np_random(seeds[i])[0]
        self._counts[DRAWN, chosen] = AHEAD
        self._draw_ahead()

    def _draw_ahead(self) -> None:
        """New start states for the envs that have used theirs up, from each env's own numbers."""
        for i in np.flatnonzero(self._counts[DRAWN] == AHEAD).tolist():
            self._generators[i].random(out=self._starts[i])
            self._counts[DRAWN, i] = 0

    def _final_infos(self, ended: Flags) -> dict[str, Any]:
        envs = np.flatnonzero(ended)
        final_obs = np.full(self.num_envs, None, object)
        for i, row in zip(envs.tolist(), self._final[envs], strict=True):
            final_obs[i] = row
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": {},
            "_final_info": ended.copy(),
        }

    def _refuse(self, env: int) -> None:
        if self._counts[PENDING, env]:
            raise StateError(
                f"cartpole: env {env}: its episode has ended and autoreset is disabled; call "
                "reset(options={'reset_mask': terminated | truncated}) before the next step"
            )
        raise TargetError(
            f"cartpole: action of env {env}: expected 0 (left) or 1 (right), "
            f"got {self._actions[env]}"
        )


def _bounds(options: dict[str, Any] | None) -> tuple[float, float]:
    """What `options` say about the start."""
    given = options or {}
    try:
        low, high = float(given.get("low", LOW)), float(given.get("high", HIGH))
    except (TypeError, ValueError) as error:
        raise SettingError(f"cartpole: options['low'], options['high']: {error}") from error
    if not low <= high:
        raise SettingError(
            f"cartpole: options: expected low at most high, got low {low} and high {high}"
        )
    return low, high
