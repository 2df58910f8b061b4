"""`gymnasium.Env.step` and `reset`: the outermost env's, wrappers included."""

from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any

from hotloop.recognise.places import ENV_RESET, ENV_STEP
from hotloop.recognise.recognition import ENV_STEPS, Recognition


def stage_envs(
    recognition: Recognition,
    base: Any,
    number: Callable[[Any, Any], float],
    *,
    steps: Sequence[str] = ("step",),
    key: Callable[[Any, tuple[Any, ...], dict[str, Any]], Hashable] | None = None,
    why_not: str | None = None,
) -> None:
    """Make the steps and resets of a class of envs, and of its subclasses, stages.

    number: env steps of a call, of the env and its output. steps: the methods that step. why_not:
    why a step of these envs cannot be replaced, once one has been made. An env
    that goes on stepping needs its resets, so that they are delayed only: where steps are
    replayed, resets follow what those return.
    """
    step = recognition.stage(ENV_STEP, effect="stateful")
    reset = recognition.stage(ENV_RESET, effect="stateful")
    reset.cannot_replace = "the env cannot go on without it"

    def counted(env: Any, output: Any) -> float:
        step.cannot_replace = why_not
        return number(env, output)

    units = (ENV_STEPS, number if why_not is None else counted)
    make = recognition.method(step, key=key, units=units)
    for name in steps:
        recognition.patches.family(base, name, make)
    recognition.patches.family(base, "reset", recognition.method(reset))


def install(recognition: Recognition, core: ModuleType) -> None:
    """Make the steps of all envs a stage; core: `gymnasium.core`."""
    stage_envs(recognition, core.Env, lambda _env, _output: 1.0)
