"""Copies between host and card, and waits for a card: `Tensor.to` and its kin, `synchronize`.

Nothing is installed where torch sees no accelerator: there is one memory, and nothing to wait for.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import SYNC, TRANSFER
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, cuda: ModuleType) -> None:
    """Make copies and waits stages; cuda: `torch.cuda`."""
    if not has_accelerator(cuda):
        return
    copies = recognition.stage(TRANSFER, effect="pure")
    waits = recognition.stage(SYNC, effect="effectful")
    recognition.patches.function(cuda, "synchronize", recognition.function(waits))
    crossing = {
        "to": (copies, _is_copied_across),
        "cpu": (copies, _is_elsewhere),
        "cuda": (copies, _is_here),
        # Of a tensor on a card: the host waits until its numbers are there.
        **dict.fromkeys(("item", "tolist", "numpy"), (waits, _is_elsewhere)),
    }
    tensor = sys.modules["torch._tensor"].Tensor
    for name, (stage, crosses) in crossing.items():
        make = recognition.method(stage, key=_kind_of_copy)
        recognition.patches.function(tensor, name, _only_where(crosses, make))


def has_accelerator(cuda: ModuleType) -> bool:
    """Whether torch sees a card."""
    return bool(cuda.is_available())


def _only_where(
    crosses: Callable[[Any, tuple[Any, ...], dict[str, Any]], bool],
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method the stage's for the calls that cross devices, and leave the others alone."""

    def made(method: Callable[..., Any]) -> Callable[..., Any]:
        staged = make(method)

        def across(self: Any, *args: Any, **kwargs: Any) -> Any:
            if crosses(self, args, kwargs):
                return staged(self, *args, **kwargs)
            return method(self, *args, **kwargs)

        return across

    return made


def _is_elsewhere(tensor: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return not (tensor.is_cpu or tensor.requires_grad)


def _is_here(tensor: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return bool(tensor.is_cpu) and not tensor.requires_grad


def _is_copied_across(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a copy goes to another device; one that gradients flow through is a forward pass's.

    The device is the first argument, one given by name, or that of a tensor that is given.
    """
    if tensor.requires_grad:
        return False
    torch = sys.modules["torch"]
    wanted = kwargs.get("device", args[0] if args else None)
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.device
    if isinstance(wanted, str | int):
        wanted = torch.device(wanted)
    # A type of numbers alone stays where it is.
    return isinstance(wanted, torch.device) and wanted.type != tensor.device.type


def _kind_of_copy(tensor: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    return tuple(tensor.shape), tensor.dtype, str(args[:1])
