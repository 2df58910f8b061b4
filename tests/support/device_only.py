"""A stand-in for a card: the `meta` device, where tensors have a place, a shape and no numbers.

Whatever would make a card wait for the host, mix tensors of both, or break the capture of a graph,
fails there as well: reading a number, choosing by one, a boolean mask, a copy from the host.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hotloop.sim import Runner

META = torch.device("meta")


def moved(runner: Runner) -> Runner:
    """A runner made on the CPU, with all that it steps on `meta`; it has no program there."""
    state = runner.state
    runner.settings = state.settings = replace(runner.settings, device=META)
    for slot in state.slots.values():
        slot.home = slot.home.to(META)
        slot.now, slot.initial, slot.spare = slot.home, slot.initial.to(META), None
    state.seeds, state._step_home = state.seeds.to(META), state._step_home.to(META)
    state.renew_step_index()
    for view in runner._views:
        view.device, view.settings, view.seeds = META, state.settings, state.seeds
    for substep in runner.substeps:
        substep.learnable = {name: value.to(META) for name, value in substep.learnable.items()}
    runner.program = None
    return runner


class DeviceOnly(TorchDispatchMode):
    """Refuse operations that a graph cannot capture, and note the memory that is held at most.

    peak: bytes of tensors made within the block, at most at the same time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = (
            [leaf for leaf in tree_leaves(part) if isinstance(leaf, torch.Tensor)]
            for part in ((args, kwargs), result)
        )
        places = {tensor.device.type for tensor in (*given, *made)}
        assert "cpu" not in places, f"{func}: {[(t.device.type, tuple(t.shape)) for t in given]}"
        self._note(made)
        return result

    def _note(self, made: list[torch.Tensor]) -> None:
        for tensor in made:
            storage = tensor.untyped_storage()
            self._alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self._alive = {k: v for k, v in self._alive.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
