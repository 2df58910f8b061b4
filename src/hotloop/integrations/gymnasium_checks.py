"""Gymnasium's checks of envs and arguments, with its classes and words of errors."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

AnyEnv = gymnasium.Env[Any, Any]
AnySpace = spaces.Space[Any]
ObservationMode = str | tuple[AnySpace, AnySpace]
_BATCHABLE = (
    *(spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text),
    *(spaces.Sequence, spaces.Graph, spaces.OneOf),
)


class SpaceOverride(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env under another observation space than its own."""

    def __init__(self, env: AnyEnv, observation_space: AnySpace) -> None:
        super().__init__(env)
        self.observation_space = observation_space


def make_with_space(env_fn: Callable[[], AnyEnv], observation_space: AnySpace) -> AnyEnv:
    """Make an env under another observation space."""
    return SpaceOverride(env_fn(), observation_space)


def observation_spaces(
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


def expect_alike(
    outer: str, mode: ObservationMode, single: AnySpace, envs: Sequence[AnyEnv]
) -> None:
    """Refuse envs that cannot be batched, in Gymnasium's words.

    Raises: RuntimeError.
    """
    some = "" if outer == "SyncVectorEnv" else "some of "
    for env in envs:
        space = env.observation_space
        if mode == "same" and space != single:
            raise RuntimeError(
                f"{outer}(..., observation_mode='same') however {some}the sub-environments "
                f"observation spaces are not equivalent. single_observation_space={single}, "
                f"sub-environment observation_space={space}. If this is intentional, use "
                "`observation_mode='different'` instead."
            )
        if mode != "same" and not is_space_dtype_shape_equiv(space, single):
            raise RuntimeError(
                f"{outer}(..., observation_mode='different' or custom space) however the "
                "sub-environments observation spaces do not share a common shape and dtype, "
                f"single_observation_space={single}, sub-environment observation space={space}"
            )
        if env.action_space != envs[0].action_space:
            raise RuntimeError(
                "Sub-environment action space doesn't make the `single_action_space`, "
                f"action_space={env.action_space}, single_action_space={envs[0].action_space}"
            )


def spaces_made_here(
    mode: ObservationMode, env_fns: Sequence[Callable[[], AnyEnv]]
) -> tuple[AnySpace, AnySpace | None]:
    """The spaces of envs that are made for it and closed, as Gymnasium does too."""
    envs = [env_fn() for env_fn in env_fns]
    try:
        single, batched = observation_spaces(mode, envs)
        expect_alike("AsyncVectorEnv", mode, single, envs)
    finally:
        for env in envs:
            env.close()
    return single, batched


def explain_refusal(
    outer: str, mode: ObservationMode, env_fns: Sequence[Callable[[], AnyEnv]]
) -> None:
    """Raise Gymnasium's error if the engine refused these envs for their spaces."""
    envs = [env_fn() for env_fn in env_fns]
    try:
        expect_alike(outer, mode, observation_spaces(mode, envs)[0], envs)
    finally:
        for env in envs:
            env.close()


def is_batchable(space: AnySpace) -> bool:
    """Whether Gymnasium can put observations of this space into shared memory."""
    if isinstance(space, spaces.Dict):
        return all(is_batchable(child) for child in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(is_batchable(child) for child in space.spaces)
    return isinstance(space, _BATCHABLE)


def as_max_concurrency(number: int | None) -> int | None:
    """The number, checked. Raises: ValueError."""
    if number is not None and not isinstance(number, int | np.integer):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(number)}.")
    if number is not None and number < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {number}.")
    return number


def refuse_worker(worker: Callable[..., None] | None) -> None:
    """Refuse a worker function of Gymnasium's pipe protocol. Raises: ValueError."""
    if worker is not None:
        raise ValueError(
            f"worker: expected None, got {worker} with the signature {inspect.signature(worker)}; "
            "it would serve one env through a pipe, and here a process has many: wrap the envs "
            "instead, or use gymnasium.vector.AsyncVectorEnv"
        )
