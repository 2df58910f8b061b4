"""`Optimizer.step` of every optimiser."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.counted_call import counted_first
from hotloop.recognise.place_stage import Replay
from hotloop.recognise.places import OPTIMISER_STEP, UPDATE
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, optimizer: ModuleType) -> None:
    """Make the steps of optimisers a stage; optimizer: `torch.optim.optimizer`."""
    step = recognition.stage(OPTIMISER_STEP, effect="stateful", part_of=UPDATE)
    without_closure = recognition.method(step)
    # What a step with a closure returns is the loss that the closure has computed.
    loss_of_closure = Replay(
        frozen=lambda _loss, _args: None, thawed=lambda _recorded, args: args[1]()
    )
    with_closure = recognition.method(
        step, key=lambda self, _args, _kwargs: (id(self), "closure"), replay=loss_of_closure
    )

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        plain, after_closure = without_closure(function), with_closure(function)

        def measured(self: Any, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
            recognition.note_step(self)
            if closure is None:
                return plain(self, *args, **kwargs)
            # A closure does the forward and the backward pass: they are stages of their own. It is
            # called first, so that the step is what follows; an optimiser that calls it again
            # (LBFGS) has that in its step.
            first = [closure()]

            def known() -> Any:
                return first.pop() if first else closure()

            return after_closure(self, known, *args, **kwargs)

        return counted_first(function, measured, recognition, step, recognition.inside)

    recognition.patches.family(optimizer.Optimizer, "step", make)
    note_new_ones(recognition, optimizer.Optimizer)


def note_new_ones(recognition: Recognition, kind: type) -> None:
    """See an optimiser of this class before its first step.

    What is made will be used, and the loop is more than what it does until then.
    """

    def make_init(init: Callable[..., None]) -> Callable[..., None]:
        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            recognition.note(OPTIMISER_STEP, self)

        return noted

    recognition.patches.function(kind, "__init__", make_init)
