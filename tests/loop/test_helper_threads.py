"""Threads which compute only what the loop's own thread waits for."""

import subprocess
import sys

import pytest

# What a thread computes beside the main one, by how it was started; in a process of its own, as the
# threads of OpenMP stay.
PROGRAM = """
import sys, threading, time
from hotloop.loop.helper_threads import HelperThreads
import torch

torch.set_num_threads(2)
a = torch.ones(2_000_000)
def compute():
    for _ in range(40):
        torch.sin(a)

compute()
helpers = HelperThreads()
helpers.search()
if sys.argv[1] == "team of another thread":
    thread = threading.Thread(target=compute)
begin = helpers.read_ns(), time.process_time_ns() - time.thread_time_ns()
if sys.argv[1] == "team of this thread":
    compute()
else:
    thread.start()
    thread.join()
    helpers.search()
of_helpers, of_others = (
    now - before
    for now, before in zip(
        (helpers.read_ns(), time.process_time_ns() - time.thread_time_ns()), begin, strict=True
    )
)
print(of_helpers / of_others)
"""


def share(computes: str) -> float:
    """How much of what other threads computed is known to be done for the main thread."""
    command = [sys.executable, "-c", PROGRAM, computes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout)


def test_threads_of_openmp_are_helpers_of_the_thread_that_they_compute_for() -> None:
    assert share("team of this thread") > 0.9


def test_what_another_thread_computes_with_helpers_of_its_own_goes_on_beside_the_loop() -> None:
    assert share("team of another thread") < 0.1


# Threads that are no threads of Python's, as those that torch starts for a card.
NATIVE = """
import ctypes, _thread, sys, threading, time
from hotloop.loop.helper_threads import HelperThreads

PR_SET_NAME, done = 15, _thread.allocate_lock()
done.acquire()
def compute():
    ctypes.CDLL(None).prctl(PR_SET_NAME, sys.argv[1].encode(), 0, 0, 0)
    threading.current_thread()  # a hook of a gradient may ask, and makes a dummy thread
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    done.release()
    time.sleep(60)

helpers = HelperThreads()
before = helpers.read_ns()
_thread.start_new_thread(compute, ())
done.acquire()
helpers.search()
print(helpers.read_ns() - before, helpers.spinning_ns() - before)
"""


@pytest.mark.parametrize(("name", "helps"), [("pt_autograd_0", True), ("worker", False)])
def test_the_thread_of_a_card_s_backward_passes_helps_and_does_not_spin(
    name: str, helps: bool
) -> None:
    command = [sys.executable, "-c", NATIVE, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    spent_ns, spinning_ns = map(int, done.stdout.split())
    assert (spent_ns > 90_000_000) == helps
    assert spinning_ns < 10_000_000
