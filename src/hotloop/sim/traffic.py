"""Counters of the memory that a state takes and of what crosses to another device."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Traffic:
    """Allocations and reuses of the state's tensors, and transfers to another device."""

    allocations: int = 0
    allocated_bytes: int = 0
    reuses: int = 0
    transfers: int = 0
    transfer_bytes: int = 0

    def allocated(self, tensor: Tensor) -> Tensor:
        """Count `tensor` as newly allocated, and return it."""
        self.allocations += 1
        self.allocated_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Return `tensor` on `device`, and count a transfer where it was elsewhere."""
        if tensor.device == device:
            return tensor
        self.transfers += 1
        self.transfer_bytes += tensor.numel() * tensor.element_size()
        return tensor.to(device)
