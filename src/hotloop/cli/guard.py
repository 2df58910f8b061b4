"""The frame of every verb: errors become one clear message, and no process is left behind."""

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import psutil

from hotloop.errors import HotloopError, SettingError
from hotloop.loop.control import leave_inherited_control
from hotloop.results.user_frames import user_frames

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def guarded(verb: Callable[[], int]) -> int:
    """Run a verb; turn what it raises into a message and an exit code; end child processes."""
    leave_inherited_control()
    show_log()
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        return verb()
    except KeyboardInterrupt:
        print("hotloop: interrupted", file=sys.stderr)
        return INTERRUPTED
    except HotloopError as error:
        print(f"hotloop: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, SettingError) else FAILED
    except BrokenPipeError:
        # The reader of our output is gone; without this the interpreter's last flush fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit:
        raise
    except BaseException as error:  # a script may raise any
        print_foreign_error(error)
        return 1
    finally:
        end_children()


def show_log(level: int = logging.INFO) -> None:
    """Show what hotloop's own log says, from a level on, on standard error."""
    log = logging.getLogger("hotloop")
    log.setLevel(level)
    if not any(isinstance(handler, _ToStandardError) for handler in log.handlers):
        handler = _ToStandardError()
        handler.setFormatter(logging.Formatter("hotloop: %(message)s"))
        log.addHandler(handler)


class _ToStandardError(logging.Handler):
    """Writes where `sys.stderr` points at that time: it may be redirected."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        print(self.format(record), file=sys.stderr)


def print_foreign_error(error: BaseException) -> None:
    """Print an error of the user's code: its type, message, notes, and where in that code."""
    frames = user_frames(error)
    # Where none of the frames is the user's, the fault is ours, and so are the frames to show.
    raised = "the loop raised" if frames else "an internal error:"
    frames = frames or list(traceback.extract_tb(error.__traceback__))
    print(f"hotloop: {raised} {type(error).__name__}: {error}", file=sys.stderr)
    for note in getattr(error, "__notes__", []):
        print(f"  {note}", file=sys.stderr)
    print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
    if error.__cause__ is not None:  # a worker's traceback is the cause
        print(f"caused by {type(error.__cause__).__name__}: {error.__cause__}", file=sys.stderr)


def end_children(grace_s: float = 2.0) -> None:
    """End every process that the loop has started and left running."""
    _let_owners_end_theirs(5 * grace_s)
    with contextlib.suppress(psutil.Error):
        spared = _resource_tracker_pid()
        children = [c for c in psutil.Process().children(recursive=True) if c.pid != spared]
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.terminate()
        _, alive = psutil.wait_procs(children, timeout=grace_s)
        for child in alive:
            with contextlib.suppress(psutil.Error):
                child.kill()


def _let_owners_end_theirs(patience_s: float) -> None:
    """Let loaders and pools end their workers in order, as they do when a script ends by itself.

    A pool starts new workers in place of those that are gone, and a worker that is killed may hold
    a lock that its owner waits for, or leave its folder of sockets.
    """
    if "multiprocessing.util" not in sys.modules:
        return
    # Not longer than patience: a worker may never answer. What is left is ended by signals then.
    ending = threading.Thread(target=_end_owners, name="hotloop-end-owners", daemon=True)
    ending.start()
    ending.join(patience_s)


def _end_owners() -> None:
    with contextlib.suppress(Exception):
        gc.collect()  # a loader ends its workers when it is deleted
        # What the interpreter calls when it ends: those of pools and managers.
        sys.modules["multiprocessing.util"]._run_finalizers(0)


def leave(code: int) -> int:
    """End the process now if a thread of the loop would keep it; else return the code.

    The interpreter waits for such threads for ever, and nobody can ask them to stop.
    """
    if any(t is not threading.main_thread() and not t.daemon for t in threading.enumerate()):
        leave_now(code)
    return code


def leave_now(code: int) -> NoReturn:
    """End the process without taking its modules down, which takes a second where torch is."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _resource_tracker_pid() -> int | None:
    """The process that unlinks the loop's shared memory once all others have ended."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return getattr(getattr(module, "_resource_tracker", None), "_pid", None)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _forget_in_child() -> None:
    """Let a signal end a forked worker, in place of an exception in the middle of our code."""
    if signal.getsignal(signal.SIGTERM) is _as_interrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_in_child)
