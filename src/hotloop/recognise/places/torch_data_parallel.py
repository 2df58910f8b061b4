"""`DistributedDataParallel`: its gradients are summed over all ranks within the backward pass.

The exchange runs in compiled code beside the pass. What is left of it when the pass has nothing
more to compute is a call of the stage `communication`, on processors: a GPU is not waited for.
"""

from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any
from weakref import WeakSet

from hotloop.recognise.place_stage import PlaceStage
from hotloop.recognise.places import (
    COMMUNICATION,
    DATA_PARALLEL,
    EXCHANGE,
    FORWARD,
    SUMMED_PASSES,
)
from hotloop.recognise.places.torch_distributed import only_delayed
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, library: ModuleType) -> None:
    """Note the modules that are made; library: `torch.nn.parallel.distributed`."""
    made = recognition.kept.setdefault(DATA_PARALLEL, [])
    communication = recognition.stage(COMMUNICATION, effect="effectful", kind="network")
    exchange = recognition.kept[EXCHANGE] = Exchange(communication)
    on_processors: WeakSet[Any] = WeakSet()

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            made.append(self)
            recognition.note_within(FORWARD, self, self.module)
            if self.will_sync_module_buffers():
                only_delayed(recognition)
            if all(each.device.type == "cpu" for each in self.module.parameters()):
                # Its own times of every pass: on a GPU they would make the processor wait for it.
                on_processors.add(self)
                self._set_ddp_runtime_logging_sample_rate(1)

        return noted

    def counting(forward: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            sums = is_grad_enabled() and self.require_backward_grad_sync  # not within `no_sync`
            if sums:
                recognition.kept[SUMMED_PASSES] = recognition.kept.get(SUMMED_PASSES, 0) + 1
            output = forward(self, *args, **kwargs)
            # A compiler would have to take the hooks into its graph.
            followed = sums and recognition.modes[communication.index]
            if followed and self in on_processors and not torch.compiler.is_compiling():
                exchange.follow(output)
            return output

        return counted

    is_grad_enabled, torch = library.torch.is_grad_enabled, library.torch
    recognition.patches.function(library.DistributedDataParallel, "__init__", make)
    recognition.patches.function(library.DistributedDataParallel, "forward", counting)


class Exchange:
    """The exchange of gradients that a backward pass has begun.

    What the engine is asked to call at the end of a pass is called in the order of asking, and DDP
    asks last: to wait for the sums. So what was asked for before is called where the wait begins.
    """

    def __init__(self, communication: PlaceStage) -> None:
        self._communication = communication
        self._asked = False
        self._start_ns: int | None = None

    def follow(self, output: Any) -> None:
        """Note the wait in the backward pass that leads through an output of DDP's."""
        from torch.utils._pytree import tree_leaves

        # A pass that was not measured has not said where it ended.
        self._start_ns, self._asked = None, False
        for each in tree_leaves(output):
            if getattr(each, "grad_fn", None) is not None:
                each.register_hook(self._ask)

    def end(self) -> None:
        """Note that a backward pass has ended, with all that it waited for."""
        start_ns, self._start_ns, self._asked = self._start_ns, None, False
        if start_ns is not None:
            self._communication.note(start_ns)

    def _ask(self, _gradient: Any) -> None:
        if self._asked or get_ident() != self._communication.control.main_thread:
            return
        from torch.autograd import Variable

        self._asked = True
        Variable._execution_engine.queue_callback(self._begin)

    def _begin(self) -> None:
        self._start_ns = self._communication.control.clock.now_ns()
