"""One measurement of a process, and no other beside it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hotloop.errors import LoopError
from hotloop.loop.control import ENVIRONMENT_VARIABLE, SharedControl, process_control


@contextmanager
def measuring_alone() -> Iterator[SharedControl]:
    """Measure by the stages of this process, whose control it yields.

    Raises: LoopError if this process is measuring already, or is a worker of a measurement.
    """
    control = process_control()
    if control.is_worker:
        raise LoopError(
            "the stages of this process obey the process that started it, so they cannot be "
            f"measured here; start it without {ENVIRONMENT_VARIABLE} in its environment"
        )
    if not _one_at_a_time.acquire(blocking=False):
        raise LoopError(
            "this process is measuring already, and two measurements would change each other; "
            "wait for the first, or use another process"
        )
    try:
        yield control
    finally:
        _one_at_a_time.release()


_one_at_a_time = threading.Lock()
