"""Many synthetic envs as one numpy program: a simulated node.

A step lasts as long as one env's, for all envs at once: with 48 envs it stands for 48 cores that
step in parallel. Where durations are drawn, it lasts as long as the slowest env's.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from hotloop.envs.arguments import as_seeds, reset_rows
from hotloop.errors import SettingError
from hotloop.loop.clock import Clock, RealClock
from hotloop.testing.synthetic.behaviour import Pace, due, fail
from hotloop.testing.synthetic.counters import (
    COUNTER_BYTES,
    FIELDS,
    MARK,
    NO_ACTION,
    action_number,
    counter_path,
)
from hotloop.testing.synthetic.env import draw_episode
from hotloop.testing.synthetic.settings import SyntheticSettings

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Step = tuple[Array, NDArray[np.float64], Bools, Bools, dict[str, Any]]

# Columns of the counters.
EPISODE, STEP, TOTAL, ACTION = 2, 3, 4, 5


class SyntheticVectorEnv(VectorEnv[Array, Any, Array]):
    """`num_envs` synthetic envs, ids from `first_env_id`, stepped at once.

    Returns what Gymnasium's SyncVectorEnv over as many `SyntheticEnv` returns, bit for bit, seeds
    included; only the time differs. The observation space must be one Box that carries the
    counters (see `counters.py`).
    Raises: SettingError for another space.
    """

    def __init__(
        self,
        num_envs: int,
        settings: SyntheticSettings | None = None,
        *,
        first_env_id: int = 0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings = settings or SyntheticSettings()
        space = settings.space
        if not isinstance(space, spaces.Box) or counter_path(space) is None:
            raise SettingError(
                f"synthetic vector env: observation space: expected a Box of uint8 0 to 255 with "
                f"at least {COUNTER_BYTES} entries, or an unbounded one of 32 or 64 bits with at "
                f"least {FIELDS}, got {space}; vectorise SyntheticEnv with any vector env instead"
            )
        if num_envs < 1:
            raise SettingError(
                f"synthetic vector env: num_envs: expected 1 or more, got {num_envs}"
            )
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = space
        self.single_action_space = settings.action_space
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(settings.action_space, num_envs)
        # Of its own, as in the plain env.
        self._source = copy.deepcopy(space)
        clock = clock or RealClock()
        self._step_pace = Pace(settings.step.kind, settings.step.precise, clock)
        self._reset_pace = Pace(settings.reset.kind, settings.reset.precise, clock)
        self._ids = range(first_env_id, first_env_id + num_envs)
        self._step_failures = [due(settings.failures, "step", i) for i in self._ids]
        self._reset_failures = [due(settings.failures, "reset", i) for i in self._ids]
        self._fails = bool(settings.failures)
        self._rngs: list[np.random.Generator] = []
        self._timing = np.random.default_rng()
        self._templates = np.zeros((num_envs, *space.shape), space.dtype)
        self._counters = np.zeros((num_envs, FIELDS), np.int64)
        self._counters[:, 0] = MARK
        self._counters[:, 1] = self._ids
        # Counters that seeds ended: failures are planned over an env's life.
        self._earlier = np.zeros_like(self._counters)
        self._lengths = np.zeros(num_envs, np.int64)
        self._rewards: list[list[float]] = [[] for _ in self._ids]
        self._ended = np.zeros(num_envs, np.bool_)
        self._constant = not isinstance(settings.reward, tuple)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every env, or in those of `options["reset_mask"]`, (num_envs,) bool.

        An int seeds env i with `seed + i`.
        Raises: TypeError, ValueError for seeds or a mask that do not fit.
        """
        rows = reset_rows(options, self.num_envs)
        if rows is None:
            rows = np.arange(self.num_envs)
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        self._seed(list(as_seeds(seed, self.num_envs)), mask)
        self._start(rows)
        return self._observed(), self._infos(mask)

    def step(self, actions: Any) -> Step:
        """One step of every env; those that ended are reset as the autoreset mode says.

        Raises: ResetNeeded before the first reset, and in the disabled mode for ended envs.
        """
        again = self._ended
        resets = bool(again.any())
        if not self._rngs or (resets and self.autoreset_mode != AutoresetMode.NEXT_STEP):
            raise ResetNeeded(
                f"synthetic vector env: expected running episodes, got a step with those of envs "
                f"{np.flatnonzero(again).tolist() or 'all'} ended or not begun; call reset()"
            )
        stepped = ~again if resets else None
        self._advance(actions, stepped)
        if resets:
            self._start(np.flatnonzero(again))
        counters = self._counters
        ended = counters[:, STEP] >= self._lengths
        reward = self._reward(stepped)
        terminated, truncated = ended.copy(), np.zeros(self.num_envs, np.bool_)
        if self.settings.ending == "truncated":
            terminated, truncated = truncated, terminated
        self._ended = ended
        if self.autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
            infos = self._final_infos(ended)
            self._start(np.flatnonzero(ended))
            self._ended = np.zeros(self.num_envs, np.bool_)
            return self._observed(), reward, terminated, truncated, self._infos(None, infos)
        return self._observed(), reward, terminated, truncated, self._infos(None)

    def _seed(self, seeds: list[int | None], mask: Bools) -> None:
        first = not self._rngs
        if first:
            self._rngs = [np.random.default_rng() for _ in self._ids]
        for i, seed in enumerate(seeds):
            if mask[i] and (seed is not None or first):
                if seed is not None:
                    self._rngs[i] = np.random.default_rng(seed)
                rng = self._rngs[i]
                self._earlier[i] += self._counters[i]
                self._counters[i, EPISODE:] = 0
                # In the plain env's order: its timing, then its template.
                self._timing = np.random.default_rng(int(rng.integers(2**31)))
                self._source.seed(int(rng.integers(2**31)))
                self._templates[i] = self._source.sample()

    def _advance(self, actions: Any, stepped: Bools | None) -> None:
        """Count a step of the envs `stepped` (None: all), and let its time pass."""
        counters = self._counters
        add = 1 if stepped is None else stepped
        counters[:, STEP] += add
        counters[:, TOTAL] += add
        if isinstance(self.single_action_space, spaces.Discrete):
            counters[:, ACTION] = actions
        else:
            space = self.single_action_space
            each = iterate(self.action_space, actions)
            counters[:, ACTION] = [action_number(space, action) for action in each]
        if self._fails:
            self._fail(range(self.num_envs) if stepped is None else np.flatnonzero(stepped), TOTAL)
        duration = self.settings.step
        if duration.seconds > 0:
            count = self.num_envs if stepped is None else int(stepped.sum())
            if count:
                self._step_pace.spend(duration.draw_s(self._timing, count))

    def _start(self, envs: NDArray[np.intp]) -> None:
        """Start an episode in `envs`, with its time."""
        self._counters[envs, EPISODE] += 1
        self._counters[envs, STEP] = 0
        self._counters[envs, ACTION] = NO_ACTION
        self._ended[envs] = False
        if self._fails:
            self._fail(envs, EPISODE)
        if self.settings.reset.seconds > 0:
            self._reset_pace.spend(self.settings.reset.draw_s(self._timing, len(envs)))
        for i in envs:
            self._lengths[i], self._rewards[i] = draw_episode(self.settings, self._rngs[i])

    def _fail(self, envs: Any, column: int) -> None:
        planned = self._step_failures if column == TOTAL else self._reset_failures
        for i in envs:
            failure = planned[i].get(int(self._earlier[i, column] + self._counters[i, column]))
            if failure is not None:
                fail(failure, self._ids[i])

    def _reward(self, stepped: Bools | None) -> NDArray[np.float64]:
        if self._constant:
            reward = np.full(self.num_envs, self._rewards[0][0])
        else:
            steps = self._counters[:, STEP].tolist()
            # A reset's step is 0, and its entry is taken out below.
            pairs = zip(self._rewards, steps, strict=True)
            reward = np.array([rewards[step - 1] for rewards, step in pairs])
        if stepped is not None:
            reward[~stepped] = 0.0
        return reward

    def _observed(self) -> Array:
        obs = self._templates.copy()
        flat = obs.reshape(self.num_envs, -1)
        if obs.dtype == np.uint8:
            flat[:, :COUNTER_BYTES] = self._counters.astype("<i8").view(np.uint8)
        else:
            flat[:, :FIELDS] = self._counters
        return obs

    def _infos(self, envs: Bools | None, infos: dict[str, Any] | None = None) -> dict[str, Any]:
        infos = infos or {}
        if self.settings.info:
            for i in range(self.num_envs) if envs is None else np.flatnonzero(envs):
                infos = self._add_info(infos, dict(self.settings.info), int(i))
        return infos

    def _final_infos(self, ended: Bools) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        final = self._observed()
        for i in np.flatnonzero(ended):
            last = {"final_obs": final[i].copy(), "final_info": dict(self.settings.info or {})}
            infos = self._add_info(infos, last, int(i))
        return infos
