"""The functions of Python that take a path of a file, as they are while a run is redirected.

They take what those of `os` and `io` take, and return and raise what they would: also the names in
errors are the script's own, not those of the places to which it was led.
"""

import os
import posix
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from hotloop.redirect import operations
from hotloop.redirect.copying import open_file
from hotloop.redirect.entries import Entries
from hotloop.redirect.overlay import Overlay

Function = Callable[..., Any]
READING = ("r", "rb", "rt")
NO_FOLLOWING = ("lstat", "readlink", "lchown")
LOOKING = ("statvfs", "getxattr", "listxattr", "pathconf")
CHANGING = ("chmod", "chown", "lchown", "utime", "setxattr", "removexattr")
MAKING = ("mkdir", "mkfifo", "mknod")
RENAMING = ("rename", "replace")
REMOVING = {
    "unlink": operations.remove_file,
    "remove": operations.remove_file,
    "rmdir": operations.remove_folder,
}
OF_DESCRIPTORS = {"fchmod": "chmod", "fchown": "chown"}


class Functions:
    """The functions that go through one overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._thread = threading.local()

    @property
    def opening(self) -> bool:
        """Whether this thread is opening a file whose path is redirected already."""
        return getattr(self._thread, "opening", False)

    def table(self) -> Mapping[Function, Function]:
        """Return what stands for each function of the system."""
        named: dict[str, Function] = {
            **{name: partial(self._look, name) for name in LOOKING},
            **{name: partial(self._change, name) for name in CHANGING},
            **{name: partial(self._make, name) for name in MAKING},
            **dict.fromkeys(RENAMING, self._rename),
            **{name: partial(self._remove, call) for name, call in REMOVING.items()},
            **{name: partial(self._change, of) for name, of in OF_DESCRIPTORS.items()},
            "access": self._access,
            "chdir": self._chdir,
            "getcwd": self._overlay.current_folder,
            "getcwdb": lambda: os.fsencode(self._overlay.current_folder()),
            "link": self._link,
            "listdir": self._listdir,
            "open": self._open_descriptor,
            "readlink": self._readlink,
            "fchdir": self._chdir,
            "lstat": self._lstat,
            "scandir": self._scandir,
            "stat": self._stat,
            "symlink": self._symlink,
            "truncate": self._truncate,
        }
        # Not every system has each of them.
        calls = {getattr(posix, n): call for n, call in named.items() if hasattr(posix, n)}
        return {**calls, open_file: self._open}

    # -- opening ------------------------------------------------------------------------------

    def _open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[Any, int], int] | None = None,
    ) -> Any:
        rest = (buffering, encoding, errors, newline, closefd)
        if isinstance(file, int):
            return open_file(file, mode, *rest, opener)
        if opener is None and mode in READING:
            where = file if self._is_plain(file) else self._place_to_read(file)
            if where == file:
                return open_file(file, mode, *rest)
        # The file keeps the script's name for it.
        return self._open_by(self._open_new if opener is None else opener, file, mode, *rest)

    def _place_to_read(self, file: Any) -> str:
        return operations.place_of(self._overlay, self._absolute(file))

    def _open_new(self, path: Any, flags: int) -> int:
        return self._open_descriptor(path, flags, 0o666)

    def _open_by(self, opener: Callable[[Any, int], int], file: Any, mode: str, *rest: Any) -> Any:
        def open_outside(path: Any, flags: int) -> int:
            with self._is_opening(False):
                return opener(path, flags)

        with self._is_opening(True):
            return open_file(file, mode, *rest, opener=open_outside)

    @contextmanager
    def _is_opening(self, now: bool) -> Iterator[None]:
        before = self.opening
        self._thread.opening = now
        try:
            yield
        finally:
            self._thread.opening = before

    def _open_descriptor(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        absolute = self._absolute(path, dir_fd)
        return posix.open(operations.place_to_open(self._overlay, absolute, flags), flags, mode)

    # -- looking ------------------------------------------------------------------------------

    def _stat(self, path: Any, **named: Any) -> os.stat_result:
        if not named and type(path) is str and self._overlay.is_plain(path):
            found = posix.lstat(path)
            if not stat.S_ISLNK(found.st_mode):
                return found
        return self._look("stat", path, **named)  # type: ignore[no-any-return]

    def _lstat(self, path: Any, **named: Any) -> os.stat_result:
        if not named and type(path) is str and self._overlay.is_plain(path):
            return posix.lstat(path)
        return self._look("lstat", path, **named)  # type: ignore[no-any-return]

    def _is_plain(self, path: Any) -> bool:
        if type(path) is not str or not self._overlay.is_plain(path):
            return False
        try:
            return not stat.S_ISLNK(posix.lstat(path).st_mode)
        except FileNotFoundError:
            return True  # which the system will say again

    def _look(self, name: str, /, path: Any = None, *rest: Any, **named: Any) -> Any:
        look = getattr(posix, name)
        if isinstance(path, int):
            return look(path, *rest, **named)
        absolute = self._absolute("." if path is None else path, named.pop("dir_fd", None))
        follow = name not in NO_FOLLOWING and named.get("follow_symlinks", True)
        return look(operations.place_of(self._overlay, absolute, follow=follow), *rest, **named)

    def _access(self, path: Any, mode: int, **named: Any) -> bool:
        try:
            return bool(self._look("access", path, mode, **named))
        except OSError:
            return False

    def _readlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        target = self._overlay.wanted(self._look("readlink", path, dir_fd=dir_fd))
        return _like(path, target)

    def _listdir(self, path: Any = None) -> Any:
        names = self._overlay.names(self._folder(path))
        return [_like(path, name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = None) -> Entries:
        shown = "" if isinstance(path, int) else os.fspath("." if path is None else path)
        canonical = self._folder(path)
        names = self._overlay.names(canonical)
        status = partial(self._look, "stat", dir_fd=path if isinstance(path, int) else None)
        base = "" if canonical == "/" else canonical
        return Entries(
            ((name, self._overlay.where(f"{base}/{name}") or "") for name in names), shown, status
        )

    def _folder(self, path: Any) -> str:
        if isinstance(path, int):
            return self._overlay.path_of(path)
        return self._overlay.canonical(self._absolute("." if path is None else path))

    def _chdir(self, path: Any) -> None:
        self._overlay.forget_relative()
        if isinstance(path, int):
            return posix.chdir(path)
        canonical = self._overlay.canonical(self._absolute(path))
        where = operations.place_of(self._overlay, canonical)
        # What opens files by itself, beside Python, finds those of the real folder.
        in_both = where != canonical and not self._overlay.is_hidden(canonical)
        real = in_both and posix.access(canonical, posix.F_OK)
        return posix.chdir(canonical if real else where)

    # -- changing -----------------------------------------------------------------------------

    def _change(self, name: str, /, path: Any, *rest: Any, **named: Any) -> Any:
        change = getattr(posix, name)
        follow = name not in NO_FOLLOWING and named.get("follow_symlinks", True)
        if isinstance(path, int):
            absolute = self._overlay.path_of(path)
            is_path = absolute.startswith("/") and self._overlay.status(absolute) is not None
            if not is_path or self._overlay.is_free(absolute):
                return change(path, *rest, **named)
        else:
            absolute = self._absolute(path, named.pop("dir_fd", None))
        place = operations.place_to_change(self._overlay, absolute, follow=follow)
        return change(place, *rest, **named)

    def _truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            return posix.truncate(path, length)
        absolute = self._absolute(path)
        return posix.truncate(
            operations.place_to_open(self._overlay, absolute, os.O_WRONLY), length
        )

    def _make(self, name: str, /, path: Any, *rest: Any, **named: Any) -> None:
        absolute = self._absolute(path, named.pop("dir_fd", None))
        place = operations.place_to_make(self._overlay, absolute, is_folder=name == "mkdir")
        getattr(posix, name)(place, *rest, **named)

    def _remove(
        self, call: Callable[[Overlay, str], None], /, path: Any, *, dir_fd: int | None = None
    ) -> None:
        call(self._overlay, self._absolute(path, dir_fd))

    def _rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        source, target = self._absolute(src, src_dir_fd), self._absolute(dst, dst_dir_fd)
        operations.rename(self._overlay, source, target)

    def _link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        source, target = self._absolute(src, src_dir_fd), self._absolute(dst, dst_dir_fd)
        # The system's link, without a folder's descriptor, follows none whatever it is told.
        follow = follow_symlinks and not (src_dir_fd is None and dst_dir_fd is None)
        operations.link(self._overlay, source, target, follow=follow)

    def _symlink(
        self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        place = operations.place_to_make(self._overlay, self._absolute(dst, dir_fd))
        posix.symlink(src, place, target_is_directory)

    def _absolute(self, path: Any, folder_fd: int | None = None) -> str:
        text = path if type(path) is str else os.fsdecode(path)
        if text.startswith("/"):
            return text
        return self._overlay.absolute(text, folder_fd)


def _like(path: Any, text: str) -> Any:
    return os.fsencode(text) if isinstance(path, bytes) else text
