"""SQLite's databases, which its library opens by itself, with the files beside them."""

import functools
import os
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hotloop.redirect.operations import place_to_open
from hotloop.redirect.overlay import Overlay
from hotloop.redirect.replacing import Function, Replacements

# A database is not whole without what was not yet written into it.
BESIDE = ("-wal", "-journal", "-shm")
# Of an authoriser, as SQLite numbers them: its library is not imported here.
_ATTACH, _ALLOWED, _REFUSED = 24, 0, 1
IN_MEMORY = ("", ":memory:")


def redirect_databases(overlay: Overlay, notices: list[str], replacements: Replacements) -> None:
    """Lead connections to databases through an overlay, from when `sqlite3` is imported."""
    replacements.add("sqlite3", "connect", functools.partial(_led, overlay, notices))


def _led(overlay: Overlay, notices: list[str], connect: Function) -> Function:
    @functools.wraps(connect)
    def led(database: Any, *arguments: Any, **named: Any) -> Any:
        is_address = named.get("uri", arguments[6] if len(arguments) > 6 else False)
        place = _place(overlay, database, is_address=bool(is_address))
        connection = connect(place, *arguments, **named)
        connection.set_authorizer(functools.partial(_judge, overlay, notices))
        return connection

    return led


def _place(overlay: Overlay, database: Any, *, is_address: bool) -> Any:
    text = os.fsdecode(database)
    if text in IN_MEMORY:
        return database
    if not is_address or not text.startswith("file:"):
        return _bring(overlay, text)
    parts = urlsplit(text)
    options = parse_qs(parts.query)
    if not parts.path or options.get("mode") == ["memory"] or parts.path == ":memory:":
        return database
    return f"file:{quote(_bring(overlay, unquote(parts.path)))}?{parts.query}"


def _bring(overlay: Overlay, path: str) -> str:
    absolute = overlay.absolute(path)
    place = place_to_open(overlay, absolute, os.O_RDWR | os.O_CREAT)
    canonical = overlay.canonical(absolute)
    for name in (f"{canonical}{ending}" for ending in BESIDE):
        if not overlay.is_free(name) and overlay.status(name) is not None:
            overlay.bring(name)
            overlay.hide(name)  # so that it stays away when SQLite deletes its copy
    return place


def _judge(overlay: Overlay, notices: list[str], action: int, path: str | None, *_rest: Any) -> int:
    """Refuse a statement that has SQLite open another file by itself: an ATTACH, a VACUUM."""
    if action != _ATTACH or path in (None, *IN_MEMORY):
        return _ALLOWED
    canonical = overlay.canonical(overlay.absolute(str(path)))
    if overlay.is_free(canonical):
        return _ALLOWED
    notices.append(
        f"SQLite was refused to attach {path} by a statement: in a throw-away run it could "
        "change that file."
    )
    return _REFUSED
