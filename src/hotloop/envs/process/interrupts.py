"""Deferred Ctrl-C: a message between two processes is read and written as a whole.

Of a message that was cut, the rest would be taken for the next one. Blocking the signal in this
thread would not do: the interpreter calls the handler here, whichever thread the signal reached.
"""

import signal
import threading
from types import FrameType
from typing import Any, Self


class DeferInterrupt:
    """Defer SIGINT until the block ends."""

    def __enter__(self) -> Self:
        self._came: list[tuple[int, FrameType | None]] = []
        self._handler: Any = None
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        if self._came and callable(self._handler):
            self._handler(*self._came[0])

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))
