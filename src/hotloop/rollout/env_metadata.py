"""What a collector must know of a vector env, read from its metadata, its spec and its class."""

from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from hotloop.envs.vector import VectorEnv
from hotloop.errors import TargetError

AnyVectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
_FRAME_SKIP_ARGUMENTS = ("frameskip", "frame_skip")


def autoreset_mode(envs: AnyVectorEnv) -> AutoresetMode:
    """Return how the envs are reset.

    Raises: TargetError if the metadata do not say: a wrong guess would store resets as transitions.
    """
    mode = envs.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise TargetError(
            f"{type(envs).__name__}: metadata['autoreset_mode']: expected a "
            f"gymnasium.vector.AutoresetMode, got {mode!r}; set it to what the vector env does"
        )
    return mode


def in_process(envs: AnyVectorEnv) -> bool:
    """Return whether the envs live in this process, so that their state can be saved here."""
    inner = envs.unwrapped
    if isinstance(inner, VectorEnv):
        return inner.in_process
    return not isinstance(inner, AsyncVectorEnv)


def frame_skip_of(envs: AnyVectorEnv) -> int:
    """Return the frames that the simulator plays in one step, by the spec of the envs; else 1.

    The skip of an env and that of a wrapper multiply. A skip drawn at random counts as none.
    """
    spec, inner = envs.spec, envs.unwrapped
    if spec is None and isinstance(inner, SyncVectorEnv):
        spec = inner.envs[0].spec  # SyncVectorEnv has no spec of its own
    if spec is None:
        return 1
    arguments = [spec.kwargs, *(wrapper.kwargs or {} for wrapper in spec.additional_wrappers)]
    frames = 1
    for kwargs in arguments:
        for name in _FRAME_SKIP_ARGUMENTS:
            skip = kwargs.get(name)
            if isinstance(skip, int):
                frames *= skip
    return frames
