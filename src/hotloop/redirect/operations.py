"""The system's operations on files, as an overlay has them: by canonical path, with its errors.

Each acts on the upper tree alone. Where it would change something of the real tree, that is brought
to the upper tree first, or hidden.
"""

import errno
import os
import posix
import shutil
import stat
from collections.abc import Callable

from hotloop.redirect.overlay import Overlay, os_error

_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_WRITING = os.O_WRONLY | os.O_RDWR


def place_of(overlay: Overlay, path: str, *, follow: bool = True) -> str:
    """Return the physical path of what is to be looked at. Raises: FileNotFoundError."""
    where = overlay.find(path, follow=follow)[1]
    if where is None:
        raise os_error(errno.ENOENT)
    return where


def place_to_change(
    overlay: Overlay, path: str, *, follow: bool = True, content: bool = True
) -> str:
    """Return the physical path of a copy that may be changed. Raises: OSError."""
    canonical = overlay.canonical(path, follow=follow)
    if overlay.status(canonical) is None:
        raise os_error(errno.ENOENT)
    return overlay.bring(canonical, content=content)


def place_to_make(overlay: Overlay, path: str, *, is_folder: bool = False) -> str:
    """Return the physical path for something new, in a folder that is there. Raises: OSError."""
    canonical = overlay.canonical(path, follow=False)
    if overlay.status(canonical) is not None:
        raise os_error(errno.EEXIST)
    if path.endswith("/") and not is_folder:
        raise os_error(errno.ENOENT)
    return _place_in_folder(overlay, canonical)


def place_to_open(overlay: Overlay, path: str, flags: int) -> str:
    """Return the physical path at which a file is opened with these flags. Raises: OSError."""
    exclusive = flags & os.O_CREAT and flags & os.O_EXCL
    follow = not (exclusive or flags & os.O_NOFOLLOW)
    canonical, where = overlay.find(path, follow=bool(follow))
    if overlay.is_free(canonical):
        return canonical
    if not flags & (_CHANGING | os.O_CREAT):
        if where is None:
            raise os_error(errno.ENOENT)
        return where
    if flags & os.O_CREAT and path.endswith("/"):
        raise os_error(errno.EISDIR)
    found = overlay.status(canonical)
    if found is None or where is None:
        if not flags & os.O_CREAT:
            raise os_error(errno.ENOENT)
        return _place_in_folder(overlay, canonical)
    if exclusive:
        raise os_error(errno.EEXIST)
    if flags & os.O_NOFOLLOW and stat.S_ISLNK(found.st_mode):
        raise os_error(errno.ELOOP)
    return _place_to_write(overlay, canonical, where, flags, posix.stat(where).st_mode)


def remove_file(overlay: Overlay, path: str) -> None:
    """Remove a file or a link. Raises: OSError."""
    canonical = overlay.canonical(path, follow=False)
    if overlay.is_free(canonical):
        return posix.unlink(canonical)
    found = overlay.status(canonical)
    if found is None:
        raise os_error(errno.ENOENT)
    if stat.S_ISDIR(found.st_mode):
        raise os_error(errno.EISDIR)
    overlay.expect_writable_folder(_folder_of(canonical))
    _remove(overlay, canonical, posix.unlink)
    return None


def remove_folder(overlay: Overlay, path: str) -> None:
    """Remove an empty folder. Raises: OSError."""
    if path.rpartition("/")[2] == ".":
        raise os_error(errno.EINVAL)
    canonical = overlay.canonical(path, follow=False)
    if overlay.is_free(canonical):
        return posix.rmdir(canonical)
    found = overlay.status(canonical)
    if found is None:
        raise os_error(errno.ENOENT)
    if not stat.S_ISDIR(found.st_mode):
        raise os_error(errno.ENOTDIR)
    if overlay.names(canonical):
        raise os_error(errno.ENOTEMPTY)
    overlay.expect_writable_folder(_folder_of(canonical))
    _remove(overlay, canonical, posix.rmdir)
    return None


def rename(overlay: Overlay, source: str, target: str) -> None:
    """Rename a file, a link or a folder, also over what is there. Raises: OSError."""
    old = overlay.canonical(source, follow=False)
    new = overlay.canonical(target, follow=False)
    if {source.rpartition("/")[2], target.rpartition("/")[2]} & {".", ".."}:
        raise os_error(errno.EBUSY)
    if overlay.is_free(old) and overlay.is_free(new):
        return posix.rename(old, new)
    moved, there = overlay.status(old), overlay.status(new)
    if moved is None:
        raise os_error(errno.ENOENT)
    for folder in (_folder_of(old), _folder_of(new)):
        overlay.expect_writable_folder(folder)
    if target.endswith("/") and not stat.S_ISDIR(moved.st_mode):
        raise os_error(errno.ENOTDIR)
    _expect_replaceable(overlay, old, new, moved, there)
    same = there is not None and (there.st_dev, there.st_ino) == (moved.st_dev, moved.st_ino)
    if old == new or same:  # two names of one file, which both stay
        return None
    physical = overlay.bring_tree(old)
    place = _place_in_folder(overlay, new)
    _move(physical, place)
    for canonical, status in ((old, moved), (new, there)):
        if not overlay.is_free(canonical) and status is not None:
            overlay.hide(canonical)
    return None


def link(overlay: Overlay, source: str, target: str, *, follow: bool) -> None:
    """Give a file a second name. Raises: OSError."""
    old = overlay.canonical(source, follow=follow)
    found = overlay.status(old)
    if found is None:
        raise os_error(errno.ENOENT)
    new = overlay.canonical(target, follow=False)
    if overlay.status(new) is not None:
        raise os_error(errno.EEXIST)
    if stat.S_ISDIR(found.st_mode):
        raise os_error(errno.EPERM)
    if target.endswith("/"):
        raise os_error(errno.ENOENT)
    place = _place_in_folder(overlay, new)
    physical = overlay.bring(old)
    try:
        posix.link(physical, place, follow_symlinks=False)
    except OSError as error:
        # The run's folder may be on another file system than the script's two names are.
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(physical, place, follow_symlinks=False)


def _place_in_folder(overlay: Overlay, canonical: str) -> str:
    if overlay.is_free(canonical):
        return canonical
    folder = _folder_of(canonical)
    overlay.expect_writable_folder(folder)
    return f"{overlay.bring_folder(folder).rstrip('/')}/{_name_of(canonical)}"


def _place_to_write(overlay: Overlay, canonical: str, where: str, flags: int, st_mode: int) -> str:
    if stat.S_ISDIR(st_mode):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            return overlay.bring_folder(canonical)
        raise os_error(errno.EISDIR)
    if not stat.S_ISREG(st_mode) or not flags & _CHANGING:
        return where  # a device, a pipe; or a file that is only to be there
    if not posix.access(where, posix.W_OK):
        raise os_error(errno.EACCES)
    return overlay.bring(canonical, content=not flags & os.O_TRUNC)


def _remove(overlay: Overlay, canonical: str, remove: Callable[[str], None]) -> None:
    # The folder's own time changes, as it would.
    above = f"{overlay.bring_folder(_folder_of(canonical)).rstrip('/')}/{_name_of(canonical)}"
    overlay.hide(canonical)
    try:
        remove(above)
    except FileNotFoundError:  # it was in the real tree alone
        posix.utime(above.rpartition("/")[0])


def _expect_replaceable(
    overlay: Overlay,
    old: str,
    new: str,
    moved: os.stat_result,
    there: os.stat_result | None,
) -> None:
    is_folder = stat.S_ISDIR(moved.st_mode)
    if is_folder and new.startswith(f"{old}/"):
        raise os_error(errno.EINVAL)
    if old.startswith(f"{new}/"):
        raise os_error(errno.ENOTEMPTY)
    if there is None or old == new:
        return
    if is_folder and not stat.S_ISDIR(there.st_mode):
        raise os_error(errno.ENOTDIR)
    if not is_folder and stat.S_ISDIR(there.st_mode):
        raise os_error(errno.EISDIR)
    if is_folder and overlay.names(new):
        raise os_error(errno.ENOTEMPTY)


def _move(physical: str, place: str) -> None:
    try:
        posix.rename(physical, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if stat.S_ISDIR(posix.lstat(physical).st_mode) and posix.access(place, posix.F_OK):
            posix.rmdir(place)  # else it would be moved into it
        shutil.move(physical, place)


def _folder_of(canonical: str) -> str:
    return canonical.rpartition("/")[0] or "/"


def _name_of(canonical: str) -> str:
    return canonical.rpartition("/")[2]
