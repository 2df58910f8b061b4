"""Keep a core busy for a time, in the way of the stage that is replaced.

A stage that computes in Python holds the interpreter lock; one that computes in NumPy or torch
releases it, and other threads run meanwhile; one that reads large arrays takes memory bandwidth
from its neighbours. What computes in a stage's place must do the same, or the others would be
slowed in another way than by the stage. All of it is compiled code of the standard library, so that
nothing has to be compiled or imported in a worker process first.
"""

import hashlib
import time
import zlib
from collections.abc import Callable

# zlib holds the interpreter lock for 5 KiB or less, and releases it for more.
HELD_BYTES = 4 << 10
RELEASED_BYTES = 256 << 10
# A stage that moves less than this a call works in the cache.
LARGE_BYTES = 1 << 20
MOST_BYTES = 64 << 20
# A release of the lock lasts no longer than this, so that the deadline is met.
SLICE_NS = 1_000_000
_FIRST_ROUNDS = 16


def burn_until(
    deadline_ns: int,
    releases_lock: bool,
    moved_bytes: float,
    now_ns: Callable[[], int] = time.perf_counter_ns,
) -> None:
    """Compute until a clock reaches the deadline.

    releases_lock: whether other threads may run meanwhile. moved_bytes: memory that is read again
    and again, where it is more than the caches hold. now_ns: the clock, of time or of the thread's
    processor time.
    """
    if moved_bytes >= LARGE_BYTES:
        _read_memory(deadline_ns, releases_lock, int(min(moved_bytes, MOST_BYTES)), now_ns)
    elif releases_lock:
        _hash_released(deadline_ns, now_ns)
    else:
        piece = _memory(HELD_BYTES)[:HELD_BYTES]
        while now_ns() < deadline_ns:
            zlib.crc32(piece)


def _read_memory(
    deadline_ns: int, releases_lock: bool, moved_bytes: int, now_ns: Callable[[], int]
) -> None:
    memory = memoryview(_memory(moved_bytes))[:moved_bytes]
    step = RELEASED_BYTES if releases_lock else HELD_BYTES
    at = 0
    while now_ns() < deadline_ns:
        zlib.crc32(memory[at : at + step])
        at = at + step if at + step < moved_bytes else 0


def _hash_released(deadline_ns: int, now_ns: Callable[[], int]) -> None:
    global _ns_per_round
    start = now_ns()
    while (left := deadline_ns - start) > 0:
        # The rounds that fit, by the fastest that was seen: a slow slice was held up by others.
        rounds = _FIRST_ROUNDS
        if _ns_per_round:
            rounds = max(1, int(min(left, SLICE_NS) / _ns_per_round))
        hashlib.pbkdf2_hmac("sha256", b"", b"hotloop", rounds)
        end = now_ns()
        taken = (end - start) / rounds
        _ns_per_round = min(_ns_per_round, taken) if _ns_per_round else taken
        start = end


def _memory(size: int) -> bytes:
    global _content
    if len(_content) < size:
        _content = b"\1" * size  # written, or all of its pages would be one
    return _content


_ns_per_round = 0.0
_content = b""
