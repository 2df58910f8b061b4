"""Memory without a name: who maps it shares it, and when the last of them ends it is gone."""

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def open_memory(name: str) -> int:
    """Open an empty file in memory and return its descriptor; a debugger shows `name`."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-")
    os.unlink(path)  # noqa: PTH108
    return descriptor


class FileLock:
    """A lock for the threads of this process and the processes that have the file open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._threads = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock within a `with` block."""
        with self._threads:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
