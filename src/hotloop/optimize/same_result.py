"""Whether a change keeps what a loop computes: the same bits, or the same up to rounding.

What a loop has computed after a few iterations is written down as a checksum and some numbers of
each array, small enough to be sent from one process to another.
"""

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hotloop.loop.checksum import array_checksum
from hotloop.loop.loop import Loop
from hotloop.loop.values import is_tensor, torch_if_loaded

CHECK_ITERATIONS = 3  # after which results are compared
SAMPLES = 256  # numbers of each array that are compared where rounding may differ

Print = dict[str, Any]
"""Of one array: its name, shape, checksum, largest magnitude, and evenly spaced numbers of it."""


def prints_of(loop: Loop) -> list[Print]:
    """What a loop has computed so far."""
    found = loop.result() if loop.result is not None else _parameters()
    return [_print(name, array) for name, array in _arrays(found, "result")]


def difference(before: Sequence[Print], after: Sequence[Print], kept: bool | float) -> str | None:
    """How two results differ, in words; None if they are the same.

    kept: True for the same bits, or the share of an array's largest magnitude that may differ.
    """
    if len(before) != len(after):
        return f"it has {len(after)} arrays and had {len(before)}"
    for first, second in zip(before, after, strict=True):
        if first["shape"] != second["shape"]:
            return f"{first['name']} has the shape {second['shape']} and had {first['shape']}"
        if first["checksum"] == second["checksum"]:
            continue
        if kept is True:
            return f"{first['name']} has other bits"
        size = max(first["size"], second["size"])
        pairs = zip(first["numbers"], second["numbers"], strict=True)
        away = max((abs(a - b) for a, b in pairs), default=0.0)
        if not away <= kept * size:
            return f"{first['name']} differs by {away / size if size else math.inf:.2g} of its size"
    return None


def unlike(first: Sequence[Print], second: Sequence[Print]) -> str:
    """Why two equal runs cannot be told from a changed one; empty where they can."""
    if not first:
        return "the loop names no result, and has no parameters of torch"
    found = difference(first, second, True)
    return "" if found is None else f"two equal runs of it differ: {found}"


def _print(name: str, array: np.ndarray) -> Print:
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind not in "biuf":
        numbers, size = [], 0.0
    else:
        chosen = flat[:: max(1, len(flat) // SAMPLES)].astype(np.float64)
        numbers, size = chosen.tolist(), float(np.abs(chosen).max(initial=0.0))
    return {
        "name": name,
        "shape": list(np.shape(array)),
        "checksum": str(array_checksum(np.ascontiguousarray(array))),
        "size": size,
        "numbers": numbers,
    }


def _arrays(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if is_tensor(value):
        plain = value.detach().cpu()
        if str(plain.dtype) == "torch.bfloat16":
            plain = plain.float()
        yield name, plain.numpy()
    elif isinstance(value, np.ndarray | np.generic | bool | int | float):
        yield name, np.asarray(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _arrays(value[key], f"{name}[{key!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, each in enumerate(value):
            yield from _arrays(each, f"{name}[{number}]")


def _parameters() -> list[Any]:
    """The leaf tensors that require a gradient, in an order that their places in memory leave."""
    torch: Any = torch_if_loaded()
    if torch is None:
        return []
    found = [
        each
        for each in gc.get_objects()
        # Not `isinstance`: a proxy of what is gone raises when it is asked for its class.
        if issubclass(type(each), torch.Tensor) and each.requires_grad and each.is_leaf
    ]
    return sorted(found, key=lambda each: (tuple(each.shape), float(each.detach().double().sum())))
