"""One tree of files laid over another: what is written goes to the upper tree, and is read from it.

A path of the script is made *canonical* first: absolute, without `.` and `..`, and with every
symbolic link followed as the two trees together show it. The system never follows a link of the
upper tree by itself, for that could lead it back into the real one. A canonical path is then found
in one of two places: in the upper tree, or else where it says, unless it is hidden there.

A path of the real tree that was deleted, or moved away, is hidden for good, with all that is in it.
The hidden paths are the lines of a log, which only grows: so the processes of a run share them.

`posix` holds the functions of the system as they are; those of `os` may be redirected.
"""

import errno
import os
import posix
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotloop.redirect.copying import copy_file, room_in

MAX_LINKS = 40  # of one path, as Linux has it
_END = b"\0"  # of a line of the log: the only byte that no path holds


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder in which paths are looked for."""

    base: str  # its canonical path, without a last slash
    above: str | None  # its path in the upper tree, if it is there
    is_hidden: bool  # in the real tree


class Overlay:
    """An upper tree in `folder`, over the real one.

    writable: folders and files that are not redirected, as are `folder` itself, devices, and the
    system's temporary folder. kept: a folder in that one which is redirected all the same.
    temporary: that of another process, if it is to be the same.
    """

    def __init__(
        self,
        folder: Path,
        writable: Sequence[Path] = (),
        kept: str | None = None,
        temporary: str | None = None,
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.upper = f"{self.folder}/files"
        self.staging = f"{self.folder}/staging"
        self.writable = [os.path.realpath(path) for path in writable]
        for made in (self.upper, self.staging):
            os.makedirs(made, exist_ok=True)  # noqa: PTH103
        self._kept = kept
        self._free = tuple(f"{path.rstrip('/')}/" for path in (self.folder, *self.writable))
        self._temporary = os.path.realpath(temporary or tempfile.gettempdir())
        self._free_unless_kept = (f"{self._temporary}/", "/dev/")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = posix.open(f"{self.folder}/hidden", flags, 0o600)
        self._read_bytes = 0  # of the log
        self._hidden: set[str] = set()
        self._folders: dict[str, _Folder] = {}  # by how they were written
        self._plain: dict[str, bool] = {}  # by folder, as it was written; see `is_plain`

    def settings(self) -> tuple[Path, list[Path], str | None, str]:
        """Return what another process makes the same overlay of."""
        writable = [Path(path) for path in self.writable]
        return Path(self.folder), writable, self._kept, self._temporary

    def close(self) -> None:
        """Give the log's file back."""
        posix.close(self._log)

    # -- where a path leads -------------------------------------------------------------------

    def is_free(self, canonical: str) -> bool:
        """Whether a path is not redirected."""
        inside = f"{canonical}/"
        if inside.startswith(self._free):
            return True
        kept = self._kept is not None and inside.startswith(f"{self._kept}/")
        return inside.startswith(self._free_unless_kept) and not kept

    def absolute(self, path: str, folder_fd: int | None = None) -> str:
        """Put the current folder, or that of a file descriptor, before a relative path."""
        if path.startswith("/"):
            return path
        if not path:
            raise os_error(errno.ENOENT)
        base = self.current_folder() if folder_fd is None else self.path_of(folder_fd)
        return f"{base}/{path}"

    def current_folder(self) -> str:
        """Return the current folder as the script knows it."""
        return self.wanted(posix.getcwd())

    def path_of(self, descriptor: int) -> str:
        """Return the canonical path of an open file, or what the system says of a pipe or socket.

        Raises: OSError for a descriptor that is not open.
        """
        posix.fstat(descriptor)
        return self.wanted(posix.readlink(f"/proc/self/fd/{descriptor}"))

    def wanted(self, physical: str) -> str:
        """Return where the script wanted a file that lies at a physical path."""
        if f"{physical}/".startswith(f"{self.upper}/"):
            return physical[len(self.upper) :] or "/"
        return physical

    def canonical(self, path: str, *, follow: bool = True) -> str:
        """Make an absolute path canonical; a last part that does not exist stays as it is.

        follow: whether a link that is the last part is followed.
        Raises: OSError as the system would: no such folder, not a folder, too many links.
        """
        return self.find(path, follow=follow)[0]

    def find(self, path: str, *, follow: bool = True) -> tuple[str, str | None]:
        """Return the canonical path of an absolute one, and its physical path, as `where` does.

        Raises: as `canonical`.
        """
        self._read_log()
        head, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            found = self._walk(path, follow=True)
            if name or self.status(found) is not None:
                self._expect_folder(found)
            return found, self.where(found)
        known = self._folders
        folder = known.get(head)
        if folder is None:
            folder = known[head] = self._folder(self._walk(head or "/", follow=True))
        joined = f"{folder.base}/{name}"
        where = joined
        if folder.above is not None:
            above = f"{folder.above}/{name}"
            if posix.access(above, posix.F_OK, follow_symlinks=False):
                where = above
            elif folder.is_hidden or joined in self._hidden:
                return joined, None
        elif folder.is_hidden:
            return joined, None
        if follow and _is_link(where):
            found = self._walk(joined, follow=True)
            return found, self.where(found)
        return joined, where

    def _folder(self, canonical: str) -> "_Folder":
        self._expect_folder(canonical)
        base = canonical.rstrip("/")
        if self.is_free(canonical):
            return _Folder(base, None, False)
        above = self.upper + base
        found = posix.access(above, posix.F_OK, follow_symlinks=False)
        return _Folder(base, above if found else None, self.is_hidden(canonical))

    def where(self, canonical: str) -> str | None:
        """Return the physical path of a canonical one; None if it was deleted.

        In the real tree, a path is returned whether it exists or not.
        """
        if self.is_free(canonical):
            return canonical
        above = self.upper + canonical
        if posix.access(above, posix.F_OK, follow_symlinks=False):
            return above
        return None if self.is_hidden(canonical) else canonical

    def is_plain(self, path: str) -> bool:
        """Whether the system finds what a path shows, if it is no link: the short way to read.

        So it is in a folder of which the upper tree has nothing, and nothing is hidden.
        """
        if posix.lseek(self._log, 0, os.SEEK_END) != self._read_bytes:
            self._read_log()
        folder, _, name = path.rpartition("/")
        known = self._plain
        plain = known.get(folder)
        if plain is None:
            plain = known[folder] = self._is_plain_folder(folder or "/", path)
        return plain and name not in ("", ".", "..")

    def _is_plain_folder(self, folder: str, path: str) -> bool:
        if not path.startswith("/"):
            folder = f"./{folder}"
        try:
            canonical = self.canonical(self.absolute(folder))
            if self.where(canonical) != canonical:
                return False
            found, real = posix.stat(folder), posix.stat(canonical)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (real.st_dev, real.st_ino)

    def forget_relative(self) -> None:
        """Look anew where relative paths lead: the current folder has changed."""
        self._plain = {}

    def status(self, canonical: str) -> os.stat_result | None:
        """Return what a canonical path is, or None if nothing is there; links are not followed."""
        where = self.where(canonical)
        return None if where is None else _lstat(where)

    def _walk(self, path: str, *, follow: bool) -> str:
        todo, at, links = path.split("/")[::-1], "/", 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            self._expect_folder(at)
            if name == "..":
                at = at.rpartition("/")[0] or "/"
                continue
            joined = f"{'' if at == '/' else at}/{name}"
            where = self.where(joined)
            if (follow or todo) and where is not None and _is_link(where):
                links += 1
                if links > MAX_LINKS:
                    raise os_error(errno.ELOOP)
                target = self.wanted(posix.readlink(where))
                if not _leads_to_no_path(where, target):
                    todo += target.split("/")[::-1]
                    at = "/" if target.startswith("/") else at
                    continue
            at = joined
        return at

    def _expect_folder(self, canonical: str) -> None:
        found = self.status(canonical)
        if found is None:
            raise os_error(errno.ENOENT)
        if not stat.S_ISDIR(found.st_mode):
            raise os_error(errno.ENOTDIR)

    # -- what is hidden -----------------------------------------------------------------------

    def is_hidden(self, canonical: str) -> bool:
        """Whether the real path, or a folder that it is in, was deleted."""
        if not self._hidden:
            return False
        while canonical:
            if canonical in self._hidden:
                return True
            canonical = canonical.rpartition("/")[0]
        return False

    def hide(self, canonical: str) -> None:
        """Hide a real path for good, if something is there."""
        if _lstat(canonical) is not None and not self.is_hidden(canonical):
            posix.write(self._log, os.fsencode(canonical) + _END)
            self._read_log()
        else:
            self.forget_folders()

    def forget_folders(self) -> None:
        """Have all processes look anew where paths lead: a folder or a link has changed."""
        posix.write(self._log, _END)

    def _read_log(self) -> None:
        # Several threads may, each as if it were alone: no lock, for a process that is forked
        # meanwhile would find it taken for ever.
        done = self._read_bytes  # before the size: another thread may go on from here
        size = posix.lseek(self._log, 0, os.SEEK_END)
        if size == done:
            return
        new = posix.pread(self._log, size - done, done)
        new = new[: new.rfind(_END) + 1]
        self._hidden.update(os.fsdecode(line) for line in new.split(_END) if line)
        # New ones: a thread that looks at a folder now notes what it finds among the old.
        self._folders, self._plain = {}, {}
        self._read_bytes = done + len(new)

    # -- bringing things up -------------------------------------------------------------------

    def expect_writable_folder(self, canonical: str) -> None:
        """Refuse, as the system would, to change the names in a folder. Raises: PermissionError."""
        self._expect_folder(canonical)
        where = self.where(canonical)
        assert where is not None
        if not posix.access(where, posix.W_OK | posix.X_OK):
            raise os_error(errno.EACCES)

    def bring_folder(self, canonical: str) -> str:
        """Make a visible folder, and those that it is in, in the upper tree; return its path."""
        above = self.upper + canonical
        if canonical == "/" or _lstat(above) is not None:
            return above
        parent = self.bring_folder(canonical.rpartition("/")[0] or "/")
        real = posix.stat(canonical)
        with room_in(parent):
            try:
                posix.mkdir(above, 0o700)
            except FileExistsError:  # another thread or process was faster
                return above
        posix.chmod(above, stat.S_IMODE(real.st_mode))
        posix.utime(above, ns=(real.st_atime_ns, real.st_mtime_ns))
        self.forget_folders()
        return above

    def bring(self, canonical: str, *, content: bool = True) -> str:
        """Have what is at a visible path in the upper tree, with its mode and times.

        content: whether that of a file is needed. Returns the physical path, of which nothing else
        is the owner: it may be written to.
        """
        where = self.where(canonical)
        assert where is not None
        if where != canonical or self.is_free(canonical):
            return where
        real = posix.lstat(canonical)
        if stat.S_ISDIR(real.st_mode):
            return self.bring_folder(canonical)
        above = self.upper + canonical
        with room_in(self.bring_folder(canonical.rpartition("/")[0] or "/")):
            copy_file(canonical, above, real, self.staging, content=content)
        return above

    def bring_tree(self, canonical: str) -> str:
        """Have a path in the upper tree with all that is in it. Returns its physical path."""
        above = self.bring(canonical)
        if not self.is_free(canonical) and stat.S_ISDIR(posix.lstat(above).st_mode):
            for name in self.names(canonical):
                self.bring_tree(f"{canonical}/{name}")
        return above

    def names(self, canonical: str) -> list[str]:
        """List a visible folder. Raises: OSError."""
        if self.is_free(canonical):
            return posix.listdir(canonical)
        above = self.upper + canonical
        here = posix.listdir(above) if _lstat(above) is not None else None
        if self.is_hidden(canonical) or (here is not None and not _is_folder(canonical)):
            if here is None:
                raise os_error(errno.ENOENT)
            return here
        base, known = "" if canonical == "/" else canonical, set(here or ())
        below = (name for name in posix.listdir(canonical) if name not in known)
        # The run's own folder is not shown: a script that empties the one that it is in goes on.
        paths = ((name, f"{base}/{name}") for name in below)
        shown = (name for name, at in paths if at not in self._hidden and at != self.folder)
        return [*(here or ()), *shown]

    # -- what was written ---------------------------------------------------------------------

    def written(self) -> Iterator[tuple[Path, Path]]:
        """List the files and links of the upper tree: where they were wanted, where they are."""
        todo = [self.upper]
        while todo:
            folder = todo.pop()
            for entry in posix.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    yield Path(self.wanted(entry.path)), Path(entry.path)

    def open_folders(self) -> None:
        """Let the owner delete the upper tree, whatever modes the script has given its folders."""
        todo = [self.upper]
        while todo:
            folder = todo.pop()
            posix.chmod(folder, stat.S_IMODE(posix.lstat(folder).st_mode) | stat.S_IRWXU)
            todo += [e.path for e in posix.scandir(folder) if e.is_dir(follow_symlinks=False)]


def os_error(number: int) -> OSError:
    """Return the error that the system raises with this number; the caller names the file."""
    return OSError(number, os.strerror(number))


def _lstat(path: str) -> os.stat_result | None:
    try:
        return posix.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_link(path: str) -> bool:
    found = _lstat(path)
    return found is not None and stat.S_ISLNK(found.st_mode)


def _is_folder(path: str) -> bool:
    found = _lstat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _leads_to_no_path(link: str, target: str) -> bool:
    """Whether it is one of the links of /proc that lead to a pipe, a socket and the like."""
    if not link.startswith("/proc/") or target.startswith("/"):
        return False
    return _lstat(f"{link.rpartition('/')[0]}/{target}") is None
