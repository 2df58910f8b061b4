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

# A loop takes 4 MiB in small blocks, and the system has them back after each iteration, until
# something lies above them.
BELOW_SOMETHING = """
import resource
import sys
import numpy as np
from hotloop.loop.malloc import HeldMalloc, _glibc

above = []

def iterate(keep=False):
    blocks = [np.ones(100 << 10, np.uint8) for _ in range(40)]
    if keep:
        above.append(blocks[-1])

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        iterate()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
alone = faults()
if _glibc() is None or alone < 1000:
    sys.exit(print("nothing known here"))
malloc = HeldMalloc(True)
malloc.hold()
iterate(keep=True)
kept = faults()
malloc.fill()
filled = faults()
malloc.release()
print(alone, kept, filled, faults())
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
    _skip_where_unknown(done.stdout)
    assert done.stdout.split() == ["True", "False", "True"], done


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's")
def test_a_loop_has_the_page_faults_it_has_alone_where_something_lies_above_its_blocks() -> None:
    done = subprocess.run([sys.executable, "-c", BELOW_SOMETHING], capture_output=True, text=True)
    _skip_where_unknown(done.stdout)
    alone, kept, filled, released = map(int, done.stdout.split())
    assert kept < 0.1 * alone, "nothing was kept, so this test shows nothing"
    assert filled == pytest.approx(alone, rel=0.2)
    assert released < 0.3 * alone


def _skip_where_unknown(said: str) -> None:
    if said.startswith("nothing known here"):
        pytest.skip("glibc's malloc is not the one in use, or gives nothing back")
