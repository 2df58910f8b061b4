"""The size from which malloc maps blocks stays as the loop has made it."""

import subprocess
import sys

import pytest

KEEPING = """
import sys
import numpy as np
from hotloop.loop.malloc import FreedMemory, _glibc

if _glibc() is None:
    sys.exit(print("nothing known here"))

def is_mapped(mebibytes):
    library = _glibc()
    before = library.mallinfo2().hblks
    block = np.ones(mebibytes << 20, np.uint8)
    return library.mallinfo2().hblks > before

freed = FreedMemory()
found = []
for keep, mebibytes in ((False, 20), (True, 24), (False, 24)):  # the first raises the size
    freed.keep(keep)
    found.append(is_mapped(mebibytes))
print(*found)
"""
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


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's")
def test_what_is_kept_is_not_mapped_again_and_that_can_be_taken_back() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPING], capture_output=True, text=True)
    assert done.stdout.split() in (["True", "False", "True"], ["nothing", "known", "here"]), done
