"""Where in the user's own code something happens: stacks are searched for the user's frames.

Frames of the standard library, of the numerical libraries and of hotloop are passed over: what
happens inside `loss.backward()` happens at that line. Another library in between makes the place
the library's own, where its user can change nothing.
"""

import ast
import functools
import linecache
import types
from dataclasses import dataclass
from pathlib import Path

from hotloop.loop.code import is_users_file
from hotloop.loop.stack import stack_of

_PACKAGE = str(Path(__file__).parents[1])
_NUMERICAL = frozenset({"torch", "numpy", "scipy", "numba", "pandas", "functorch", "torchgen"})
_INTERACTIVE = ("<stdin>", "<ipython")


@dataclass(frozen=True)
class Place:
    """A line of the user's code, in the function that it belongs to."""

    file: str
    line: int
    function: str


@functools.lru_cache(maxsize=8192)
def is_users(filename: str) -> bool:
    """Whether a file is the user's own: of no library, and not of hotloop."""
    if filename.startswith("<"):
        return filename.startswith(_INTERACTIVE)
    return not filename.startswith(_PACKAGE) and is_users_file(filename)


@functools.lru_cache(maxsize=8192)
def is_passed_over(filename: str) -> bool:
    """Whether a file belongs to the standard library, to a numerical library or to hotloop."""
    if filename.startswith(("<", _PACKAGE)):
        return not is_users(filename)
    parts = Path(filename).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return parts[parts.index(folder) + 1] in _NUMERICAL
    return not is_users(filename)


def user_place(frame: types.FrameType | None, *, through_libraries: bool = False) -> Place | None:
    """The innermost line of the user's code on a stack of this thread, or None.

    through_libraries: also where a library other than those that are passed over stands between.
    """
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_users(filename):
            return place_at(frame)
        if not through_libraries and not is_passed_over(filename):
            return None
        frame = frame.f_back
    return None


def place_at(frame: types.FrameType) -> Place:
    """The line that a frame is at."""
    code = frame.f_code
    return Place(code.co_filename, frame.f_lineno or 0, code.co_qualname)


def place_of_thread(thread: int) -> Place | None:
    """The innermost line of the user's code that another thread is at, or None."""
    users = (frame for frame in stack_of(thread) if is_users(frame.f_code.co_filename))
    return next(map(place_at, users), None)


@functools.lru_cache(maxsize=256)
def syntax_of(filename: str) -> ast.Module:
    """The syntax tree of a file; an empty one where it has no source that can be read."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module([], [])


@functools.lru_cache(maxsize=8192)
def function_at(filename: str, line: int) -> str:
    """The qualified name of the innermost function around a line; "<module>" outside of any."""
    return _innermost(syntax_of(filename), line, "", "<module>")


def _innermost(node: ast.AST, line: int, prefix: str, found: str) -> str:
    for child in ast.iter_child_nodes(node):
        if not (getattr(child, "lineno", line) <= line <= getattr(child, "end_lineno", line)):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            return _innermost(child, line, f"{name}.<locals>.", name)
        if isinstance(child, ast.ClassDef):
            return _innermost(child, line, f"{prefix}{child.name}.", found)
        found = _innermost(child, line, prefix, found)
    return found
