"""A population as columns: checked once, and kept in small dtypes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import ConfigError

# Unless a dtype is asked for, 64-bit numbers are cut: half the memory that every step moves.
_NARROWER = {torch.int64: torch.int32, torch.float64: torch.float32}


@dataclass(frozen=True, eq=False)
class Population:
    """All agents of one kind.

    columns: tensors (N, ...), or (R, N, ...) where replicates differ, or () where all are equal.

    Raises: ConfigError for a population without agents or a column of another length.
    """

    name: str
    size: int
    columns: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"population {self.name!r}: expected at least one agent, got 0")
        for name, column in self.columns.items():
            if column.ndim and self.size not in column.shape[:2]:
                raise ConfigError(
                    f"{self.name}/{name}: expected a value for each of {self.size} agents, "
                    f"got an array of shape {tuple(column.shape)}"
                )

    def own_shape(self, name: str, replicates: int | None) -> tuple[int, ...]:
        """Return the shape of a column in one replicate: (N,), or (N, ...) for several values."""
        shape = self.columns[name].shape
        if not shape:
            return (self.size,)
        leads = replicates is not None and shape[0] == replicates and self.size in shape[1:2]
        return tuple(shape[1:] if leads else shape)


def checked_values(
    where: str,
    values: Any,
    *,
    dtype: torch.dtype | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Tensor:
    """Convert `values` to a tensor on the device where they are, and check them.

    dtype: None keeps the values' own, 64 bits cut to 32.

    Raises: ConfigError, naming `where`, for values that are no numbers, NaN, out of range, or do
    not fit the dtype.
    """
    tensor = _as_tensor(where, values)
    if tensor.is_floating_point() and bool(tensor.isnan().any()):
        raise ConfigError(f"{where}: NaN{_at(tensor.isnan())}; every value must be a number")
    outside = torch.zeros_like(tensor, dtype=torch.bool)
    if low is not None:
        outside |= tensor < low
    if high is not None:
        outside |= tensor > high
    if bool(outside.any()):
        limits = f"{low} to {high}" if None not in (low, high) else f"at least {low}"
        limits = f"at most {high}" if low is None else limits
        found = tensor[outside].flatten()[0].item()
        raise ConfigError(f"{where}: expected {limits}, got {found}{_at(outside)}")
    wanted = dtype or _NARROWER.get(tensor.dtype, tensor.dtype)
    if wanted == tensor.dtype:
        return tensor
    if not torch.can_cast(tensor.dtype, wanted):
        raise ConfigError(f"{where}: values of {tensor.dtype} cannot be kept as {wanted}")
    if not wanted.is_floating_point and wanted != torch.bool and tensor.numel():
        held = torch.iinfo(wanted)
        least, most = tensor.min().item(), tensor.max().item()
        if least < held.min or most > held.max:
            raise ConfigError(
                f"{where}: values from {least} to {most} do not fit {wanted}, "
                f"which holds {held.min} to {held.max}; give it a wider dtype"
            )
    return tensor.to(wanted)


def _as_tensor(where: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    if isinstance(values, bool | int | float):
        return torch.tensor(values)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ConfigError(
            f"{where}: expected numbers, got {type(values).__qualname__} of dtype {array.dtype}"
        )
    if array.dtype.kind == "u" and array.itemsize > 1:
        array = array.astype(np.int64)  # torch lacks arithmetic on wider unsigned numbers
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    # Copied: loaded data are never written to, and torch refuses to share read-only memory.
    return torch.from_numpy(np.array(array))


def _at(bad: Tensor) -> str:
    return f" at index {int(bad.nonzero()[0][-1])}" if bad.ndim else ""
