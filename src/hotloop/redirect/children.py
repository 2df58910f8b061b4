"""Python processes that are started anew, and have nothing but what they are sent.

Each is sent what it needs to prepare itself, before it is sent the work. One thing more in it joins
the run when it is unpickled.
"""

import functools
from collections.abc import Callable
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
