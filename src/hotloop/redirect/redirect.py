"""The context in which a script runs without changing anything that its user has."""

import os
import posix
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from hotloop.errors import SettingError
from hotloop.redirect import audit
from hotloop.redirect.children import Invitation, invite_spawned, own_folder_of_sockets
from hotloop.redirect.databases import redirect_databases
from hotloop.redirect.functions import Functions
from hotloop.redirect.libraries import redirect_libraries
from hotloop.redirect.overlay import Overlay
from hotloop.redirect.replacing import Replacements, Replacing
from hotloop.redirect.trackers import environment, turn_off


class Redirect:
    """A context in which this process, and what it forks, leave the user's files as they are.

    A file that is written lies under `folder`, and whoever looks for it where it was wanted finds
    it: the folder is laid over the real tree, also for what is renamed, deleted or linked. What is
    not redirected: `folder`, the paths in `writable`, devices, pipes, sockets, and the system's
    temporary folder, except for the current folder if that lies in it.

    Covered are Python's own functions, and the libraries that open files in compiled code as far as
    `libraries.CALLS` and `databases` name them. A call beside those that Python reports is refused
    (RedirectError, which is a PermissionError). Experiment trackers are off or write to `folder`,
    and uploads to the Hugging Face hub are answered without being made.

    Forked processes are covered, and those that `multiprocessing` or joblib spawn, if hotloop can
    be imported in them. Not covered: other programs that the script starts, which a notice names;
    Ray's workers; compiled code that opens files by itself and is not in the tables.

    folder: an empty one, which the caller makes and removes. writable: folders and files.
    A file of the real tree that has several names (hard links) has one that is changed and others
    that are not. Modules that the script writes and then imports are not found.
    Raises: SettingError if `folder` is none, or on entering while another one is active.
    """

    notices: list[str]
    """Sentences for the first lines of a report; more are added while the script runs."""

    def __init__(self, folder: Path, *, writable: Sequence[Path] = ()) -> None:
        if not folder.is_dir():
            raise SettingError(f"folder: expected a folder that is there, got {folder}; make it")
        self.folder = folder
        self.writable = tuple(writable)
        self.notices = []
        self._files: dict[Path, Path] = {}
        self._overlay: Overlay | None = None  # while active
        self._undo = ExitStack()

    @property
    def files(self) -> Mapping[Path, Path]:
        """What the script wrote: where it wanted each file or link, and where it is."""
        if self._overlay is not None:
            self._files = dict(self._overlay.written())
        return self._files

    def __enter__(self) -> "Redirect":
        global _active
        if _active is not None:
            raise SettingError(
                f"folder: this process is redirected to {_active.folder} already; expected one "
                "redirection at a time; leave that one first"
            )
        self.notices[:] = [
            "This run is a throw-away copy: what the script writes goes to a folder of its own "
            f"({self.folder}), which is removed at the end.",
            "Off in it: wandb, mlflow, Comet, Neptune, ClearML, uploads to the Hugging Face hub.",
        ]
        self._overlay = Overlay(self.folder, self.writable, _kept_folder())
        self._undo = _begin(self._overlay, self.notices)
        _active = self
        return self

    def __exit__(self, *_error: object) -> None:
        global _active
        _active = None
        self._undo.close()
        assert self._overlay is not None
        self._files = dict(self._overlay.written())
        self._overlay = None


_active: Redirect | None = None


def _kept_folder() -> str | None:
    """The current folder, if it lies in the temporary one: what is in it is the user's."""
    here = posix.getcwd()
    return here if here.startswith(f"{os.path.realpath(tempfile.gettempdir())}/") else None


def _begin(overlay: Overlay, notices: list[str]) -> ExitStack:
    """Put everything in place; closing what is returned puts everything back."""
    functions, libraries = Functions(overlay), Replacements()
    replacing = Replacing(functions.table())
    with ExitStack() as undo:
        undo.callback(overlay.close)
        undo.callback(overlay.open_folders)
        undo.callback(posix.chdir, posix.getcwd())
        undo.callback(_restore_environment, os.environ.copy())
        os.environ.update(environment(overlay.folder))
        # No compiled modules beside those that the script imports.
        undo.callback(setattr, sys, "dont_write_bytecode", sys.dont_write_bytecode)
        sys.dont_write_bytecode = True
        undo.callback(Replacing.stop, [replacing])
        replacing.start()
        redirect_libraries(overlay, libraries)
        redirect_databases(overlay, notices, libraries)
        turn_off(overlay.folder, libraries)
        undo.enter_context(own_folder_of_sockets(overlay.folder))
        invite_spawned(Invitation(_join, overlay.settings()), libraries)
        undo.callback(libraries.undo)
        libraries.start()
        undo.callback(audit.listen, None)
        audit.listen(audit.Audit(overlay, functions, notices).hear)
        return undo.pop_all()


def _restore_environment(before: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(before)


def _join(folder: Path, writable: Sequence[Path], kept: str | None, temporary: str) -> None:
    """Redirect this process, which another one spawned, for as long as it runs."""
    global _joined
    tempfile.tempdir = temporary
    _joined = _begin(Overlay(folder, writable, kept, temporary), [])


_joined: ExitStack | None = None
