"""Gradient scalers: their work is a part of the optimiser's step."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import OPTIMISER_STEP, UPDATE
from hotloop.recognise.recognition import Recognition

# Together or not at all: each expects that the one before it was called.
_METHODS = ("unscale_", "step", "update")


def install(recognition: Recognition, grad_scaler: ModuleType) -> None:
    """Make the steps through scalers a stage; grad_scaler: `torch.amp.grad_scaler`."""
    step = recognition.stage(OPTIMISER_STEP, effect="stateful", part_of=UPDATE)
    staged_by = recognition.function(step)

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        staged = staged_by(function)

        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            recognition.note("scaler", self)
            if args and not recognition.inside.now:
                recognition.note_step(args[0])
            return staged(self, *args, **kwargs)

        return noted

    for name in _METHODS:
        recognition.patches.function(grad_scaler.GradScaler, name, make)
