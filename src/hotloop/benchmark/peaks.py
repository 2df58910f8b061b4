"""The peaks of this machine, measured with a short matrix product and a short copy.

They use torch if the loop does, with the loop's own number of threads, else NumPy; a GPU is
measured if the loop has used one.
"""

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.errors import SettingError
from hotloop.loop.gpu import cuda_available
from hotloop.loop.values import torch_if_loaded

MATRIX = 1024
COPY_BYTES = 64 << 20
SECONDS = 0.25


@dataclass(frozen=True)
class Peaks:
    """Measured maxima: operations of a precision and bytes (read plus written) per second."""

    flops_per_s: float
    bytes_per_s: float
    device: str
    how: str


def measure_peaks(seconds: float = SECONDS, precision: str = "float32") -> Peaks:
    """Measure the peaks, about `seconds` each; the best repetition counts.

    precision: of the product: float32, or with torch the name of another of its types of floats.
    Raises: SettingError for one that is not there.
    """
    torch: Any = torch_if_loaded()
    _expect_floats(torch, precision)
    if torch is None:
        square = (MATRIX, MATRIX)
        a, b, out = (np.frombuffer(_memory(4 * MATRIX**2), np.float32) for _ in range(3))
        a, b, out = a.reshape(square), b.reshape(square), out.reshape(square)
        source, target = (np.frombuffer(_memory(COPY_BYTES), np.uint8) for _ in range(2))
        for array in (a, b, source):
            array.fill(1)
        return Peaks(
            flops_per_s=2 * MATRIX**3 / _best(lambda: np.matmul(a, b, out=out), seconds),
            bytes_per_s=2 * COPY_BYTES / _best(lambda: np.copyto(target, source), seconds),
            device="cpu",
            how=f"NumPy: float32 product of {MATRIX}×{MATRIX}, copy of {COPY_BYTES >> 20} MiB",
        )
    on_gpu = cuda_available() and torch.cuda.is_initialized()
    device = "cuda" if on_gpu else "cpu"
    size = MATRIX * 8 if on_gpu else MATRIX
    copied = COPY_BYTES * 16 if on_gpu else COPY_BYTES
    kind = getattr(torch, precision)
    left, right, product = (_ones(torch, size**2, kind, device).view(size, size) for _ in range(3))
    origin, copy = (_ones(torch, copied, torch.uint8, device) for _ in range(2))
    finish: Callable[[], object] = torch.cuda.synchronize if on_gpu else lambda: None
    with torch.no_grad():
        flops = 2 * size**3 / _best(lambda: torch.mm(left, right, out=product), seconds, finish)
        moved = 2 * copied / _best(lambda: copy.copy_(origin), seconds, finish)
    threads = torch.get_num_threads()
    where = (
        f"torch on {torch.cuda.get_device_name()}"
        if on_gpu
        else f"torch, {threads} thread{'s' if threads > 1 else ''}"
    )
    return Peaks(
        flops_per_s=flops,
        bytes_per_s=moved,
        device=device,
        how=f"{where}: {precision} product of {size}×{size}, copy of {copied >> 20} MiB",
    )


def _memory(size: int) -> mmap.mmap:
    """Bytes that are not malloc's.

    A block that is given back raises the size from which malloc maps memory anew (mallopt(3),
    M_MMAP_THRESHOLD): the loop would have fewer page faults from then on, and be faster than alone.
    """
    return mmap.mmap(-1, size)


def _ones(torch: Any, count: int, kind: Any, device: str) -> Any:
    if device == "cuda":
        return torch.ones(count, dtype=kind, device=device)
    return torch.frombuffer(_memory(count * kind.itemsize), dtype=kind).fill_(1)


def _expect_floats(torch: Any, precision: str) -> None:
    if torch is None:
        is_there = precision == "float32"
    else:
        kind = getattr(torch, precision, None)
        is_there = isinstance(kind, torch.dtype) and kind.is_floating_point
    if not is_there:
        raise SettingError(
            f"peaks: precision: expected 'float32', or with torch loaded another type of floats, "
            f"such as 'bfloat16', got {precision!r}"
        )


def _best(
    work: Callable[[], object], seconds: float, finish: Callable[[], object] = lambda: None
) -> float:
    work()
    finish()
    best = float("inf")
    end = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        work()
        finish()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
