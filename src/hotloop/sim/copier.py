"""Copies of live state for a record: plain on the CPU, asynchronous on a GPU.

On a GPU a copy runs on a stream of its own. Two waits keep it correct: the copy waits for the work
that made the value, and the next write to that memory waits for the copy.
"""

from typing import Any, Protocol

import torch
from torch import Tensor


class Copier(Protocol):
    """Copies values to the host; a mark stands for the end of a copy."""

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Start a copy on the host; returns it and its mark, None where it is complete."""

    def computing_waits_for(self, mark: Any) -> None:
        """Let the computing stream wait for the copy of `mark`."""

    def host_waits_for(self, mark: Any) -> None:
        """Wait until the copy of `mark` is complete."""


class HostCopier:
    """Copies at once: every copy is complete, and nothing waits."""

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Make a contiguous copy; also of a value that needs no other dtype."""
        return value.to(dtype, copy=True, memory_format=torch.contiguous_format), None

    def computing_waits_for(self, mark: Any) -> None:
        """Do nothing."""

    def host_waits_for(self, mark: Any) -> None:
        """Do nothing."""


class CudaCopier:
    """Copies on a stream of its own into pinned memory of the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Convert to `dtype` on the card first, so that fewer bytes are transferred."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            small = value.to(dtype).contiguous()
            copied = torch.empty(small.shape, dtype=dtype, pin_memory=True)
            copied.copy_(small, non_blocking=True)
            mark = torch.cuda.Event()
            mark.record(self._stream)
        # The allocator must not reuse the value's memory before the copy has read it.
        value.record_stream(self._stream)
        return copied, mark

    def computing_waits_for(self, mark: Any) -> None:
        """Let the stream wait on the device, asynchronously with the host."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def host_waits_for(self, mark: Any) -> None:
        """Block the host."""
        mark.synchronize()


def copier_for(device: torch.device) -> Copier:
    """Make the copier for a device."""
    return CudaCopier(device) if device.type == "cuda" else HostCopier()
