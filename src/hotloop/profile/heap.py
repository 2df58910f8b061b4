"""What malloc has given out and not got back, by the C library's own count.

memray follows what is allocated while it looks. What is freed meanwhile and was there before has no
size for it: a queue that passes things on would seem to grow by all that is put into it. The count
of the C library tells the difference.
"""

import ctypes
from typing import Self

_PROBE_BYTES = 1 << 23


class _Mallinfo2(ctypes.Structure):
    _fields_ = [  # as ctypes wants it
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class Heap:
    """The C library's count of the bytes in use; Python's own pools of small objects left out."""

    def __init__(self) -> None:
        self._read = ctypes.CDLL(None).mallinfo2
        self._read.restype = _Mallinfo2

    @classmethod
    def usable(cls) -> Self | None:
        """A count that follows what this process allocates; None where another malloc is used."""
        try:
            heap = cls()
        except (OSError, AttributeError):
            return None
        before = heap.in_use_bytes()
        probe = bytearray(_PROBE_BYTES)
        seen = heap.in_use_bytes() - before
        del probe
        return heap if seen >= _PROBE_BYTES else None

    def in_use_bytes(self) -> int:
        """The bytes in use now: of the heaps, and of what has a mapping of its own."""
        info = self._read()
        return int(info.uordblks) + int(info.hblkhd)
