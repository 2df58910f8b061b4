"""Envs of other libraries than Gymnasium, and vector envs: their steps and resets."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hotloop.recognise.places.gymnasium_envs import stage_envs
from hotloop.recognise.recognition import Recognition


@dataclass(frozen=True)
class _Envs:
    """Classes of envs. number: env steps of a call, of the envs and its output.

    steps: the methods that step. key: the kind of a call; None: the envs' identity. why_not: why a
    step cannot be replaced.
    """

    classes: tuple[str, ...]
    number: Callable[[Any, Any], float]
    steps: tuple[str, ...] = ("step",)
    key: Callable[[Any, tuple[Any, ...], dict[str, Any]], Hashable] | None = None
    why_not: str | None = None


def _all_of_them(envs: Any, _output: Any) -> float:
    return float(envs.num_envs)


def _rewarded(_envs: Any, output: Any) -> float:
    """Some envs may be stepped while others are awaited: the rewards say how many were."""
    return float(len(output[1]))


_LIBRARIES: Mapping[str, tuple[_Envs, ...]] = {
    "gymnasium.vector.vector_env": (_Envs(("VectorEnv",), _all_of_them),),
    "stable_baselines3.common.vec_env.base_vec_env": (_Envs(("VecEnv",), _all_of_them),),
    "tianshou.env.venvs": (
        _Envs(
            ("BaseVectorEnv",),
            _rewarded,
            key=lambda envs, args, _kwargs: (id(envs), len(args[0]) if args else 0),
        ),
    ),
    # bsuite's and dm_control's too.
    "dm_env._environment": (_Envs(("Environment",), lambda _env, _output: 1.0),),
    # `recv` is called where actions are sent on their own.
    "envpool.python.envpool": (_Envs(("EnvPoolMixin",), _rewarded, ("step", "recv")),),
    "pettingzoo.utils.env": (
        _Envs(("ParallelEnv",), lambda _env, _output: 1.0),
        _Envs(
            ("AECEnv",),
            lambda _env, _output: 1.0,
            why_not="agents take turns by what the env itself says between its steps",
        ),
    ),
}
"""By the module that defines them."""


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make the steps of a library's envs a stage."""
    for envs in _LIBRARIES[library.__name__]:
        for name in envs.classes:
            stage_envs(
                recognition,
                getattr(library, name),
                envs.number,
                steps=envs.steps,
                key=envs.key,
                why_not=envs.why_not,
            )
