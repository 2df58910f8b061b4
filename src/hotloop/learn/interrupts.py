"""Ctrl-C at a good moment: a training ends between two iterations, where it can be saved."""

import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any, Self

# What each does where nothing else is set.
_DEFAULTS: Mapping[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupts:
    """Note the first SIGINT or SIGTERM inside the block; a second one raises KeyboardInterrupt.

    Outside of the main thread, where Python handles no signal, nothing is noted.
    """

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {each: signal.signal(each, self._note) for each in _DEFAULTS}
        return self

    def __exit__(self, *raised: object) -> None:
        for each, handler in self._handlers.items():
            signal.signal(each, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _forget_in_child() -> None:
    """Let a signal end a worker that was forked inside the block."""
    for each, handler in _DEFAULTS.items():
        if isinstance(getattr(signal.getsignal(each), "__self__", None), Interrupts):
            signal.signal(each, handler)


os.register_at_fork(after_in_child=_forget_in_child)
