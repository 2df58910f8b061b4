"""glibc's malloc as the loop has made it: what is measured beside it must not make it faster.

Large blocks are mapped from the system one by one, and cost page faults each time. From which size
on is dynamic: a mapped block that is freed raises the size to its own, up to 32 MiB (mallopt(3),
M_MMAP_THRESHOLD). Blocks of a measurement that are freed would raise it too, and a training whose
tensors have megabytes would then be up to a quarter faster than alone.
"""

import ctypes
from collections.abc import Callable

M_MMAP_THRESHOLD = -3
SMALLEST, LARGEST = 128 << 10, 32 << 20
ALIGNMENT, HEADER = 16, 8  # of a block, on 64 bits
# So many blocks of one size may be taken from what is free already.
MOST_FREE = 64


class _Info(ctypes.Structure):
    """What mallinfo2(3) returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def hold_malloc() -> int | None:
    """Keep the size from which blocks are mapped as it is now, whatever is freed.

    Returns: the size in bytes, with the block's header; None where it is not known, as with another
    malloc, or cannot rise any more. It cannot be made dynamic again: for a process of hotloop's
    own, after its loop has warmed up.
    """
    try:
        library = ctypes.CDLL(None)
        info, malloc, free, mallopt = (
            getattr(library, name) for name in ("mallinfo2", "malloc", "free", "mallopt")
        )
    except (AttributeError, OSError):
        return None
    info.restype = _Info
    malloc.restype, malloc.argtypes, free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    blocks: list[int] = []

    def is_mapped(size: int) -> bool | None:
        for _ in range(MOST_FREE):
            before = info()
            blocks.append(malloc(size))
            after = info()
            if after.hblks > before.hblks:
                return True
            if after.arena > before.arena:
                return False
        return None

    size = _first_mapped(is_mapped)
    if size is not None:
        # Before the blocks are freed, which would raise it.
        mallopt(M_MMAP_THRESHOLD, size)
    for block in blocks:
        free(block)
    return size


def _first_mapped(is_mapped: Callable[[int], bool | None]) -> int | None:
    """The smallest size, with its header, of a block that is mapped; None where that is unknown."""
    low, high = SMALLEST // ALIGNMENT, LARGEST // ALIGNMENT
    if not is_mapped(high * ALIGNMENT - HEADER):
        return None
    while low < high:
        middle = (low + high) // 2
        mapped = is_mapped(middle * ALIGNMENT - HEADER)
        if mapped is None:
            return None
        low, high = (low, middle) if mapped else (middle + 1, high)
    return high * ALIGNMENT
