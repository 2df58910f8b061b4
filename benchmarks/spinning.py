"""Processes that compute without end, beside what is measured on a busy machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# They end with the process that has started them, however that ends.
_SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(1_000_000))
"""


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Let so many processes compute until the block ends."""
    command = [sys.executable, "-c", _SPIN]
    spinners = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
