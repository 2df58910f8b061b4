"""Following a loop line by line: its own functions, and the calls that they make directly."""

import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from hotloop.optimize.patience import Patience
from hotloop.optimize.places import is_users

TraceFunction = Callable[[types.FrameType, str, Any], Any]


class Follower(Protocol):
    """Is told of calls, lines and returns in the loop's thread."""

    def wants_lines(self, code: types.CodeType) -> bool:
        """Whether it wants the lines and returns of this function of the user."""
        ...

    def wants_call(self, frame: types.FrameType) -> bool:
        """Whether it wants the return of this call, of the user's code or directly from it."""
        ...

    def line(self, frame: types.FrameType) -> None:
        """A line is about to run."""
        ...

    def returned(self, frame: types.FrameType, value: Any) -> None:
        """A call that it wanted, or a function whose lines it wanted, returns."""
        ...


class Tracer:
    """The shared instrument: tells its followers what the loop does while `watching`."""

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self._patience = Patience(0.0)
        self._process = 0
        self._by_lines: dict[int, tuple[types.CodeType, list[Follower]]] = {}
        self._by_call: dict[int, tuple[types.FrameType, list[Follower]]] = {}

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Follow this thread.

        seconds: how long that is planned for; once `Patience` is over nothing is followed any
        more, in the middle of an iteration too.
        """
        if not self.followers:
            yield
            return
        self._patience = Patience(seconds)
        self._process = os.getpid()
        before = sys.gettrace()
        followed = _follow_running(self._local)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            for frame, its_own in followed:
                frame.f_trace = its_own
            self._by_call.clear()

    def _call(self, frame: types.FrameType, _event: str, _argument: Any) -> TraceFunction | None:
        if os.getpid() != self._process or self._patience.is_over():
            sys.settrace(None)
            return None
        own = is_users(frame.f_code.co_filename)
        caller = frame.f_back
        if not own and (caller is None or not is_users(caller.f_code.co_filename)):
            return None
        calls = [each for each in self.followers if each.wants_call(frame)]
        if calls:
            self._by_call[id(frame)] = (frame, calls)
        lines = self._lines_of(frame.f_code) if own else []
        frame.f_trace_lines = bool(lines)
        return self._local if calls or lines else None

    def _local(self, frame: types.FrameType, event: str, argument: Any) -> TraceFunction | None:
        if event == "line":
            if self._patience.is_over():
                sys.settrace(None)
                return None
            for follower in self._lines_of(frame.f_code):
                follower.line(frame)
        elif event == "return":
            told = {id(each): each for each in self._lines_of(frame.f_code)}
            told |= {id(each): each for each in self._by_call.pop(id(frame), (None, []))[1]}
            for follower in told.values():
                follower.returned(frame, argument)
        return self._local

    def _lines_of(self, code: types.CodeType) -> list[Follower]:
        known = self._by_lines.get(id(code))
        if known is None:
            wanting = [each for each in self.followers if each.wants_lines(code)]
            known = self._by_lines[id(code)] = (code, wanting)
        return known[1] if is_users(code.co_filename) else []


def _follow_running(local: TraceFunction) -> list[tuple[types.FrameType, Any]]:
    """Follow the user's functions that are running; return their frames and former functions."""
    found: list[tuple[types.FrameType, Any]] = []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found.append((frame, frame.f_trace))
            frame.f_trace = local
        frame = frame.f_back
    return found
