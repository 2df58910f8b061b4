"""What the interpreter tells of every file that is opened or changed, and of every process started.

A library may hold functions of the system that could not be replaced. Python reports their calls
to an audit hook: what would change the real tree is refused there, for it cannot be led elsewhere.
A hook cannot be taken away again, so there is one, which does nothing while nobody listens.
"""

import os
import posix
import shlex
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hotloop.errors import RedirectError
from hotloop.redirect.functions import Functions
from hotloop.redirect.overlay import Overlay

Listener = Callable[[str, tuple[Any, ...]], None]
# By event: at which places of its arguments a path and the file descriptor of its folder stand.
CHANGES: Mapping[str, tuple[tuple[int, int | None], ...]] = {
    "os.chflags": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((1, 3),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.removexattr": ((0, None),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.setxattr": ((0, None),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
}
# Those that change what a link leads to, not the link.
FOLLOWING = ("os.chmod", "os.chown", "os.setxattr", "os.removexattr", "os.truncate", "os.utime")
# By event: at which place of its arguments the program stands.
STARTS = {"subprocess.Popen": 1, "os.system": 0, "os.exec": 0, "os.posix_spawn": 0}
# All that is judged. Python reports much else, as each `id(…)` of a library.
HEARD = frozenset({"open", *CHANGES, *STARTS, "sqlite3.connect", "socket.bind"})
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


class Audit:
    """Refuses what would change the real tree, and notes which programs are started."""

    def __init__(self, overlay: Overlay, functions: Functions, notices: list[str]) -> None:
        self._overlay = overlay
        self._functions = functions
        self._notices = notices

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge one event. Raises: RedirectError."""
        if event == "open":
            self._hear_open(*arguments)
        elif event in CHANGES:
            for path, folder in CHANGES[event]:
                known = None if folder is None else arguments[folder]
                follow = event in FOLLOWING
                self._expect_free(event, arguments[path], known, follow=follow)
        elif event in STARTS:
            self._note_start(arguments[STARTS[event]])
        elif event == "sqlite3.connect":
            self._hear_connect(arguments[0])
        elif event == "socket.bind" and arguments[0].family == socket.AF_UNIX:
            self._hear_bind(arguments[1])

    def _hear_open(self, path: Any, _mode: str | None, flags: int) -> None:
        if not flags & (_CHANGING | os.O_CREAT) or self._functions.opening:
            return
        if flags & _CHANGING or not posix.access(path, posix.F_OK):
            self._expect_free("open", path)

    def _hear_connect(self, database: Any) -> None:
        text = os.fsdecode(database)
        if text not in ("", ":memory:") and not text.startswith("file:"):
            self._expect_free("sqlite3.connect", text)

    def _hear_bind(self, address: Any) -> None:
        name = os.fsdecode(address)
        if name and not name.startswith("\0"):
            self._expect_free("socket.bind", name)

    def _expect_free(
        self, event: str, path: Any, folder_fd: int | None = None, *, follow: bool = True
    ) -> None:
        if isinstance(path, int):
            return
        text = os.fsdecode(path)
        # Those that an overlay has made are canonical, and no link of its tree is followed there.
        if text.startswith(f"{self._overlay.folder}/") and ".." not in text:
            return
        known = folder_fd if folder_fd is not None and folder_fd >= 0 else None
        found = _in_system(text, known, follow=follow)
        if found is not None and not self._overlay.is_free(found) and not _is_special(found):
            raise RedirectError(
                f"{text}: {event} would change this path beside the functions that "
                "are redirected, and in a throw-away run nothing of the user's is changed; call "
                "it by its name in os, or name the path as one that may be written"
            )

    def _note_start(self, program: Any) -> None:
        words = shlex.split(program) if isinstance(program, str) else program
        first = words if isinstance(words, bytes | os.PathLike) else next(iter(words), "")
        name = os.path.basename(os.fsdecode(first))  # noqa: PTH119
        notice = f"The script started another program, {name}: the files it writes are not moved."
        if notice not in self._notices:
            self._notices.append(notice)


def listen(listener: Listener | None) -> None:
    """Have the events of this process judged from now on, or no longer."""
    global _listener, _is_added
    _listener = listener
    if listener is not None and not _is_added:
        _is_added = True
        sys.addaudithook(_hook)


_listener: Listener | None = None
_is_added = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in HEARD and _listener is not None:
        _listener(event, arguments)


def _in_system(path: str, folder_fd: int | None, *, follow: bool) -> str | None:
    """Return where a path leads without any overlay; None if it is in no folder that is there.

    follow: whether a link that is its last part is followed.
    """
    head, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        head, name = path, ""
    try:
        if follow and stat.S_ISLNK(posix.lstat(path, dir_fd=folder_fd).st_mode):
            target = posix.readlink(path, dir_fd=folder_fd)
            if target.startswith("/"):
                return _in_system(target, None, follow=True)
            return _in_system(f"{path.rpartition('/')[0] or '.'}/{target}", folder_fd, follow=True)
    except FileNotFoundError:
        pass  # it is to be made
    except OSError:
        return None
    at = head or ("/" if path.startswith("/") else ".")
    try:
        folder = posix.open(at, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return None
    try:
        at = posix.readlink(f"/proc/self/fd/{folder}")
        return f"{at.rstrip('/')}/{name}" if name else at
    finally:
        posix.close(folder)


def _is_special(path: Any) -> bool:
    """Whether it is a device, a pipe or a socket."""
    try:
        mode = posix.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
