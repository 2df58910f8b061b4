"""Gymnasium's own vector envs, constructor for constructor, on the engines here.

    gymnasium.vector.AsyncVectorEnv = hotloop.envs.adapters.gymnasium.AsyncVectorEnv

Code written for `SyncVectorEnv` and `AsyncVectorEnv` runs unchanged: the arguments, the states of
pending calls, the classes and words of errors are theirs. What differs: many envs share a process,
all step data of fixed shape lies in shared memory, and envs outlive the errors that they raise.
"""

import inspect
import multiprocessing
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import logger, spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_differing_spaces, batch_space, iterate
from numpy.typing import NDArray

from hotloop.data.layout import Tree, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.infos import merge_infos
from hotloop.envs.placement import whole_cores
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.vector import Batch, Rows, Told, VectorEnv
from hotloop.errors import ShapeError, TargetError

AnyEnv = gymnasium.Env[Any, Any]
AnySpace = spaces.Space[Any]
ObservationMode = str | tuple[AnySpace, AnySpace]
_OF_BATCHES = ("reset", "step", "close", "_setattr", "_check_spaces")  # nothing for `call`
_BATCHABLE = (
    *(spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text),
    *(spaces.Sequence, spaces.Graph, spaces.OneOf),
)


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
            single, batched = _observation_spaces(observation_mode, envs)
            _expect_alike(type(self).__name__, observation_mode, single, envs)
        except Exception:
            for env in envs:
                env.close()
            raise
        if observation_mode != "same":
            envs = [_Declared(env, single) for env in envs]
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
        self.max_concurrency = _as_max_concurrency(max_concurrency)
        _refuse_worker(worker)
        fns: Sequence[Callable[[], AnyEnv]] = env_fns
        batched: AnySpace | None = None
        if observation_mode != "same":
            single, batched = _spaces_made_here(observation_mode, env_fns)
            fns = [partial(_declared, fn, single) for fn in env_fns]
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
            _explain(type(self).__name__, observation_mode, env_fns)
            raise
        self._state = AsyncState.DEFAULT
        _adopt(self, self.engine, batched)
        if shared_memory and not _is_batchable(self.single_observation_space):
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
        """Begin a reset; `reset_wait` gives what came of it."""
        self._expect_nothing_pending("reset_async", ends="")
        self.engine.async_reset(seed=seed, options=options)
        self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[Tree, dict[str, Any]]:
        """What came of `reset_async`.

        Raises: NoAsyncCallError without one; TimeoutError after `timeout` seconds.
        """
        rows = self._awaited(AsyncState.WAITING_RESET, timeout)
        engine = self.engine
        infos = engine.table.take_infos(np.arange(self.num_envs))
        self._receive(rows)
        obs = tree_map(np.copy, engine.table.obs) if self.copy else engine.table.obs
        return engine.layout.public(obs), infos

    def step_async(self, actions: Tree) -> None:
        """Begin a step; `step_wait` gives what came of it."""
        self._expect_nothing_pending("step_async")
        checked = _checked_actions(self, self.engine, actions)
        self.engine.send(checked, np.arange(self.num_envs))
        self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> Batch:
        """What came of `step_async`.

        Raises: NoAsyncCallError without one; TimeoutError after `timeout` seconds.
        """
        told = self._receive(self._awaited(AsyncState.WAITING_STEP, timeout))
        obs, reward, terminated, truncated, infos = told
        return obs, reward, terminated, truncated, merge_infos(self.num_envs, infos)

    def call_async(self, name: str, /, *args: object, **kwargs: object) -> None:
        """Begin a call of a method of every env; `call_wait` gives what came of it."""
        self._expect_nothing_pending("call_async")
        if name in _OF_BATCHES:
            raise ValueError(
                f"Trying to call function `{name}` with `call`, use `{name}` directly instead."
            )
        self.engine.call_async(name, *args, **kwargs)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """What came of `call_async`.

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
        self.engine.drain()  # of what a wait that timed out did not stay for

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

    def _receive(self, rows: Rows) -> Told:
        try:
            return self.engine.recv_told(rows)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        """Let all envs finish, log what was raised in them, and raise the last of it."""
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


class _Declared(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env that says it has another observation space than its own."""

    def __init__(self, env: AnyEnv, observation_space: AnySpace) -> None:
        super().__init__(env)
        self.observation_space = observation_space


def _declared(env_fn: Callable[[], AnyEnv], observation_space: AnySpace) -> AnyEnv:
    return _Declared(env_fn(), observation_space)


def _given(env: AnyEnv) -> AnyEnv:
    return env


def _adopt(
    face: "SyncVectorEnv | AsyncVectorEnv", engine: VectorEnv, batched: AnySpace | None
) -> None:
    """Give a face what its engine knows. `spec` stays None: it is for whoever registers it."""
    face.num_envs = engine.num_envs
    face.metadata, face.render_mode = engine.metadata, engine.render_mode
    face.single_observation_space = engine.single_observation_space
    face.observation_space = engine.observation_space if batched is None else batched
    face.single_action_space, face.action_space = engine.single_action_space, engine.action_space


def _observation_spaces(
    mode: ObservationMode, envs: Sequence[AnyEnv]
) -> tuple[AnySpace, AnySpace | None]:
    """The space of one env, and of a batch of them.

    Raises: ValueError for an unknown mode; TypeError for a tuple of something else than spaces.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        batched, single = mode
        if not isinstance(batched, spaces.Space) or not isinstance(single, spaces.Space):
            raise TypeError(
                "Expected both elements of observation_mode to be Spaces, got "
                f"{type(batched)} and {type(single)}"
            )
        return single, batched
    single = envs[0].observation_space
    if mode == "same":
        return single, batch_space(single, len(envs))
    if mode == "different":
        return single, batch_differing_spaces([env.observation_space for env in envs])
    raise ValueError(
        "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch "
        f"observation space, actual got {mode}"
    )


def _expect_alike(
    face: str, mode: ObservationMode, single: AnySpace, envs: Sequence[AnyEnv]
) -> None:
    """Refuse envs that cannot be batched, in Gymnasium's words.

    Raises: RuntimeError.
    """
    some = "" if face == "SyncVectorEnv" else "some of "
    for env in envs:
        space = env.observation_space
        if mode == "same" and space != single:
            raise RuntimeError(
                f"{face}(..., observation_mode='same') however {some}the sub-environments "
                f"observation spaces are not equivalent. single_observation_space={single}, "
                f"sub-environment observation_space={space}. If this is intentional, use "
                "`observation_mode='different'` instead."
            )
        if mode != "same" and not is_space_dtype_shape_equiv(space, single):
            raise RuntimeError(
                f"{face}(..., observation_mode='different' or custom space) however the "
                "sub-environments observation spaces do not share a common shape and dtype, "
                f"single_observation_space={single}, sub-environment observation space={space}"
            )
        if env.action_space != envs[0].action_space:
            raise RuntimeError(
                "Sub-environment action space doesn't make the `single_action_space`, "
                f"action_space={env.action_space}, single_action_space={envs[0].action_space}"
            )


def _spaces_made_here(
    mode: ObservationMode, env_fns: Sequence[Callable[[], AnyEnv]]
) -> tuple[AnySpace, AnySpace | None]:
    """The spaces of envs that are made to be looked at and closed, as Gymnasium does too."""
    envs = [env_fn() for env_fn in env_fns]
    try:
        single, batched = _observation_spaces(mode, envs)
        _expect_alike("AsyncVectorEnv", mode, single, envs)
    finally:
        for env in envs:
            env.close()
    return single, batched


def _explain(face: str, mode: ObservationMode, env_fns: Sequence[Callable[[], AnyEnv]]) -> None:
    """Raise Gymnasium's error if the engine refused these envs for their spaces."""
    envs = [env_fn() for env_fn in env_fns]
    try:
        _expect_alike(face, mode, _observation_spaces(mode, envs)[0], envs)
    finally:
        for env in envs:
            env.close()


def _is_batchable(space: AnySpace) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_is_batchable(child) for child in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(_is_batchable(child) for child in space.spaces)
    return isinstance(space, _BATCHABLE)


def _as_max_concurrency(number: int | None) -> int | None:
    if number is not None and not isinstance(number, int | np.integer):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(number)}.")
    if number is not None and number < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {number}.")
    return number


def _refuse_worker(worker: Callable[..., None] | None) -> None:
    if worker is not None:
        raise ValueError(
            f"worker: expected None, got {worker} with the signature {inspect.signature(worker)}; "
            "it would serve one env through a pipe, and here a process has many: wrap the envs "
            "instead, or use gymnasium.vector.AsyncVectorEnv"
        )


def _checked_actions(
    face: "SyncVectorEnv | AsyncVectorEnv", engine: VectorEnv, actions: Tree
) -> Tree:
    """The actions in arrays if they fit; as they are if there is at least one for each env.

    Raises: TypeError for what is no batch, ValueError for another number of actions.
    """
    try:
        return engine.check_actions(actions, face.num_envs)
    except ShapeError as error:
        given = Given(iterate(face.action_space, actions))
        if len(given) != face.num_envs:
            raise ValueError(str(error)) from error
        return given  # what does not fit the space is for the env to refuse


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
