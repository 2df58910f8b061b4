"""Learning rate schedulers: a part of the state, and no stage."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, lr_scheduler: ModuleType) -> None:
    """Note all that step; lr_scheduler: `torch.optim.lr_scheduler`."""

    def make(step: Callable[..., None]) -> Callable[..., None]:
        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            recognition.note("scheduler", self)
            step(self, *args, **kwargs)

        return noted

    recognition.patches.family(lr_scheduler.LRScheduler, "step", make)
