"""The line of the user's code that is under way, found from within what it calls."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hotloop.loop.code import is_users_file

_PACKAGE = Path(__file__).parents[1]
# What measures is no part of the loop; what drives it is where the loop ends.
_MEASURING = tuple(str(_PACKAGE / part) for part in ("profile", "benchmark", "loop", "recognise"))
_DRIVER = str(_PACKAGE / "loop" / "conduct.py")


class CallSite(NamedTuple):
    """A line of a function."""

    function: str
    file: str
    line: int


def call_site() -> CallSite:
    """The innermost line of the user's own code, or else the innermost line of any."""
    frame = sys._getframe(1)
    innermost: CallSite | None = None
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _DRIVER:
            break
        if not _measures(code.co_filename):
            if is_users_file(code.co_filename):
                return CallSite(code.co_qualname, code.co_filename, frame.f_lineno)
            if innermost is None:
                innermost = CallSite(code.co_qualname, code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return innermost or CallSite("", "", 0)


@lru_cache(maxsize=8192)
def _measures(file: str) -> bool:
    return file.startswith((*_MEASURING, "<"))
