"""The backend "native": the vector env that an env's author brings, by the env's id."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from hotloop.envs.ids import MakeById, env_spec
from hotloop.envs.serial.composed import ComposedVectorEnv
from hotloop.envs.vector import VectorEnv
from hotloop.errors import TargetError


def make_native(
    fns: Sequence[Callable[[], Any]],
    *,
    autoreset_mode: str | AutoresetMode | None = None,
    batch_size: int | None = None,
    splits: int = 1,
    copy: bool = True,
) -> VectorEnv:
    """The env's own `vector_entry_point`, with the contract of all vector envs here.

    autoreset_mode: None for the one that it has.
    Raises: TargetError for functions, whose env is not known by an id, for an env that has no
    vector env of its own, and for another autoreset mode; what making it raises.
    """
    maker = fns[0]
    if not isinstance(maker, MakeById):
        raise TargetError(
            "backend 'native': expected the id of an env, whose own vector env is made, got "
            f"{type(maker).__qualname__}; give the id, or use backend='serial' with a function "
            "that makes the vector env"
        )
    if env_spec(maker.env_id).vector_entry_point is None:
        raise TargetError("the env has no vector env of its own (vector_entry_point)")
    make = partial(
        gymnasium.make_vec,
        maker.env_id,
        len(fns),
        vectorization_mode="vector_entry_point",
        **maker.env_kwargs,
    )
    return ComposedVectorEnv(
        [make], autoreset_mode=autoreset_mode, batch_size=batch_size, splits=splits, copy=copy
    )
