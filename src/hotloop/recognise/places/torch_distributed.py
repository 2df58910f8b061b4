"""Collectives of `torch.distributed`: what they return depends on the other ranks."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import ACT, COMMUNICATION, FORWARD_AND_BACKWARD
from hotloop.recognise.recognition import Recognition

_FUNCTIONS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)


def install(recognition: Recognition, c10d: ModuleType) -> None:
    """Make collectives a stage that is delayed only; c10d: the module that defines them."""
    communication = recognition.stage(COMMUNICATION, effect="effectful", kind="network")
    inside, index = recognition.inside, communication.index
    staged_by = recognition.function(communication)

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        staged = staged_by(function)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if inside.now and recognition.modes[index]:
                only_delayed(recognition)
            return staged(*args, **kwargs)

        return noted

    for name in _FUNCTIONS:
        if hasattr(c10d, name):
            recognition.patches.exported(c10d, name, "torch.distributed", make)
    # What an asynchronous collective returns: waiting for it is what takes the time.
    recognition.patches.function(c10d.Work, "wait", staged_by)


def only_delayed(recognition: Recognition) -> None:
    """Let no call of a module be replaced, as it holds collectives.

    A call of a kind that was not recorded runs for real: on the ranks where it was recorded the
    collectives would be missing, and this one would wait for them for ever.
    """
    for name in (ACT, FORWARD_AND_BACKWARD):
        stage = recognition.stages.get(name)
        if stage is not None and stage.cannot_replace is None:
            stage.cannot_replace = "its forward pass exchanges data with other ranks: delayed only"
