"""Copies of files that appear whole or not at all, and leave the times of folders alone."""

import os
import posix
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

open_file: Any = open  # as it is now, for it may be redirected
_copies = count()


@contextmanager
def room_in(folder: str) -> Iterator[None]:
    """Let a copy appear in a folder, whose times and mode stay: it is no change by the script."""
    before = posix.stat(folder)
    mode = stat.S_IMODE(before.st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        posix.chmod(folder, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        posix.chmod(folder, mode)
        posix.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def copy_file(
    source: str, target: str, status: os.stat_result, staging: str, *, content: bool = True
) -> None:
    """Copy a file or a link with its mode and times; where the target exists already, leave it.

    staging: a folder of the same file system. content: whether that of a file is copied.
    """
    staged = f"{staging}/{posix.getpid()}-{next(_copies)}"
    try:
        if stat.S_ISLNK(status.st_mode):
            posix.symlink(posix.readlink(source), staged)
        elif not stat.S_ISREG(status.st_mode):
            posix.mknod(staged, status.st_mode, status.st_rdev)
        else:
            descriptor = posix.open(staged, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open_file(descriptor, "wb") as to:
                if content:
                    with open_file(source, "rb") as of:
                        shutil.copyfileobj(of, to, 1 << 20)
            posix.chmod(staged, stat.S_IMODE(status.st_mode))
        times = (status.st_atime_ns, status.st_mtime_ns)
        posix.utime(staged, ns=times, follow_symlinks=False)
        # A link, not a rename: another thread or process may have copied it, and written to it.
        with suppress(FileExistsError):
            posix.link(staged, target, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            posix.unlink(staged)
