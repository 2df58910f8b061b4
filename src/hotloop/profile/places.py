"""The place that an allocation or a call belongs to: the stage, and the line of the user's code."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hotloop.loop.code import is_users_file
from hotloop.loop.named_call import FRAME
from hotloop.profile.stacks import REST, Frame, is_own_work

_PACKAGE = str(Path(__file__).parents[1])
_LOOP = str(Path(__file__).parents[1] / "loop")
# The file behind the command, which every stack of the main thread begins with.
_COMMAND = str(Path(sysconfig.get_path("scripts")) / "hotloop")


class Site(NamedTuple):
    """A line of a function, in a stage."""

    stage: str
    function: str
    file: str
    line: int


def site_of(stack: Sequence[tuple[str, str, int]]) -> Site | None:
    """The place of a stack of function, file and line, the innermost first.

    It is the innermost line of the user's own code within the stage, or else the innermost line of
    all. None where hotloop itself was at work.
    """
    frames = [Frame(*each) for each in stack]
    if not frames or is_own_work(frames[::-1]):
        return None
    stage = next(
        (f.function.removeprefix(FRAME) for f in frames if f.function.startswith(FRAME)), None
    )
    if stage is not None:
        frames = frames[: next(k for k, f in enumerate(frames) if f.function.startswith(FRAME))]
    if not frames or frames[0].file.startswith(_LOOP):
        return None
    at = next((f for f in frames if _is_users(f.file)), frames[0])
    return Site(stage or REST, *at)


def _is_users(file: str) -> bool:
    return file != _COMMAND and not file.startswith((_PACKAGE, "<")) and is_users_file(file)
