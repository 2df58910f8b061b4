"""What a script may change of its process, put back when it has ended: a report comes after it."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

# In the order of their file descriptors: 0, 1, 2.
_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# By these a user ends a program; a handler of the script does not keep it going.
_ENDING = (signal.SIGINT, signal.SIGTERM)
_HANDLED = (
    *_ENDING,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

# The second is how multiprocessing calls the first.
_MAIN_MODULES = ("__main__", "__mp_main__")

Handler = Callable[[int, Any], Any] | int | None


@contextmanager
def surroundings_put_back() -> Iterator[None]:
    """Put back what is changed within: streams, handlers of signals, timers, limits."""
    with ExitStack() as stack:
        stack.callback(sys.setrecursionlimit, sys.getrecursionlimit())
        stack.callback(gc.enable if gc.isenabled() else gc.disable)
        stack.enter_context(_own_main_modules())
        stack.enter_context(_own_streams())
        stack.enter_context(_own_signals())
        yield


@contextmanager
def _own_main_modules() -> Iterator[None]:
    """Let go of the script's module, so that what it holds, such as loaders, can be deleted."""
    before = {name: sys.modules.get(name) for name in _MAIN_MODULES}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


@contextmanager
def _own_streams() -> Iterator[None]:
    """Put back the three streams, and the files of the system that they write to."""
    streams = {name: getattr(sys, name) for name in _STREAMS}
    numbers = {name: _number_of(stream) for name, stream in streams.items()}
    copies: dict[int, int] = {}
    for number in range(len(_STREAMS)):
        with suppress(OSError):  # it was closed before
            copies[number] = os.dup(number)
    try:
        with _numbers_held(frozenset(copies)):
            yield
    finally:
        for stream in (sys.stdout, sys.stderr, *streams.values()):
            with suppress(Exception):  # whatever the script has put there, or closed
                stream.flush()
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)
        for name, stream in streams.items():
            own = numbers[name]
            setattr(
                sys, name, _opened_anew(name, own) if own is not None and stream.closed else stream
            )


@contextmanager
def _numbers_held(numbers: frozenset[int]) -> Iterator[None]:
    """Open the null device in the place of each of these file descriptors that is closed.

    The next file that is opened would have the number, a file of the script's or of the
    measurement's threads: the stream that is put back would take the file from it, and end when
    that file is closed.
    """
    own_close, own_closerange = os.close, os.closerange

    def close(fd: int) -> None:
        if fd not in numbers:
            own_close(fd)
            return
        os.fstat(fd)  # of one that is not open the error is as ever
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd)
        own_close(null)

    def closerange(low: int, high: int) -> None:
        for number in range(low, min(high, len(_STREAMS))):
            with suppress(OSError):
                close(number)
        low = max(low, len(_STREAMS))
        if low < high:  # an empty range may close all there are
            own_closerange(low, high)

    os.close, os.closerange = close, closerange
    try:
        yield
    finally:
        os.close, os.closerange = own_close, own_closerange


def _opened_anew(name: str, number: int) -> Any:
    return open(number, _STREAMS[name], closefd=False, errors="backslashreplace")


def _number_of(stream: Any) -> int | None:
    """The file descriptor of a stream, or None if it has none."""
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number


@contextmanager
def _own_signals() -> Iterator[None]:
    """Put back the handlers of signals, and end timers, whose signals would find none.

    Where the script handles what a user ends a program by, its handler is called, and then the one
    from before: the measurement is ended all the same.
    """
    before: Mapping[int, Handler] = {number: signal.getsignal(number) for number in _HANDLED}
    own_signal, own_getsignal, process = signal.signal, signal.getsignal, os.getpid()
    chosen: dict[int, Handler] = {}

    def set_handler(number: int, handler: Handler) -> Handler:
        then = before.get(number)
        is_ours = getattr(handler, "__module__", "").startswith("hotloop.")
        if number not in _ENDING or not callable(then) or is_ours or os.getpid() != process:
            chosen.pop(number, None)
            return own_signal(number, handler)
        had: Handler = get_handler(number)
        own_signal(number, _followed(handler, then))
        chosen[number] = handler
        return had

    def get_handler(number: int) -> Handler:
        handler: Handler = chosen[number] if number in chosen else own_getsignal(number)
        return handler

    signal.signal, signal.getsignal = set_handler, get_handler  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal, signal.getsignal = own_signal, own_getsignal
        changed = {n: each for n, each in before.items() if own_getsignal(n) is not each}
        with suppress(ValueError):  # on another thread than the main one nothing was changed
            for timer in _TIMERS if changed else ():
                signal.setitimer(timer, 0)
            for number, handler in changed.items():
                own_signal(number, handler)


def _followed(handler: Handler, then: Callable[[int, Any], Any]) -> Handler:
    if handler is then:
        return handler

    def both(number: int, frame: Any) -> None:
        if callable(handler):
            handler(number, frame)
        then(number, frame)

    return both
