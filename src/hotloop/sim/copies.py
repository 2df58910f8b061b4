"""Copies of live state for a record: plain on the CPU; on a GPU beside the computing, in order.

On a GPU a copy runs on a stream of its own. Two waits keep it true: the copy waits for the work
that made the value, and whoever writes to that memory next waits for the copy.
"""

from typing import Any, Protocol

import torch
from torch import Tensor


class Lane(Protocol):
    """Where copies run."""

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """A copy on the host, and what tells when it is whole (None: it is)."""

    def computing_waits_for(self, mark: Any) -> None:
        """Let the computing stream go on only after the copy of `mark`."""

    def host_waits_for(self, mark: Any) -> None:
        """Return when the copy of `mark` is whole."""


class HostLane:
    """Copies at once: what was copied is whole, and there is nothing to wait for."""

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """A contiguous copy; also of a value that needs no other dtype."""
        return value.to(dtype, copy=True, memory_format=torch.contiguous_format), None

    def computing_waits_for(self, mark: Any) -> None:
        """Nothing to wait for."""

    def host_waits_for(self, mark: Any) -> None:
        """Nothing to wait for."""


class CudaLane:
    """Copies on a stream of its own into pinned memory of the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Cut to `dtype` on the card first, so that fewer bytes travel."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            small = value.to(dtype).contiguous()
            copied = torch.empty(small.shape, dtype=dtype, pin_memory=True)
            copied.copy_(small, non_blocking=True)
            mark = torch.cuda.Event()
            mark.record(self._stream)
        # The allocator must not hand the value's memory out again before the copy has read it.
        value.record_stream(self._stream)
        return copied, mark

    def computing_waits_for(self, mark: Any) -> None:
        """On the device; the host goes on."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def host_waits_for(self, mark: Any) -> None:
        """Blocks the host."""
        mark.synchronize()


def lane_for(device: torch.device) -> Lane:
    """The lane that fits a device."""
    return CudaLane(device) if device.type == "cuda" else HostLane()
