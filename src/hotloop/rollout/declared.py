"""What a vector env of anybody's declares about itself, where a collector depends on it."""

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.errors import TargetError

_SKIPS = ("frameskip", "frame_skip")


def autoreset_mode(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How the envs are reset.

    Raises: TargetError if they do not say: to guess wrong would store resets as transitions.
    """
    mode = envs.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise TargetError(
            f"{type(envs).__name__}: metadata['autoreset_mode']: expected a "
            f"gymnasium.vector.AutoresetMode, got {mode!r}; set it to what the vector env does"
        )
    return mode


def frame_skip_of(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> int:
    """Frames that the simulator plays in one step, as the envs' spec declares them; else 1.

    An env's own skip and that of a wrapper multiply. A skip drawn at random counts as undeclared.
    """
    spec, inner = envs.spec, envs.unwrapped
    if spec is None and isinstance(inner, SyncVectorEnv):
        spec = inner.envs[0].spec  # Gymnasium's own leaves it to its envs
    if spec is None:
        return 1
    settings = [spec.kwargs, *(wrapper.kwargs or {} for wrapper in spec.additional_wrappers)]
    frames = 1
    for kwargs in settings:
        for name in _SKIPS:
            skip = kwargs.get(name)
            if isinstance(skip, int):
                frames *= skip
    return frames
