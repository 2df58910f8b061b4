"""Memory without a name: what maps it shares it, and when the last of them ends it is gone."""

import os
import tempfile


def open_memory(name: str) -> int:
    """A descriptor of an empty file in memory; `name` is only what a debugger shows."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-")
    os.unlink(path)  # noqa: PTH108
    return descriptor
