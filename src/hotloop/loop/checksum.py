"""Checksums of arrays and tensors: equal content, equal checksum."""

import pickle
import zlib
from typing import Any

import numpy as np

from hotloop.loop.code import module_of
from hotloop.loop.values import torch_if_loaded, version_of

# Beyond this, sums of blocks and a sample take the place of a checksum of all bytes: they see any
# one write, and miss only values that are exchanged within a block.
WHOLE_BYTES = 8 << 20
BLOCK_WORDS = 8192
# Relative error that adding up in another order may bring to 32 bit numbers.
ROUNDING = 1e-4


def array_checksum(value: np.ndarray, *, by_value: bool = False) -> object:
    """Return a checksum of an array's bytes; by_value: NaN equals NaN, and 0.0 equals -0.0."""
    distinct = _without_repeats(value)
    if by_value and distinct.dtype.kind in "fc" and distinct.nbytes <= WHOLE_BYTES:
        distinct = distinct + np.zeros((), distinct.dtype)
        distinct[np.isnan(distinct)] = np.nan
    if distinct.nbytes > WHOLE_BYTES and not distinct.flags.c_contiguous:
        if distinct.T.flags.c_contiguous:
            distinct = distinct.T
        else:
            sample = distinct.flat[:: distinct.nbytes // WHOLE_BYTES]
            return _crc32(sample)
    data = np.ascontiguousarray(distinct).reshape(-1).view(np.uint8)
    if data.nbytes <= WHOLE_BYTES:
        return _crc32(data)
    return _large_checksum(data)


def tensor_checksum(value: Any, *, by_value: bool = False) -> object:
    """Return a checksum of a tensor's bytes, or its version where no bytes can be read."""
    if value.device.type == "meta" or str(value.layout) != "torch.strided":
        return version_of(value)
    shared = value.detach()
    repeated = tuple(slice(0, 1) if step == 0 else slice(None) for step in shared.stride())
    shared = shared[repeated]
    if shared.device.type != "cpu":
        if shared.nbytes > WHOLE_BYTES:
            shared = shared.reshape(-1)[:: max(1, shared.nbytes // WHOLE_BYTES)]
        shared = shared.cpu()
    try:
        return array_checksum(shared.numpy(), by_value=by_value)
    except (TypeError, RuntimeError):  # a dtype that numpy lacks
        torch: Any = torch_if_loaded()
        return array_checksum(shared.reshape(-1).view(torch.uint8).numpy())


def saved_checksum(content: Any) -> object:
    """Return a checksum of what an object saved of itself, if only pickling can read it."""
    kind = type(content)
    if (
        module_of(kind) == "builtins"
        or hasattr(content, "__dict__")
        or isinstance(content, np.ndarray)
    ):
        return None
    try:
        return zlib.crc32(pickle.dumps(content))
    except Exception:
        return None  # pickling raises anything; then it cannot be seen


class DeviceFloats:
    """Numbers on a device, equal to others up to rounding: sums there are added in any order."""

    def __init__(self, value: Any) -> None:
        self._value = value.detach().clone()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceFloats):
            return False
        first, second = self._value, other._value
        size = float(first.abs().nan_to_num(0.0, 0.0, 0.0).max()) if first.numel() else 0.0
        return bool(first.allclose(second, rtol=ROUNDING, atol=ROUNDING * size, equal_nan=True))

    __hash__ = None  # type: ignore[assignment]  # equal up to rounding has no hash


def _without_repeats(value: np.ndarray) -> np.ndarray:
    """Return the array with each element that a broadcast repeats once."""
    repeated = tuple(slice(0, 1) if step == 0 else slice(None) for step in value.strides)
    shared: np.ndarray = np.asarray(value)[repeated]
    return shared


def _large_checksum(data: np.ndarray) -> object:
    words = data[: data.nbytes // 8 * 8].view(np.uint64)
    whole = len(words) // BLOCK_WORDS * BLOCK_WORDS
    sums = words[:whole].reshape(-1, BLOCK_WORDS).sum(axis=1, dtype=np.uint64)
    sample = np.ascontiguousarray(words[:: max(1, data.nbytes // WHOLE_BYTES)])
    rest = data[whole * 8 :]
    return (_crc32(sums), _crc32(sample), _crc32(rest))


def _crc32(data: np.ndarray) -> int:
    return zlib.crc32(data.view(np.uint8).data)
