"""Writing a file whole: its old content, or all of the new one, whatever happens meanwhile."""

import contextlib
import glob
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from hotloop.errors import RunError

_ABANDONED_S = 300.0
_SHOWN_CHARACTERS = 40  # of the name; file systems limit its length


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to, and rename it to `path` when the block ends.

    Makes the folder. If the block raises, or the disk refuses, what stood at `path` stays as it
    was, and nothing else is left. What a killed process leaves, the next one that writes removes.
    Raises: OSError.
    """
    prefix = f".{path.name[:_SHOWN_CHARACTERS]}."
    scratch = path.with_name(f"{prefix}{os.getpid()}-{threading.get_native_id()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent, prefix)
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove what processes that ended while they wrote have left, if it is some minutes old.

    A process of another machine has no number here, but it does not write for so long.
    """
    for left in folder.glob(f"{glob.escape(prefix)}*-*"):
        numbers = left.name.removeprefix(prefix).split("-")
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            continue
        with contextlib.suppress(OSError):
            old = time.time() - left.stat().st_mtime > _ABANDONED_S
            if old and not psutil.pid_exists(int(numbers[0])):
                left.unlink()


@contextlib.contextmanager
def atomic_output(path: Path, failure: str, option: str) -> Iterator[Path]:
    """Do the same as `atomic_path` for a file that a user asked for.

    failure: how the message begins, such as "the report could not be written"; option: what names
    another place for it.
    Raises: RunError if it cannot be written.
    """
    try:
        with atomic_path(path) as scratch:
            yield scratch
    except OSError as error:
        raise RunError(
            f"{failure} as {path}: {error.strerror or error}. Free some room or name another "
            f"place with {option}"
        ) from error
