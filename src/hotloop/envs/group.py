"""A group of envs stepped one after the other: the part that all backends share.

It is fast by what it leaves out. Wrappers that only check are bypassed after the first step; the
time limit of all envs is one comparison of arrays; results stay tuples until a whole column can
become an array.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from hotloop.envs.limits import TimeLimits
from hotloop.errors import TargetError

AnyEnv = Env[Any, Any]
EnvInfos = list[tuple[int, dict[str, Any]]]  # a row with its info, if that is not empty


class Results(NamedTuple):
    """The results of a step or reset of n envs, column by column."""

    obs: Sequence[Any]  # n values of the observation space
    reward: Sequence[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: EnvInfos  # rows count within the n; an env that was reset at once comes twice


class EnvGroup:
    """n envs of equal spaces, with their autoreset.

    NEXT_STEP: an env that ended is reset by its next step, whose action is ignored. SAME_STEP: it
    is reset at once; its last observation and info are in the infos as `final_obs`, `final_info`.
    DISABLED: stepping an env that ended is refused. All step before any is reset.

    An error in an env carries a note that says which one, counted from `first`.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], AnyEnv]], autoreset_mode: AutoresetMode, first: int = 0
    ) -> None:
        self.first = first
        self.autoreset_mode = autoreset_mode
        self._envs: list[AnyEnv] = []
        for i, env_fn in enumerate(env_fns):
            try:
                self._envs.append(_made(env_fn))
            except BaseException as error:
                error.add_note(f"while making env {first + i}")
                self.close()
                raise
        self._no_reward: Any = 0.0  # of a step that only resets
        if self._envs and (shape := reward_shape(self._envs[0])):
            self._no_reward = np.zeros(shape)
        self._steps: list[Callable[[Any], Any]] = [env.step for env in self._envs]
        self._calls = list(self._steps)  # what the next step of each env calls
        self._waiting: set[int] = set()  # rows whose next call is not a step: a reset, or a refusal
        self._unchecked = set(range(len(self._envs)))  # rows that have not stepped yet
        self._limits = TimeLimits(len(self._envs))
        self._limit_wrappers: list[TimeLimit[Any, Any] | None] = [None] * len(self._envs)

    def __len__(self) -> int:
        return len(self._envs)

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> Results:
        """Start an episode in the envs of `rows`."""
        observations, infos = [], []
        for k, (row, seed) in enumerate(zip(rows, seeds, strict=True)):
            try:
                obs, info = self._envs[row].reset(seed=seed, options=options)
            except Exception as error:
                self._note(error, row)
                raise
            observations.append(obs)
            if info:
                infos.append((k, info))
            self._limits.begin(row)
            self._settle((row,))
        none = np.zeros(len(observations), np.bool_)
        return Results(observations, [self._no_reward] * len(none), none, none.copy(), infos)

    def step(self, actions: Sequence[Any]) -> Results:
        """One step of every env, with one action each."""
        left = iter(actions)
        try:
            outcomes = [call(action) for call, action in zip(self._calls, left, strict=True)]
        except BaseException as error:
            failed = len(actions) - operator.length_hint(left) - 1
            for row in range(failed):
                self._limits.step_one(row)
            self._settle(range(failed))
            self._note(error, failed)
            raise
        obs: Sequence[Any]
        obs, reward, ended, cut, given = zip(*outcomes, strict=True)
        terminated, truncated = np.array(ended, np.bool_), np.array(cut, np.bool_)
        at_limit = self._limits.step_all()
        if self._waiting or self._unchecked:
            self._settle(self._waiting)
            self._bypass_checks(range(len(self._envs)))
        infos: EnvInfos = [pair for pair in enumerate(given) if pair[1]] if any(given) else []
        if at_limit is not None:
            truncated |= at_limit
        elif not any(ended) and not any(cut):
            return Results(obs, reward, terminated, truncated, infos)
        obs = arrived = list(obs)
        for row in np.flatnonzero(terminated | truncated).tolist():
            arrived[row] = self._end(row, row, arrived[row], infos)
        infos.sort(key=lambda pair: pair[0])
        return Results(obs, reward, terminated, truncated, infos)

    def step_one(self, row: int, action: Any) -> Results:
        """One step of one env."""
        try:
            obs, reward, ended, cut, info = self._calls[row](action)
        except Exception as error:
            self._note(error, row)
            raise
        ended, cut = bool(ended), self._limits.step_one(row) or bool(cut)
        self._settle((row,))
        self._bypass_checks((row,))
        infos: EnvInfos = [(0, info)] if info else []
        if ended or cut:
            obs = self._end(row, 0, obs, infos)
        return Results([obs], [reward], np.array([ended]), np.array([cut]), infos)

    def lose(self, row: int, last_obs: Any) -> None:
        """Let the next step of an env report its episode truncated: its worker died."""
        lost = (last_obs, self._no_reward, False, True, {"worker_restarted": True})
        self._calls[row] = lambda _action: lost
        self._waiting.add(row)

    def await_reset(self, row: int) -> None:
        """Let an env wait for the reset after its episode."""
        refuse_or_reset = self._reset if self._resets_next else self._refuse
        self._calls[row] = lambda _action: refuse_or_reset(row)
        self._waiting.add(row)

    @property
    def made(self) -> tuple[AnyEnv, ...]:
        """The envs, to be read only."""
        return tuple(self._envs)

    @property
    def envs(self) -> list[AnyEnv]:
        """The envs as they were made; their owner may step them, so no wrapper is bypassed."""
        self.write_back()
        self._unchecked = set()
        self._limits = TimeLimits(len(self._envs))
        self._limit_wrappers = [None] * len(self._envs)
        for row, env in enumerate(self._envs):
            self._steps[row] = env.step
            if row not in self._waiting:
                self._calls[row] = env.step
        return self._envs

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """An attribute of every env, or what the method of that name returns."""
        self.write_back()
        got = []
        for row, env in enumerate(self._envs):
            try:
                attribute = env.get_wrapper_attr(name)
                got.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
            except Exception as error:
                self._note(error, row)
                raise
        self._read_back()
        return got

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute, one value an env."""
        self.write_back()
        for env, value in zip(self._envs, values, strict=True):
            env.set_wrapper_attr(name, value)
        self._read_back()

    def render(self) -> list[Any]:
        """What every env renders."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        """Close every env; the first error is raised after all were closed. Idempotent."""
        envs, self._envs = self._envs, []
        first: Exception | None = None
        for row, env in enumerate(envs):
            try:
                env.close()
            except Exception as error:
                self._note(error, row)
                first = first or error
        if first is not None:
            raise first

    # --- episodes ----------------------------------------------------------------------------

    @property
    def _resets_next(self) -> bool:
        return self.autoreset_mode == AutoresetMode.NEXT_STEP

    def _end(self, row: int, k: int, obs: Any, infos: EnvInfos) -> Any:
        """End an episode as the mode says; returns the observation of the step."""
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self.await_reset(row)
            return obs
        info: dict[str, Any] = next((i for j, i in infos if j == k), {})
        infos[:] = [pair for pair in infos if pair[0] != k]
        infos.append((k, {"final_obs": obs, "final_info": info}))
        if "worker_restarted" in info:  # also where the other modes have it
            infos.append((k, {"worker_restarted": True}))
        try:
            obs, info = self._envs[row].reset()
        except Exception as error:
            self._note(error, row)
            raise
        self._limits.begin(row)
        if info:
            infos.append((k, info))
        return obs

    def _reset(self, row: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, info = self._envs[row].reset()
        self._limits.begin(row, -1)  # this step resets: it does not count in the episode
        return obs, self._no_reward, False, False, info

    def _refuse(self, row: int) -> None:
        raise AssertionError(
            f"env {self.first + row}: a step after its episode ended: expected a reset before, for "
            "autoreset is disabled; call reset(options={'reset_mask': mask})"
        )

    def _settle(self, rows: Iterable[int]) -> None:
        """The next call of these envs is a step."""
        settled = self._waiting.intersection(rows)
        for row in settled:
            self._calls[row] = self._steps[row]
        self._waiting -= settled

    # --- bypassing wrappers that only check ------------------------------------------------------

    def _bypass_checks(self, rows: Iterable[int]) -> None:
        """After its first step, call the env inside of the outermost checks and limit."""
        for row in self._unchecked.intersection(rows):
            self._unchecked.discard(row)
            inner: Any = self._envs[row]
            limit: TimeLimit[Any, Any] | None = None
            while isinstance(inner, PassiveEnvChecker | OrderEnforcing | TimeLimit):
                if type(inner) not in (PassiveEnvChecker, OrderEnforcing, TimeLimit):
                    break  # a subclass, which may do more
                if isinstance(inner, TimeLimit):
                    if limit is not None:
                        break
                    limit = self._limit_wrappers[row] = inner
                    self._limits.limit(row, inner._max_episode_steps)
                    # Its own count: the env may have been stepped by `call`.
                    self._limits.begin(row, vars(inner)["_elapsed_steps"] or 0)
                inner = inner.env
            self._steps[row] = self._calls[row] = inner.step

    def write_back(self) -> None:
        """Write the steps that the bypassed wrappers did not see into them."""
        for wrapper, elapsed in zip(
            self._limit_wrappers, self._limits.steps().tolist(), strict=True
        ):
            if wrapper is not None:
                vars(wrapper)["_elapsed_steps"] = elapsed

    def _read_back(self) -> None:
        for row, wrapper in enumerate(self._limit_wrappers):
            if wrapper is not None:
                self._limits.limit(row, wrapper._max_episode_steps)
                self._limits.begin(row, vars(wrapper)["_elapsed_steps"] or 0)  # None before a reset

    def _note(self, error: BaseException, row: int) -> None:
        error.add_note(f"in env {self.first + row}")


def reward_shape(env: AnyEnv) -> tuple[int, ...]:
    """The shape of an env's rewards: of its `reward_space`, or () for numbers."""
    if not env.has_wrapper_attr("reward_space"):
        return ()
    return tuple(env.get_wrapper_attr("reward_space").shape)


def _made(env_fn: Callable[[], AnyEnv]) -> AnyEnv:
    env = env_fn()
    if not isinstance(env, Env):
        raise TargetError(
            f"vector env: expected a function that makes a gymnasium.Env, got one that makes "
            f"{type(env).__qualname__}"
        )
    return env
