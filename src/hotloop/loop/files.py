"""Writing a file whole: its old content, or all of the new one, whatever happens meanwhile."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from hotloop.errors import RunError

_SHOWN_CHARACTERS = 40  # of the name; file systems limit its length


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to, and rename it to `path` when the block ends.

    Makes the folder. If the block raises, or the disk refuses, what stood at `path` stays as it
    was, and nothing else is left.
    Raises: OSError.
    """
    name = f".{path.name[:_SHOWN_CHARACTERS]}.{os.getpid()}-{threading.get_native_id()}"
    scratch = path.with_name(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


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
