"""The backward pass: `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad`."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import PlaceStage, Replay
from hotloop.recognise.places import BACKWARD, FORWARD_AND_BACKWARD, OPTIMISER_STEP, UPDATE
from hotloop.recognise.places.torch_modules import WITH_GRADIENT, is_transformed, kind_of_call
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make backward passes a stage; library: `torch.autograd`, or the module of tensors."""
    owner = library.Tensor if library.__name__ == "torch._tensor" else library
    both = recognition.stage(FORWARD_AND_BACKWARD, effect="stateful", part_of=UPDATE)
    backward = recognition.stage(BACKWARD, effect="stateful", within=both)
    gradients = recognition.kept.setdefault(BACKWARD, _Gradients(recognition))
    replay = Replay(frozen=gradients.keep, thawed=gradients.leave)
    of_tensor = recognition.function(backward, replay=replay)
    recognition.patches.function(owner, "backward", of_tensor)
    if owner is library:
        recognition.patches.function(owner, "grad", _returning_gradients(recognition, backward))


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
                key = ("grad", *kind_of_call(None, args, kwargs)[1:])
                return backward.call(function, args, kwargs, key, WITH_GRADIENT)
            finally:
                inside.now = False

        return staged

    return make


class _Gradients:
    """The last gradients of what the optimisers update: what a skipped backward pass leaves."""

    def __init__(self, recognition: Recognition) -> None:
        self._recognition = recognition
        self._last: dict[Any, Any] = {}

    def keep(self, _output: Any, _args: tuple[Any, ...]) -> None:
        """Keep the gradients of now; of a pass that is recorded."""
        for optimiser in self._recognition.objects.get(OPTIMISER_STEP, ()):
            for group in optimiser.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._last[parameter] = parameter.grad

    def leave(self, recorded: Any, _args: tuple[Any, ...]) -> Any:
        """Put gradients that were set to None back, so that the optimiser has its work."""
        for parameter, gradient in self._last.items():
            if parameter.grad is None:
                parameter.grad = gradient
        return recorded
