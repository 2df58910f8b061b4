"""The entries of a folder that lies in two trees, as `os.scandir` gives them."""

import os
import posix
import stat
from collections.abc import Callable, Generator, Iterator
from typing import Any


class Entry:
    """One name in a folder: the questions that an `os.DirEntry` answers."""

    __slots__ = ("_place", "_status", "name", "path")

    def __init__(self, name: Any, path: Any, place: str, status: Callable[..., Any]) -> None:
        self.name = name
        self.path = path
        self._place = place
        self._status = status

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._is(stat.S_ISLNK, follow=False)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder, or a link to one."""
        return self._is(stat.S_ISDIR, follow=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._is(stat.S_ISREG, follow=follow_symlinks)

    def is_junction(self) -> bool:
        """Whether it is a junction: there are none on this system."""
        return False

    def inode(self) -> int:
        """Return its number in the file system."""
        return posix.lstat(self._place).st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its status. Raises: OSError."""
        status: os.stat_result = self._status(self.path, follow_symlinks=follow_symlinks)
        return status

    def _is(self, kind: Callable[[int], bool], *, follow: bool) -> bool:
        try:
            mode = posix.lstat(self._place).st_mode
            if follow and stat.S_ISLNK(mode):
                mode = self._status(self.path).st_mode
        except FileNotFoundError:  # meanwhile removed, or a link to nothing
            return False
        return kind(mode)


class Entries:
    """The iterator over a folder's entries; it can be closed, and used in a `with` statement."""

    def __init__(
        self, places: Iterator[tuple[str, str]], folder: Any, status: Callable[..., Any]
    ) -> None:
        encode = os.fsencode if isinstance(folder, bytes) else str
        self._entries: Generator[Entry, None, None] = (
            Entry(encode(name), os.path.join(folder, encode(name)), place, status)  # noqa: PTH118
            for name, place in places
        )

    def __iter__(self) -> "Entries":
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give no more entries."""
        self._entries.close()
