"""glibc's malloc as the loop has made it: what is measured beside it must not make it faster.

Large blocks are mapped from the system one by one, and cost page faults each time. From which size
on is dynamic: a mapped block that is freed raises the size to its own, up to 32 MiB (mallopt(3),
M_MMAP_THRESHOLD). Blocks of a measurement that are freed would raise it too, and a training whose
tensors have megabytes would then be up to a quarter faster than alone.

Smaller blocks come from the heap, whose free end goes back to the system, and costs page faults the
next time. What is recorded while a loop runs lies at that end, above the loop's own blocks. These
do not go back any more, and a training of transformers was a sixth faster than alone.
"""

import ctypes
import time
from collections.abc import Callable
from mmap import PAGESIZE
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
MADV_DONTNEED = 4
MOST_MAPPED = 65536  # blocks, if nothing else was said
SMALLEST, LARGEST = 128 << 10, 32 << 20
ALIGNMENT, HEADER = 16, 8  # of a block, on 64 bits
# So many blocks of one size may be taken from what is free already.
MOST_FREE = 64
# The sizes of blocks with which free memory is taken.
LARGEST_FILLER, SMALLEST_FILLER = 32 << 20, 64 << 10
# What is free between two iterations differs so much by itself.
USUAL_SHARE, USUAL_BYTES = 0.5, 1 << 20
LOOKING_SHARE = 0.01  # of the time may go into looking at it


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
    library = _glibc()
    if library is None:
        return None
    blocks: list[int] = []

    def is_mapped(size: int) -> bool | None:
        for _ in range(MOST_FREE):
            before = library.mallinfo2()
            blocks.append(library.malloc(size))
            after = library.mallinfo2()
            if after.hblks > before.hblks:
                return True
            if after.arena > before.arena:
                return False
        return None

    size = _first_mapped(is_mapped)
    if size is not None:
        # Before the blocks are freed, which would raise it.
        library.mallopt(M_MMAP_THRESHOLD, size)
    for block in blocks:
        library.free(block)
    return size


# What changes where a block is mapped, or taken from the heap's end.
_OF_THE_END = ("hblks", "arena", "keepcost")


class HeldMalloc:
    """Malloc as the loop has it alone, while the loop is measured.

    is_held: whether to do anything; only in a process of hotloop's own, see `hold_malloc`.
    """

    def __init__(self, is_held: bool) -> None:
        self._library = _glibc() if is_held else None
        self._free_bytes = 0
        self._fillers: list[int] = []
        self._next_s = 0.0  # when to look again

    def hold(self) -> None:
        """Take malloc's present state for the loop's own: between two iterations, when warm."""
        if self._library is not None:
            hold_malloc()
            self._free_bytes = _free_below_end(self._library)

    def fill(self) -> None:
        """Take the memory that has become free in the heap since, which the loop alone had not.

        Between two iterations. Its pages go back to the system. A heap of many pieces takes long to
        look through, and is looked at the more rarely.
        """
        begin_s = time.perf_counter()
        if self._library is None or begin_s < self._next_s:
            return
        free_bytes = _free_below_end(self._library)
        if free_bytes > (1 + USUAL_SHARE) * self._free_bytes + USUAL_BYTES:
            self._fill(self._library, free_bytes - self._free_bytes)
        now_s = time.perf_counter()
        self._next_s = now_s + (now_s - begin_s) / LOOKING_SHARE

    def release(self) -> None:
        """Free what was taken."""
        while self._library is not None and self._fillers:
            self._library.free(self._fillers.pop())

    def _fill(self, library: Any, surplus: int) -> None:
        size = LARGEST_FILLER
        while size >= SMALLEST_FILLER:
            if surplus >= size and self._take(library, size):
                surplus -= size
            else:
                size //= 2
        # What could not be taken is in pieces that are too small, or another thread's.
        self._free_bytes += surplus

    def _take(self, library: Any, size: int) -> bool:
        """Take a free block; returns whether there was one that is not at the heap's end."""
        before = library.mallinfo2()
        block = library.malloc(size)
        after = library.mallinfo2()
        if any(getattr(before, name) != getattr(after, name) for name in _OF_THE_END):
            library.free(block)
            return False
        self._fillers.append(block)
        begin, end = -(-block // PAGESIZE), (block + size) // PAGESIZE
        library.madvise(begin * PAGESIZE, (end - begin) * PAGESIZE, MADV_DONTNEED)
        return True


class FreedMemory:
    """Whether malloc keeps what is freed, to hand it out again without page faults.

    The process then holds as much memory as it ever had in use. Only with glibc: `is_there`.
    """

    def __init__(self) -> None:
        self._library = _glibc()
        self._mapped_from = LARGEST
        self.is_there = self._library is not None
        self._kept = False

    def keep(self, keep: bool) -> None:
        """Keep all of it, or give back what malloc gave back before, by the size of blocks then."""
        if self._library is None or keep == self._kept:
            return
        self._kept = keep
        if keep:
            self._mapped_from = hold_malloc() or LARGEST
            self._library.mallopt(M_MMAP_MAX, 0)
            self._library.mallopt(M_TRIM_THRESHOLD, -1)
        else:
            self._library.mallopt(M_MMAP_MAX, MOST_MAPPED)
            self._library.mallopt(M_MMAP_THRESHOLD, self._mapped_from)
            # As malloc itself has it where the size is dynamic.
            self._library.mallopt(M_TRIM_THRESHOLD, 2 * self._mapped_from)
            self._library.malloc_trim(0)


def _glibc() -> Any | None:
    """The C library, if its malloc says what it does."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Info
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (AttributeError, OSError):
        return None
    return library


def _free_below_end(library: Any) -> int:
    """The bytes that are free in the heap, apart from its end."""
    known = library.mallinfo2()
    return int(known.fordblks - known.keepcost)


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
