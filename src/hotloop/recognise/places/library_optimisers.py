"""Optimisers that libraries write themselves, beside those of `torch.optim`.

Keras' own are recognised where it computes with torch; with JAX their step is a part of a compiled
function.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from hotloop.recognise.places import OPTIMISER_STEP, UPDATE
from hotloop.recognise.places.torch_optimisers import note_new_ones
from hotloop.recognise.recognition import Recognition

_STEPS: Mapping[str, tuple[str, str]] = {
    "keras.src.backend.torch.optimizers.torch_optimizer": ("BaseOptimizer", "apply"),
    "fastai.optimizer": ("Optimizer", "step"),
}
"""By module, the class of all optimisers of a library, and its method that steps."""


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make the steps of a library's optimisers a stage; library: the module of their class."""
    name, method = _STEPS[library.__name__]
    step = recognition.stage(OPTIMISER_STEP, effect="stateful", part_of=UPDATE)
    inside, index = recognition.inside, step.index
    as_stage = recognition.method(step)

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        stepped = as_stage(function)

        def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not recognition.modes[index] or inside.now:
                return function(self, *args, **kwargs)
            recognition.note_step(self)
            return stepped(self, *args, **kwargs)

        return staged

    optimiser = getattr(library, name)
    recognition.patches.family(optimiser, method, make)
    note_new_ones(recognition, optimiser)
