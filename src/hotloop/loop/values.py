"""Copying, comparing and weighing what stages hand on: arrays, tensors and containers of them.

torch is never imported here: a value can only be a tensor if its owner has imported it.
"""

import copy
import dataclasses
import io
import sys
import threading
import types
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), type)
# Larger arrays are checked for mutation by a sample of their bytes.
CHECKSUM_BYTES = 1 << 20

_UNCOPYABLE: tuple[tuple[type, ...], ...] = (
    (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
    (io.IOBase,),
    (type(threading.Lock()), type(threading.RLock())),
)


class NotCopyableError(Exception):
    """A value of which no independent copy can be made; says why."""


def torch_if_loaded() -> ModuleType | None:
    """The torch module if somebody has imported it, else None."""
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.Tensor)


def independent_copy(value: Any) -> Any:
    """A copy that shares no memory with `value`; containers keep their types.

    Raises: NotCopyableError, with the reason, for a generator, a file, a lock, a tensor with an
    autograd graph, or anything that refuses to be deep-copied.
    """
    if isinstance(value, ATOMS):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.copy()
    if is_tensor(value):
        if value.grad_fn is not None:
            raise NotCopyableError(
                "its output carries an autograd graph; make forward and backward one stage"
            )
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) is tuple:
        return tuple(independent_copy(item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(independent_copy(item) for item in value))
    if type(value) is list:
        return [independent_copy(item) for item in value]
    if type(value) is dict:
        return {key: independent_copy(item) for key, item in value.items()}
    for kinds in _UNCOPYABLE:
        if isinstance(value, kinds):
            raise NotCopyableError(f"its output is a {type(value).__name__}, which has no copy")
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise NotCopyableError(
            f"its output of type {type(value).__qualname__} cannot be copied "
            f"({type(error).__name__}: {error})"
        ) from error


def arrays_in(value: Any, depth: int = 6) -> Iterator[Any]:
    """The numpy arrays and torch tensors in `value`, through containers and dataclasses."""
    if isinstance(value, np.ndarray) or is_tensor(value):
        yield value
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from arrays_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from arrays_in(getattr(value, field.name), depth - 1)


def count_bytes(value: Any) -> int:
    """Bytes in the arrays and tensors of `value`."""
    return sum(int(array.nbytes) for array in arrays_in(value))


def count_items(value: Any, depth: int = 6) -> int:
    """A size of `value` that grows with what its consumer has to go through.

    Elements of arrays and tensors, items of containers, characters of text; 1 for anything else.
    """
    if isinstance(value, np.ndarray):
        return 1 + int(value.size)
    if is_tensor(value):
        return 1 + int(value.numel())
    if isinstance(value, str | bytes | bytearray):
        return 1 + len(value)
    if depth and isinstance(value, tuple | list | set | frozenset):
        return 1 + sum(count_items(item, depth - 1) for item in value)
    if depth and isinstance(value, dict):
        return 1 + sum(count_items(item, depth - 1) for item in value.values())
    if depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return 1 + sum(count_items(item, depth - 1) for item in fields)
    return 1


def fingerprint(value: Any) -> tuple[object, ...]:
    """A value that changes when somebody writes into an array or container of `value`.

    Tensors have a version counter that counts writes; arrays are summed up, large ones by a
    sample. Attributes of other objects are not looked at.
    """
    parts: list[object] = []
    _fingerprint_into(value, parts)
    return tuple(parts)


def write_into(target: Any, source: Any) -> None:
    """Copy the content of one array or tensor into another of the same shape."""
    if is_tensor(target):
        torch = torch_if_loaded()
        assert torch is not None
        with torch.no_grad():
            target.copy_(source)
    else:
        np.copyto(target, source)


def _fingerprint_into(value: Any, parts: list[object]) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            parts.append(len(value))
            return
        data = value if value.nbytes <= CHECKSUM_BYTES else _sample(value)
        parts.append(zlib.crc32(data.tobytes()))
    elif is_tensor(value):
        parts.append((id(value), value._version))
        if value.device.type == "cpu" and not value.is_sparse:
            shared = value.detach()
            try:
                _fingerprint_into(shared.numpy(), parts)  # writes through a numpy view
            except (TypeError, RuntimeError):
                pass  # a dtype that numpy lacks: the version counter alone
    elif isinstance(value, tuple | list):
        parts.append(len(value))
        for item in value:
            _fingerprint_into(item, parts)
    elif isinstance(value, dict):
        parts.append(tuple(map(repr, value)))
        for item in value.values():
            _fingerprint_into(item, parts)
    elif isinstance(value, ATOMS):
        parts.append(value)


def _sample(array: np.ndarray) -> np.ndarray:
    flat = array.ravel()
    step = max(1, array.nbytes // CHECKSUM_BYTES)
    return flat[::step]
