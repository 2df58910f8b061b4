"""A card made of CPU memory: tensors that say they are on "cuda:0" and refuse what a card's would.

Mixing them with tensors of the host, or asking them for NumPy, raises as on a card; the arithmetic
is the CPU's. Streams and events note nothing: what runs, runs at once. With it, code that asks for
`device="cuda"` runs as it is.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

CARD = torch.device("cuda", 0)
HOST = torch.device("cpu")
# Between host and card: the result stays where the first is.
_CROSSES = {Tensor.copy_}
# Ask for no tensor's numbers.
_FREE = {Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.dim, Tensor.size, Tensor.numel}


class OnCard(Tensor):
    """A tensor that passes for one of the card."""


class FakeCard(TorchFunctionMode):
    """Lets tensors be on a card, and holds them to it."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func == Tensor.device.__get__:
            return CARD if isinstance(args[0], OnCard) else HOST
        if func == Tensor.is_cuda.__get__:
            return isinstance(args[0], OnCard)
        if func is Tensor.numpy and isinstance(args[0], OnCard):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if func in (Tensor.cpu, Tensor.cuda):
            return _placed(args[0], CARD if func is Tensor.cuda else HOST)
        if func is Tensor.to:
            return _to(args, given)
        if "device" in given or "pin_memory" in given:
            place = torch.device(given.pop("device", None) or HOST)
            given.pop("pin_memory", None)
            wants = given.pop("requires_grad", False)
            with torch._C.DisableTorchFunction():
                made = func(*args, **given)
                made = made.as_subclass(OnCard) if place.type == "cuda" else made
                return made.requires_grad_(wants)
        return _on_one_device(func, args, given)


def _on_one_device(func: Callable[..., Any], args: Any, given: Any) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
    on_card = [tensor for tensor in tensors if isinstance(tensor, OnCard)]
    with torch._C.DisableTorchFunction():
        on_host = [t for t in tensors if not isinstance(t, OnCard) and t.dim()]
        if on_card and on_host and func not in _CROSSES:
            raise RuntimeError(
                f"{func}: Expected all tensors to be on the same device, but found at least two "
                "devices, cuda:0 and cpu!"
            )
        result = func(*args, **given)
        is_card = isinstance(args[0], OnCard) if func in _CROSSES else bool(on_card)
        if not is_card or func in _FREE:
            return result
        return tree_map_only(
            Tensor, lambda t: t if isinstance(t, OnCard) else t.as_subclass(OnCard), result
        )


def _to(args: tuple[Any, ...], given: dict[str, Any]) -> Tensor:
    value, rest, place = args[0], [], None
    for other in args[1:]:
        if isinstance(other, Tensor):
            place = CARD if isinstance(other, OnCard) else HOST
            rest.append(other.dtype)
        elif isinstance(other, str | torch.device):
            place = torch.device(other)
        else:
            rest.append(other)
    if (device := given.pop("device", None)) is not None:
        place = torch.device(device)
    if place is None:
        place = CARD if isinstance(value, OnCard) else HOST
    with torch._C.DisableTorchFunction():
        moved = value.to(*rest, **given) if rest or given else value
    return _placed(moved, place)


def _placed(value: Tensor, place: torch.device) -> Tensor:
    with torch._C.DisableTorchFunction():
        if isinstance(value, OnCard) == (place.type == "cuda"):
            return value
        return value.clone().as_subclass(OnCard if place.type == "cuda" else Tensor)


class _Stream:
    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, _other: Any) -> None:
        pass

    def wait_event(self, _mark: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Event:
    """An event that passes at once; its time is the host's."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.ns = 0
        del enable_timing

    def record(self, _stream: Any = None) -> None:
        self.ns = time.perf_counter_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "_Event") -> float:
        return (end.ns - self.ns) / 1e6


class Again:
    """Stands for a captured graph: repeats a step by running it again."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body

    def replay(self) -> None:
        """Once more."""
        self._body()


@contextmanager
def fake_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine have a card within the block."""
    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: SimpleNamespace(total_memory=2**33),
        "get_device_name": lambda *_: "A card of cardboard",
        "mem_get_info": lambda *_: (2**33, 2**33),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 2**20,
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
        "Stream": _Stream,
        "Event": _Event,
        "current_stream": lambda *_: _Stream(),
        "stream": lambda _stream: nullcontext(),
    }

    def capture(_device: Any, body: Callable[[], None], warm_up: Callable[[], None]) -> Again:
        warm_up()
        body()
        return Again(body)

    with monkeypatch.context() as patch:
        for name, stand_in in cuda.items():
            patch.setattr(torch.cuda, name, stand_in)
        patch.setattr("hotloop.sim.graph.cuda_capture", capture)
        patch.setattr(Tensor, "record_stream", lambda *_: None)
        with FakeCard():
            yield
