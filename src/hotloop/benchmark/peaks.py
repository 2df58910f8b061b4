"""The peaks of this machine, measured with a short matrix product and a short copy.

They use torch if the loop does, with the loop's own number of threads, else NumPy; a GPU is
measured if the loop has used one.
"""

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
        a = np.ones((MATRIX, MATRIX), np.float32)
        b, out = a.copy(), np.empty_like(a)
        source = np.ones(COPY_BYTES, np.uint8)
        target = np.empty_like(source)
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
    left = torch.ones(size, size, device=device, dtype=getattr(torch, precision))
    right, product = left.clone(), torch.empty_like(left)
    origin = torch.ones(copied, dtype=torch.uint8, device=device)
    copy = torch.empty_like(origin)
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
