"""Gymnasium's own vector envs, constructor for constructor, on the backends of hotloop.

    gymnasium.vector.AsyncVectorEnv = hotloop.integrations.gymnasium.AsyncVectorEnv

Code written for `SyncVectorEnv` and `AsyncVectorEnv` runs unchanged: the arguments, the states of
pending calls, the classes and words of errors are theirs. What differs: many envs share a process,
all step data of fixed shape lies in shared memory, and envs outlive the errors that they raise.
One file, for the two classes differ in a few methods only.
"""

import multiprocessing
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from hotloop.data.layout import Tree, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.infos import merge_infos
from hotloop.envs.process.engine import ProcessVectorEnv
from hotloop.envs.serial.engine import SerialVectorEnv
from hotloop.envs.table import Rows
from hotloop.envs.vector import Batch, EnvInfosBatch, VectorEnv
from hotloop.errors import ShapeError, TargetError
from hotloop.integrations.gymnasium_checks import (
    AnyEnv,
    AnySpace,
    ObservationMode,
    SpaceOverride,
    as_max_concurrency,
    expect_alike,
    explain_refusal,
    is_batchable,
    make_with_space,
    observation_spaces,
    refuse_worker,
    spaces_made_here,
)
from hotloop.loop.host import whole_cores

_OF_BATCHES = ("reset", "step", "close", "_setattr", "_check_spaces")  # nothing for `call`


class SyncVectorEnv(gymnasium.vector.VectorEnv[Tree, Tree, NDArray[Any]]):
    """`gymnasium.vector.SyncVectorEnv` on `SerialVectorEnv`, which steps the envs.

    Raises: as Gymnasium's, RuntimeError for envs whose spaces differ among others.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], AnyEnv]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.env_fns = env_fns
        self.copy = copy
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        envs = [env_fn() for env_fn in env_fns]
        try:
            single, batched = observation_spaces(observation_mode, envs)
            expect_alike(type(self).__name__, observation_mode, single, envs)
        except Exception:
            for env in envs:
                env.close()
            raise
        if observation_mode != "same":
            envs = [SpaceOverride(env, single) for env in envs]
        self.engine = SerialVectorEnv(
            [partial(_given, env) for env in envs], autoreset_mode=self.autoreset_mode, copy=copy
        )
        _adopt(self, self.engine, batched)

    @property
    def envs(self) -> list[AnyEnv]:
        """The envs."""
        return self.engine.envs

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Every env's generator."""
        return self.get_attr("np_random")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode in every env, or in those of `options["reset_mask"]`."""
        return self.engine.reset(seed=seed, options=options)

    def step(self, actions: Tree) -> Batch:
        """One step of every env.

        Raises: ValueError or TypeError for actions that do not fit.
        """
        return self.engine.step(_checked_actions(self, self.engine, actions))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """An attribute of every env, or what its method of that name returns."""
        return self.engine.call(name, *args, **kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every env."""
        return self.engine.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute: a list or tuple has one value an env, anything else is for all."""
        self.engine.set_attr(name, values)

    def render(self) -> tuple[Any, ...]:
        """What every env renders."""
        return self.engine.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close every env."""
        self.engine.close(**kwargs)


class AsyncVectorEnv(gymnasium.vector.VectorEnv[Tree, Tree, NDArray[Any]]):
    """`gymnasium.vector.AsyncVectorEnv` on `ProcessVectorEnv`, with several envs in a process.

    shared_memory: what lies in shared memory is decided by the space, not by this; True refuses
    custom spaces, as Gymnasium does. max_concurrency: at most so many processes, each of which
    steps one env at a time. num_workers: processes; one for each usable core if None. worker: only
    None, for a function of Gymnasium's pipe protocol serves one env where a process has many.

    Raises: as Gymnasium's, RuntimeError for envs whose spaces differ among others.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], AnyEnv]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        self.env_fns = env_fns
        self.shared_memory, self.copy = shared_memory, copy
        self.context, self.daemon = context, daemon
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.max_concurrency = as_max_concurrency(max_concurrency)
        refuse_worker(worker)
        fns: Sequence[Callable[[], AnyEnv]] = env_fns
        batched: AnySpace | None = None
        if observation_mode != "same":
            single, batched = spaces_made_here(observation_mode, env_fns)
            fns = [partial(make_with_space, fn, single) for fn in env_fns]
        workers = min(num_workers or whole_cores(), max_concurrency or len(fns), len(fns))
        try:
            self.engine = ProcessVectorEnv(
                fns,
                num_workers=workers,
                autoreset_mode=self.autoreset_mode,
                copy=copy,
                context=context,
                daemon=daemon,
            )
        except TargetError:
            explain_refusal(type(self).__name__, observation_mode, env_fns)
            raise
        self._state = AsyncState.DEFAULT
        _adopt(self, self.engine, batched)
        if shared_memory and not is_batchable(self.single_observation_space):
            self.close()
            raise ValueError(
                "Using `AsyncVector(..., shared_memory=True)` caused an error, you can disable "
                "this feature with `shared_memory=False` however this is slower."
            )

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every env's generator."""
        return self.get_attr("np_random")

    # --- at once -------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode in every env, or in those of `options["reset_mask"]`."""
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def step(self, actions: Tree) -> Batch:
        """One step of every env; as `step_async` and `step_wait`, a little faster."""
        self._expect_nothing_pending("step_async")
        checked = _checked_actions(self, self.engine, actions)
        try:
            return self.engine.step(checked)
        except Exception as error:
            self._fail(error)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """An attribute of every env, or what its method of that name returns."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every env."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute: a list or tuple has one value an env, anything else is for all."""
        self._expect_nothing_pending("set_attr")
        self.engine.set_attr(name, values)

    def render(self) -> tuple[Any, ...]:
        """What every env renders."""
        return self.call("render")

    # --- begun, then awaited -------------------------------------------------------------------

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin a reset; `reset_wait` gives the results."""
        self._expect_nothing_pending("reset_async", ends="")
        self.engine.async_reset(seed=seed, options=options)
        self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[Tree, dict[str, Any]]:
        """The results of `reset_async`.

        Raises: NoAsyncCallError without one; TimeoutError after `timeout` seconds.
        """
        rows = self._awaited(AsyncState.WAITING_RESET, timeout)
        engine = self.engine
        infos = engine.table.take_infos(np.arange(self.num_envs))
        self._receive(rows)
        obs = tree_map(np.copy, engine.table.obs) if self.copy else engine.table.obs
        return engine.layout.public(obs), infos

    def step_async(self, actions: Tree) -> None:
        """Begin a step; `step_wait` gives the results."""
        self._expect_nothing_pending("step_async")
        checked = _checked_actions(self, self.engine, actions)
        self.engine.send(checked, np.arange(self.num_envs))
        self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> Batch:
        """The results of `step_async`.

        Raises: NoAsyncCallError without one; TimeoutError after `timeout` seconds.
        """
        rows = self._awaited(AsyncState.WAITING_STEP, timeout)
        obs, reward, terminated, truncated, infos = self._receive(rows)
        return obs, reward, terminated, truncated, merge_infos(self.num_envs, infos)

    def call_async(self, name: str, /, *args: object, **kwargs: object) -> None:
        """Begin a call of a method of every env; `call_wait` gives the results."""
        self._expect_nothing_pending("call_async")
        if name in _OF_BATCHES:
            raise ValueError(
                f"Trying to call function `{name}` with `call`, use `{name}` directly instead."
            )
        self.engine.call_async(name, *args, **kwargs)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """The results of `call_async`.

        Raises: NoAsyncCallError without one; TimeoutError after `timeout` seconds.
        """
        self._expect_pending(AsyncState.WAITING_CALL)
        self._state = AsyncState.DEFAULT
        answers = self.engine.call_wait(timeout)
        if answers is None:
            raise _timeout("call", timeout)
        return answers

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the envs and end the workers; `terminate` does not wait for what is pending."""
        if self._state != AsyncState.DEFAULT:
            pending = self._state.value
            logger.warn(
                f"Calling `close` while waiting for a pending call to `{pending}` to complete."
            )
            try:
                getattr(self, f"{pending}_wait")(0 if terminate else timeout)
            except multiprocessing.TimeoutError:
                terminate = True
        self.engine.close(terminate=terminate)

    # --- what is pending, and what failed ------------------------------------------------------

    def _expect_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )

    def _expect_nothing_pending(self, what: str, ends: str = ".") -> None:
        self._expect_open()
        if self._state != AsyncState.DEFAULT:
            pending = self._state.value
            raise AlreadyPendingCallError(
                f"Calling `{what}` while waiting for a pending call to `{pending}` to "
                f"complete{ends}",
                pending,
            )
        self.engine.drain()  # of a wait that timed out

    def _expect_pending(self, state: AsyncState) -> None:
        self._expect_open()
        if self._state != state:
            raise NoAsyncCallError(
                f"Calling `{state.value}_wait` without any prior call to `{state.value}_async`.",
                state.value,
            )

    def _awaited(self, state: AsyncState, timeout: float | None) -> Rows:
        """The envs that are under way, all of them ready."""
        self._expect_pending(state)
        self._state = AsyncState.DEFAULT
        rows = self.engine.under_way
        ready = self.engine.poll(len(rows), timeout)
        if timeout is not None and len(ready) < len(rows):
            raise _timeout(state.value, timeout)
        return rows

    def _receive(self, rows: Rows) -> EnvInfosBatch:
        try:
            return self.engine.recv_by_env(rows)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        """Let all envs finish, log their errors, and raise the last."""
        errors = [error]
        while len(rows := self.engine.under_way):
            try:
                self.engine.recv(rows)
            except Exception as another:
                errors.append(another)
        for error in errors:
            notes = getattr(error, "__notes__", [])
            found = re.search(r"^in env (\d+)$", "\n".join(notes), re.MULTILINE)
            if found is None:
                raise error
            logger.error(f"Received the following error from Worker-{found[1]} - Shutting it down")
            logger.error(_traceback_of(notes))
        logger.error("Raising the last exception back to the main process.")
        raise errors[-1]

    def __del__(self) -> None:
        if not self.closed and hasattr(self, "_state"):
            self.close(terminate=True)


def _given(env: AnyEnv) -> AnyEnv:
    return env


def _adopt(
    outer: "SyncVectorEnv | AsyncVectorEnv", engine: VectorEnv, batched: AnySpace | None
) -> None:
    """Set the attributes that follow from the engine. `spec` stays None: registration sets it."""
    outer.num_envs = engine.num_envs
    outer.metadata, outer.render_mode = engine.metadata, engine.render_mode
    outer.single_observation_space = engine.single_observation_space
    outer.observation_space = engine.observation_space if batched is None else batched
    outer.single_action_space, outer.action_space = engine.single_action_space, engine.action_space


def _checked_actions(
    outer: "SyncVectorEnv | AsyncVectorEnv", engine: VectorEnv, actions: Tree
) -> Tree:
    """The actions in arrays if they fit; as they are if there is at least one for each env.

    Raises: TypeError for what is no batch, ValueError for another number of actions.
    """
    try:
        return engine.check_actions(actions, outer.num_envs)
    except ShapeError as error:
        given = Given(iterate(outer.action_space, actions))
        if len(given) != outer.num_envs:
            raise ValueError(str(error)) from error
        return given  # the env refuses what does not fit its space


def _timeout(what: str, timeout: float | None) -> multiprocessing.TimeoutError:
    return multiprocessing.TimeoutError(
        f"The call to `{what}_wait` has timed out after {timeout} second(s)."
    )


def _traceback_of(notes: Sequence[str]) -> str:
    """The traceback that a worker noted, without the other notes at its end."""
    text = "".join(notes[-1:]).removeprefix("\nIn the worker:\n")
    for note in reversed(notes[:-1]):
        text = text.removesuffix(f"{note}\n")
    return text
