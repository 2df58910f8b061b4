"""Calls within a frame that has the name of a stage, by which any profiler tells its time."""

from collections.abc import Awaitable, Callable
from typing import Any

FRAME = "stage: "  # how the name of such a frame begins


def frame_name(stage: str) -> str:
    """The name of a stage's frame; the text formats of profilers separate frames by semicolons."""
    return FRAME + stage.replace(";", ",")


def named_call(stage: str) -> Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function that calls another one, in a frame with the name of the stage."""

    def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)

    _rename(call, stage)
    return call


def named_await(
    stage: str,
) -> Callable[[Callable[..., Awaitable[Any]], tuple[Any, ...], dict[str, Any]], Awaitable[Any]]:
    """Return a coroutine function that awaits another one, in a frame with the stage's name."""

    async def call(
        function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return await function(*args, **kwargs)

    _rename(call, stage)
    return call


def _rename(function: Any, stage: str) -> None:
    name = frame_name(stage)
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
