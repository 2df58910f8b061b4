"""The size from which malloc maps blocks stays as the loop has made it."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from hotloop.loop.malloc import hold_malloc

def free_block_of(mebibytes):
    np.ones(mebibytes << 20, np.uint8)

free_block_of(3)
first = hold_malloc()
free_block_of(20)
print(first, hold_malloc())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's")
def test_what_is_freed_after_it_was_held_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    first, second = done.stdout.split()
    assert first == second, done.stderr
    assert first == "None" or 3 << 20 <= int(first) < 4 << 20
