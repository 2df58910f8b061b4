"""Replacing a function of a library while a loop is watched, and putting it back."""

import functools
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def around(
    owner: Any, name: str, observed: Callable[[Callable[..., Any], Any, Any], Any]
) -> Iterator[None]:
    """Let `observed(function, args, kwargs)` stand for what a module or class itself holds.

    It must call the function, and return what that returns. In a process that is forked meanwhile
    the function is called directly: there it cannot be put back.
    """
    held = vars(owner)[name]
    function = held.__func__ if isinstance(held, classmethod | staticmethod) else held
    process = os.getpid()

    @functools.wraps(function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != process:
            return function(*args, **kwargs)
        return observed(function, args, kwargs)

    wrapped: Any = replacement
    if isinstance(held, classmethod):
        wrapped = classmethod(replacement)
    elif isinstance(owner, type) and not isinstance(held, types.FunctionType):
        wrapped = staticmethod(replacement)  # a built-in function is bound to nothing
    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, held)
