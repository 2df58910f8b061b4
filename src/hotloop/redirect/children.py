"""Python processes that the script starts: they join the run, and leave nothing behind.

One that is started anew has nothing but what it is sent: what it needs to prepare itself, before it
is sent the work. One thing more in it joins the run when it is unpickled.
"""

import functools
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import current_process
from typing import Any

from hotloop.redirect.replacing import Function, Replacements


class Invitation:
    """Joins a run in the process in which it is unpickled."""

    def __init__(self, join: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._join = join
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return self._join, self._arguments


def invite_spawned(invitation: Invitation, replacements: Replacements) -> None:
    """Have processes that are started by spawning, or by a fork server, join the run."""
    for name in ("multiprocessing.spawn", "joblib.externals.loky.backend.spawn"):
        replacements.add(
            name, "get_preparation_data", functools.partial(_with_invitation, invitation)
        )


def _with_invitation(invitation: Invitation, old: Function) -> Function:
    @functools.wraps(old)
    def call(*arguments: Any, **named: Any) -> dict[str, Any]:
        return {"hotloop_redirect": invitation, **old(*arguments, **named)}

    return call


_END_S = 5.0  # for a helper of multiprocessing to end
# The longest path of a folder in which multiprocessing's sockets have a name that Linux takes: 107
# bytes, with "/mp-" and "/listener-" and eight characters behind each.
_LONGEST = 107 - len("/mp-") - len("/listener-") - 2 * 8


@contextmanager
def own_folder_of_sockets(folder: str) -> Iterator[None]:
    """Let multiprocessing put its sockets in a folder that is removed with this one.

    Each process makes one of its own otherwise, and removes it where it ends by itself: those that
    are ended with an interrupt, such as the workers of a loader, leave theirs. A child knows this
    one from its parent. Where the path would be too long for a socket, the folder stands among the
    temporary ones: a worker that cannot send its batch would be waited for without end.
    """
    settings: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    before = settings.get("tempdir")
    fits = len(os.fsencode(folder)) <= _LONGEST
    mine = settings["tempdir"] = tempfile.mkdtemp(prefix="mp-", dir=folder if fits else None)
    try:
        yield
    finally:
        settings["tempdir"] = before
        _end_helpers(mine)
        _remove_sockets(mine)
        shutil.rmtree(mine, ignore_errors=True)


def _end_helpers(folder: str) -> None:
    """End what multiprocessing has begun in this process for its children, where it listens there.

    Who needs it next has it begun anew: it would look for a socket that is gone. What was never
    imported has begun nothing.
    """
    sharing: Any = sys.modules.get("multiprocessing.resource_sharer")
    if sharing and str(sharing._resource_sharer._address).startswith(f"{folder}/"):
        with suppress(OSError):  # the script may have removed what it listens at
            sharing.stop(timeout=_END_S)
    forking: Any = sys.modules.get("multiprocessing.forkserver")
    if forking and str(forking._forkserver._forkserver_address).startswith(f"{folder}/"):
        _end_fork_server(forking._forkserver)


def _end_fork_server(server: Any) -> None:
    """End a fork server and the processes that it has begun, in whatever they are.

    It is waited for, and would live as long as one of them, such as the worker of a vector env that
    the script has not closed.
    """
    begun: Any = sys.modules["multiprocessing.popen_forkserver"]
    children = [
        each
        for each in multiprocessing.active_children()
        if isinstance(each._popen, begun.Popen)  # type: ignore[attr-defined]
    ]
    for child in children:
        child.terminate()
    for child in children:
        child.join(_END_S)
        if child.is_alive():
            child.kill()
            child.join()
    # One that they have begun would keep it alive too.
    with suppress(ProcessLookupError):
        os.kill(server._forkserver_pid, signal.SIGKILL)
    server._stop()


def _remove_sockets(folder: str) -> None:
    """Remove this process's sockets now: at its end they would be missed."""
    registry: dict[Any, Any] = multiprocessing.util._finalizer_registry  # type: ignore[attr-defined]
    for each in list(registry.values()):
        is_removal = getattr(each, "_callback", None) is os.unlink and each.still_active()
        if is_removal and str(each._args[0]).startswith(f"{folder}/"):
            each()
