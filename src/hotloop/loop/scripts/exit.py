"""The ways in which a script ends its process: each ends the script, and hotloop goes on.

A child that the script forks is a process of the script alone: it ends where the script does.
"""

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from hotloop.loop.conduct import StoppedByMeasurement
from hotloop.loop.lifetime import kill_with_parent

_PACKAGE = str(Path(__file__).parents[2]) + os.sep


@contextmanager
def own_process(on_exit: Callable[[int], NoReturn]) -> Iterator[None]:
    """Run a script in this process, and end what it forks where it leaves this context.

    on_exit: is called for `os._exit`, which would end hotloop with the script, in this process.
    A forked child is ended with its parent, so that a killed measurement leaves none.
    """
    global _driven
    process, end_at_once = os.getpid(), os._exit

    def exit_at_once(status: int) -> NoReturn:
        if os.getpid() != process:
            end_at_once(status)
        on_exit(status)

    _driven = process, threading.get_ident()
    os._exit = exit_at_once
    raised: BaseException | None = None
    try:
        yield
    except BaseException as error:
        raised = error
        raise
    finally:
        os._exit = end_at_once
        _driven = None
        if os.getpid() != process:
            _end_child(raised)


def _end_child(raised: BaseException | None) -> NoReturn:
    """End a forked child as the interpreter ends a script."""
    code = 0
    if isinstance(raised, SystemExit):
        if isinstance(raised.code, int):
            code = raised.code & 0xFF
        elif raised.code is not None:
            print(raised.code, file=sys.stderr)
            code = 1
    elif raised is not None and not isinstance(raised, StoppedByMeasurement):
        traceback.print_exception(type(raised), raised, _of_script(raised.__traceback__))
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _of_script(found: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is the script's own."""
    while found is not None and found.tb_frame.f_code.co_filename.startswith((_PACKAGE, "<frozen")):
        found = found.tb_next
    return found


_driven: tuple[int, int] | None = None
"""The process and the thread that run a script, while they do."""


def _after_fork_in_child() -> None:
    """Have a forked child end with its parent, if the script's own thread has forked it.

    The kernel asks whether the thread that forked is there, and a short-lived one is no reason.
    """
    global _driven
    if _driven is not None and _driven[1] == threading.get_ident():
        kill_with_parent()
        if os.getppid() != _driven[0]:
            os._exit(1)  # it ended before the kernel was asked
        _driven = os.getpid(), threading.get_ident()


os.register_at_fork(after_in_child=_after_fork_in_child)
