"""Stopping a script that is under measurement, also one that catches what stops it, or waits."""

import ctypes
import dis
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hotloop.loop.conduct import StoppedByMeasurement

# So long a script may take to clean up before it is stopped again, in seconds.
CLEANING_UP_S = 5.0
AGAIN_S = 0.1
# Files whose functions clean up to their end: those of hotloop and of the interpreter.
_KEPT = (str(Path(__file__).parents[2]) + os.sep, "<frozen")
# It ends waits in the kernel. Scripts use the alarm for themselves, but hardly a real-time signal.
_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGALRM)

# The instructions at which the handling of an exception begins and ends. Another that is raised
# just there leaves the first as "being handled" for as long as the thread lives, and a context
# manager without its exit.
_EDGES_OF_HANDLERS = {dis.opmap["PUSH_EXC_INFO"], dis.opmap["POP_EXCEPT"]}


class _StoppedAgain(StoppedByMeasurement, KeyboardInterrupt):
    """Some compiled waits, such as Ray's, end for an interrupt only, and raise one of their own."""


class Stopper:
    """Raises StoppedByMeasurement on the thread of the script until the script has ended.

    It is raised as any exception at first. From the second time on, a function that catches it is
    left at its next line: so also `while True: try: … except BaseException: …` has an end.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._on_main_thread = threading.current_thread() is threading.main_thread()
        self._outermost: FrameType | None = None
        self._over = threading.Event()
        self._insists = False  # whether a thread goes on to stop it
        self._attempts = 0

    @property
    def is_stopping(self) -> bool:
        """Whether the script is being stopped."""
        return self._attempts > 0

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """The time in which the script runs, within the frame that calls this."""
        self._outermost = sys._getframe(2)
        tracing = sys.gettrace()
        before = signal.signal(_SIGNAL, self._on_signal) if self._on_main_thread else None
        try:
            yield
        finally:
            self._over.set()
            if self._on_main_thread:
                signal.signal(_SIGNAL, before)
            if self._attempts:
                sys.settrace(tracing)

    def stop(self) -> NoReturn:
        """Stop the script; called by what it calls, on its own thread."""
        self._insist()
        self._raise(sys._getframe(1))

    def ask(self) -> None:
        """Stop the script from another thread."""
        self._interrupt()
        self._insist()

    def _insist(self) -> None:
        if not self._insists:
            self._insists = True
            threading.Thread(target=self._go_on, name="hotloop-stop", daemon=True).start()

    def _go_on(self) -> None:
        wait_s = CLEANING_UP_S
        while not self._over.wait(wait_s):
            self._interrupt()
            wait_s = AGAIN_S

    def _interrupt(self) -> None:
        if self._over.is_set():
            return
        if self._on_main_thread and signal.getsignal(_SIGNAL) == self._on_signal:
            signal.pthread_kill(self.thread, _SIGNAL)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread), ctypes.py_object(StoppedByMeasurement)
            )

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        if not self._over.is_set():
            self._raise(frame)

    def _raise(self, frame: FrameType | None) -> NoReturn:
        if self._attempts:
            # What was raised before was caught, or cleaning up lasts. Whoever catches it has it
            # again at its next line, where it is caught no more. One function at a time, for what
            # is raised by tracing ends the tracing: the outermost first.
            frames: list[FrameType] = []
            while frame is not None and frame is not self._outermost:
                if not frame.f_code.co_filename.startswith(_KEPT):
                    frames.append(frame)
                frame = frame.f_back
            if frames:
                frames[-(1 + self._attempts % len(frames))].f_trace = _raise_at_line
                sys.settrace(_leave_untraced)
        self._attempts += 1
        raise _StoppedAgain if self._attempts > 1 else StoppedByMeasurement


def _raise_at_line(frame: FrameType, event: str, _argument: Any) -> Any:
    if event == "line" and frame.f_code.co_code[frame.f_lasti] not in _EDGES_OF_HANDLERS:
        raise StoppedByMeasurement
    return _raise_at_line


def _leave_untraced(_frame: FrameType, _event: str, _argument: Any) -> None:
    """Frames that are entered from now on run as they are."""
