"""`DistributedDataParallel`: its gradients are summed over all ranks within the backward pass."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import DATA_PARALLEL, FORWARD, SUMMED_PASSES
from hotloop.recognise.places.torch_distributed import only_delayed
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, library: ModuleType) -> None:
    """Note the modules that are made; library: `torch.nn.parallel.distributed`."""
    made = recognition.kept.setdefault(DATA_PARALLEL, [])

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            made.append(self)
            recognition.note_within(FORWARD, self, self.module)
            if self.will_sync_module_buffers():
                only_delayed(recognition)
            if all(each.device.type == "cpu" for each in self.module.parameters()):
                # Its own times of every pass: on a GPU they would make the processor wait for it.
                self._set_ddp_runtime_logging_sample_rate(1)

        return noted

    def counting(forward: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_grad_enabled() and self.require_backward_grad_sync:  # not within `no_sync`
                recognition.kept[SUMMED_PASSES] = recognition.kept.get(SUMMED_PASSES, 0) + 1
            return forward(self, *args, **kwargs)

        return counted

    is_grad_enabled = library.torch.is_grad_enabled
    recognition.patches.function(library.DistributedDataParallel, "__init__", make)
    recognition.patches.function(library.DistributedDataParallel, "forward", counting)
