"""A card made of CPU memory, for scripts that use `device="cuda"` on a machine without one.

Its tensors are the host's, and say that they are on "cuda:0". Below autograd every operation that
makes, moves or reads them is called with this device, as on a machine with a card, so that what
watches operations there sees the same (the fake card of the tests stands above autograd, and
refuses what a card would refuse). Time passes as on the CPU.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

CARD, HOST = torch.device("cuda", 0), torch.device("cpu")
_to_copy = torch.ops.aten._to_copy.default


class CardTensor(Tensor):
    """A tensor that says it is on the card; `held` is its memory."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "CardTensor":
        made = Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), dtype=held.dtype
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CARD

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation in the host's memory; the result is where a card's would be."""
    place = kwargs.pop("device", None)
    on_card = any(isinstance(each, CardTensor) for each in tree_leaves((args, kwargs)))
    if place is not None:
        on_card = torch.device(place).type == "cuda"
        kwargs["device"] = HOST
    inner = tree_map_only(CardTensor, lambda each: each.held, (args, kwargs))
    result = func(*inner[0], **inner[1])
    if func._schema.is_mutable:
        return args[0]
    if not on_card:
        return result
    return tree_map_only(
        Tensor, lambda t: t if isinstance(t, CardTensor) else CardTensor(t), result
    )


class _Below(TorchDispatchMode):
    """Runs what makes tensors on the card from nothing, or from the host's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, dict(kwargs or {}))


class _Above(TorchFunctionMode):
    """Turns Python's ways to name a device into operations, which torch would refuse to begin."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.cuda:
            return _moved(args[0], CARD)
        if func is Tensor.cpu:
            return _moved(args[0], HOST)
        if func is Tensor.to:
            return _to(args[0], args[1:], kwargs)
        if func is Tensor.numpy and isinstance(args[0], CardTensor):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        place = kwargs.get("device")
        if place is not None and torch.device(place).type == "cuda":
            wants = kwargs.pop("requires_grad", False)
            kwargs["device"] = HOST
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                made = func(*args, **kwargs)
            return CardTensor(made).requires_grad_(wants)
        return func(*args, **kwargs)


def _to(value: Tensor, rest: Any, kwargs: dict[str, Any]) -> Tensor:
    """`Tensor.to`, with a device, a type of numbers and a flag in any of its places."""
    place, dtype = kwargs.get("device"), kwargs.get("dtype")
    non_blocking = bool(kwargs.get("non_blocking", False))
    for each in rest:
        if isinstance(each, str | torch.device):
            place = each
        elif isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, bool):
            non_blocking |= each
    if dtype is not None and dtype != value.dtype:
        value = _to_copy(value, dtype=dtype)
    return value if place is None else _moved(value, torch.device(place), non_blocking)


def _moved(value: Tensor, place: torch.device, non_blocking: bool = False) -> Tensor:
    if value.device.type == place.type:
        return value
    moved: Tensor = _to_copy(value, device=place, non_blocking=non_blocking)
    return moved


@contextmanager
def card() -> Iterator[torch.device]:
    """Let this machine have a card within the block, called "cuda"."""
    available = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    # Else a module would put the card's numbers into the parameters that it has on the host.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with _Below(), _Above():
            yield torch.device("cuda")
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        torch.cuda.is_available = available
