"""Stopping a script again that went on after it was stopped."""

import sys
import threading
import time
from typing import Any

import pytest

from hotloop.loop.conduct import StoppedByMeasurement
from hotloop.loop.scripts import stop

# Between two stops: far longer than a busy machine takes to bring the script back to its sleep.
APART_S = 0.5


class Swallows:
    """A context manager that lets no exception through."""

    def __init__(self) -> None:
        self.entered = self.left = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: Any) -> bool:
        self.left += 1
        return True


def test_what_is_stopped_again_leaves_its_context_managers_and_nothing_being_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stop, "CLEANING_UP_S", APART_S)
    monkeypatch.setattr(stop, "AGAIN_S", APART_S)
    manager = Swallows()
    stopper = stop.Stopper()
    timer = threading.Timer(APART_S, stopper.ask)

    def script() -> None:
        timer.start()
        while True:
            with manager:
                time.sleep(1000)

    with pytest.raises(StoppedByMeasurement), stopper.stopping():
        script()
    timer.join()
    assert manager.entered >= 2, "it went on after the first time"
    assert manager.left == manager.entered
    assert sys.exc_info() == (None, None, None)
