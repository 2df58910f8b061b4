"""The backward pass: `torch.autograd.backward`, which `Tensor.backward` calls, and `grad`."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import PlaceStage, Replay
from hotloop.recognise.places import (
    BACKWARD,
    EXCHANGE,
    FORWARD_AND_BACKWARD,
    UPDATE,
    left_gradients,
)
from hotloop.recognise.places.torch_modules import WITH_GRADIENT, is_transformed, kind_of_call
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make backward passes a stage; library: `torch.autograd`."""
    both = recognition.stage(FORWARD_AND_BACKWARD, effect="stateful", part_of=UPDATE)
    backward = recognition.stage(BACKWARD, effect="stateful", within=both)
    gradients = left_gradients.of_recognition(recognition)
    staged = recognition.function(
        backward,
        replay=Replay(frozen=gradients.keep, thawed=gradients.leave),
        measured_as=functools.partial(_with_exchange, recognition),
    )
    recognition.patches.function(library, "backward", staged)
    recognition.patches.function(library, "grad", _returning_gradients(recognition, backward))


def _with_exchange(recognition: Recognition, backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backward pass that says where it ends to what follows its exchange with others."""
    kept = recognition.kept

    def passed(*args: Any, **kwargs: Any) -> Any:
        output = backward(*args, **kwargs)
        exchange = kept.get(EXCHANGE)
        if exchange is not None:
            exchange.end()
        return output

    return passed


def _returning_gradients(
    recognition: Recognition, backward: PlaceStage
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes `torch.autograd.grad` a call of the stage.

    What a replayed module returns has gradients that lead nowhere: the function would refuse it.
    Recorded gradients stand for what it returns, by the shapes of what they are taken of.
    """
    inside = recognition.inside

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def staged(*args: Any, **kwargs: Any) -> Any:
            if not recognition.modes[backward.index] or inside.now or is_transformed():
                return function(*args, **kwargs)
            inside.now = True
            try:
                kind = functools.partial(kind_of_call, function, args, kwargs)
                return backward.call(function, args, kwargs, kind, WITH_GRADIENT)
            finally:
                inside.now = False

        return staged

    return make
