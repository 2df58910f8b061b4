"""Methods with one argument, as `Env.step`: what stands for them costs little at rest."""

from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS, isfunction
from typing import Any

from hotloop.recognise.place_stage import COUNTED, Inside


def takes_one_argument(method: Callable[..., Any]) -> bool:
    """Whether a method takes the object and one argument, without a default, and nothing else."""
    if not isfunction(method) or method.__defaults__:
        return False
    code = method.__code__
    others = code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
    return code.co_argcount == 2 and not code.co_posonlyargcount and not others


def with_one_argument(
    function: Any, staged: Callable[..., Any], holder: Any, index: int, inside: Inside
) -> Callable[..., Any]:
    """Return a method that asks first whether its stage does anything; else half as fast.

    staged: what it does then. holder: what has the modes of all stages; index: of this one.
    """

    def step(self: Any, action: Any) -> Any:
        if not holder.modes[index] or (holder.modes[index] != COUNTED and inside.now):
            return function(self, action)
        return staged(self, action)

    # It is called with the argument's name too.
    names = function.__code__.co_varnames[:2]
    step.__code__ = step.__code__.replace(co_varnames=names)
    return step
