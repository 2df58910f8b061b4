"""What stands around every verb: errors as one clear message, and nothing left behind."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psutil

from hotloop.errors import HotloopError
from hotloop.loop.arm import leave_inherited_board

INTERRUPTED = 130
_PACKAGE = str(Path(__file__).parents[1])


def guarded(verb: Callable[[], int]) -> int:
    """Run a verb; turn what it raises into a message and an exit code; end child processes."""
    leave_inherited_board()
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        return verb()
    except KeyboardInterrupt:
        print("hotloop: interrupted", file=sys.stderr)
        return INTERRUPTED
    except HotloopError as error:
        print(f"hotloop: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has gone; do not let the interpreter fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        print_foreign_error(error)
        return 1
    finally:
        end_children()


def print_foreign_error(error: Exception) -> None:
    """An error from the user's own code: its type, message, notes, and where in that code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen"))
    ]
    print(f"hotloop: the loop raised {type(error).__name__}: {error}", file=sys.stderr)
    for note in getattr(error, "__notes__", []):
        print(f"  {note}", file=sys.stderr)
    print("".join(traceback.format_list(frames)), end="", file=sys.stderr)


def end_children(grace_s: float = 2.0) -> None:
    """End every process that the loop has started and left running."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.terminate()
        _, alive = psutil.wait_procs(children, timeout=grace_s)
        for child in alive:
            with contextlib.suppress(psutil.Error):
                child.kill()


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
