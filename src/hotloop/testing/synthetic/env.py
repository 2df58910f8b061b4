"""One env of set cost: the plain path, which the vector env's numpy must equal."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from hotloop.loop.clock import Clock, RealClock
from hotloop.testing.synthetic.behaviour import Pace, due, fail
from hotloop.testing.synthetic.counters import MARK, NO_ACTION, action_number, counter_path, packer
from hotloop.testing.synthetic.settings import SyntheticSettings


def synthetic_fns(
    num_envs: int, settings: SyntheticSettings | None = None
) -> list[Callable[[], "SyntheticEnv"]]:
    """Makers of `num_envs` envs, each with its own id, from 0; picklable."""
    return [partial(SyntheticEnv, settings, env_id=i) for i in range(num_envs)]


class SyntheticEnv(gymnasium.Env[Any, Any]):
    """An env that costs what its settings say and numbers its steps.

    Observations are drawn at `reset(seed=...)` and stamped with the counters at every step (see
    `counters.py`); those of a space that cannot carry them are drawn anew at every step, and
    `info["counters"]`, (6,) int64, has the counters. Every observation is a copy.
    Everything that is returned follows from `reset(seed=...)`, which starts the counters anew too,
    whatever the durations: these are
    drawn from a generator of their own, seeded by the same seed.
    Raises: ResetNeeded for a step before the first reset or after an episode's end.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own form

    def __init__(
        self,
        settings: SyntheticSettings | None = None,
        env_id: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings = settings or SyntheticSettings()
        self.env_id = env_id
        self.observation_space = settings.space
        self.action_space = settings.action_space
        # A copy: seeding the public space must not change the observations.
        self._source = copy.deepcopy(settings.space)
        self._path = counter_path(settings.space)
        clock = clock or RealClock()
        self._step_pace = Pace(settings.step.kind, settings.step.precise, clock)
        self._reset_pace = Pace(settings.reset.kind, settings.reset.precise, clock)
        self._step_failures = due(settings.failures, "step", env_id)
        self._reset_failures = due(settings.failures, "reset", env_id)
        self._timing: np.random.Generator | None = None
        self._template: Any = None
        self._number = partial(action_number, settings.action_space)
        self._lasts = settings.step.seconds > 0
        self._by_termination = settings.ending == "terminated"
        self._rewards: list[float] = []
        self._running = False
        self._episode = self._step = self._total = self._length = 0
        # Over the env's life, whatever its seeds: what failures are planned by.
        self._steps = self._resets = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; a seed starts the generators anew, None keeps them."""
        super().reset(seed=seed, options=options)
        if seed is not None or self._timing is None:
            self._draw_template()
            self._episode = self._total = 0
        assert self._timing is not None
        self._episode += 1
        if self._reset_failures:
            self._resets += 1
            if self._resets in self._reset_failures:
                fail(self._reset_failures[self._resets], self.env_id)
        if self.settings.reset.seconds > 0:
            self._reset_pace.spend(self.settings.reset.draw_s(self._timing))
        self._length, self._rewards = draw_episode(self.settings, self.np_random)
        self._step = 0
        self._running = True
        return self._observed(NO_ACTION)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step: its time passes, then its observation is made."""
        if not self._running:
            raise ResetNeeded(
                f"synthetic env {self.env_id}: expected a running episode, got a step before the "
                "reset or after the end; call reset()"
            )
        self._total += 1
        if self._step_failures:
            self._steps += 1
            if self._steps in self._step_failures:
                fail(self._step_failures[self._steps], self.env_id)
        if self._lasts:
            assert self._timing is not None
            self._step_pace.spend(self.settings.step.draw_s(self._timing))
        step = self._step = self._step + 1
        obs, info = self._observed(self._number(action))
        reward = self._rewards[step - 1] if len(self._rewards) > 1 else self._rewards[0]
        if step < self._length:
            return obs, reward, False, False, info
        self._running = False
        return obs, reward, self._by_termination, not self._by_termination, info

    def _draw_template(self) -> None:
        self._timing = np.random.default_rng(int(self.np_random.integers(2**31)))
        self._source.seed(int(self.np_random.integers(2**31)))
        self._template = self._source.sample()
        if self._path is not None:
            self._pack = packer(_at(self._template, self._path).dtype)

    def _observed(self, action: int) -> tuple[Any, dict[str, Any]]:
        info = dict(self.settings.info) if self.settings.info else {}
        counters = (MARK, self.env_id, self._episode, self._step, self._total, action)
        if self._path is None:
            info["counters"] = np.array(counters, np.int64)
            return self._source.sample(), info
        obs = _copy(self._template)
        self._pack(_at(obs, self._path) if self._path else obs, 0, *counters)
        return obs, info


def draw_episode(settings: SyntheticSettings, rng: np.random.Generator) -> tuple[int, list[float]]:
    """An episode's length and rewards; a reward that is always the same is given once."""
    low, high = settings.episode_range
    length = low if low == high else int(rng.integers(low, high, endpoint=True))
    if isinstance(settings.reward, tuple):
        return length, rng.uniform(*settings.reward, size=length).tolist()
    return length, [float(settings.reward)]


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _copy(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, dict):
        return {key: _copy(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_copy(part) for part in tree)
    return tree
