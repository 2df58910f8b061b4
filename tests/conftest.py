"""What holds for every test."""

import gc
import multiprocessing
import os
import signal

from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Nothing is written to the user's cache: populations are drawn anew, in milliseconds.
os.environ["HOTLOOP_CACHE"] = ""
# On some processors MKL rounds products by where in memory their inputs lie, which is chance; then
# two trainings of the same seed differ in the last bit. Not with this; set before torch is loaded.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")
# Ray lets its workers wait for whatever else computes, as other tests do, nearly all the time.
os.environ.setdefault("RAY_worker_niceness", "0")
# Chosen for good: importing TorchRL would make every process of all tests a spawned one.
multiprocessing.get_start_method()
# Examples of a property are the same each time, and drawn by chance where all is asked for.
# Nothing is concluded from how long they take: the machine may be busy.
settings.register_profile(
    "the same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "by chance", settings.get_profile("the same"), derandomize=False, print_blob=True
)
settings.load_profile("by chance" if os.environ.get("HOTLOOP_TEST_ALL") else "the same")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what lives as long as the tests do.

    Libraries and collected tests are a million objects: a full collection took half a second.
    """
    gc.collect()
    gc.freeze()
