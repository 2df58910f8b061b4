"""Waiting for what another process or thread does, however busy the machine is."""

import time
from collections.abc import Callable

# Only against hanging: what is waited for comes long before, and nothing is concluded from when.
DEADLINE_S = 100.0
# For what must be gone: a test that finds something left has waited so long for it to go.
PATIENCE_S = 30.0


def wait_until(holds: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll until something holds. Raises: TimeoutError, saying what does not."""
    end = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.01)
