"""Calls of a library whose arguments are levers: known by the line of the target that makes them.

The options act where the call is made, so a trial makes what the target makes with other arguments
than the target says.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from hotloop.loop.after_import import after_import
from hotloop.loop.lever import Lever, Option

Arguments = dict[str, Any]
"""All arguments of a call by name, those that were not given too."""
Made = Mapping[str, Any]
"""What a call was made with: the values of its settings."""


def no_change(_arguments: Arguments, options: Mapping[str, Option]) -> Arguments:
    """The arguments for options that fit as they are."""
    return dict(options)


@dataclass(frozen=True)
class Call:
    """A function or a class of a library.

    name: of it, with which the names of its levers begin. module, attribute: where it is found,
    such as "DataLoader.__init__". library: the package whose own calls are not the target's.
    settings: arguments that may be changed; facts: what else the levers depend on.
    levers: of a call with these values, by the beginning of their names, of which each is followed
    by the name of its setting. read: the values of settings and facts among the arguments.
    change: the arguments that change for some options. The last two are for settings that are no
    arguments of their own, or that depend on each other.
    """

    name: str
    module: str
    attribute: str
    library: str
    settings: tuple[str, ...]
    levers: Callable[[str, Made], Sequence[Lever]]
    read: Callable[[Arguments], Made] = dict
    change: Callable[[Arguments, Mapping[str, Option]], Arguments] = no_change
    facts: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What is known of one call: how it was made by place, and with which options it is to be."""

    call: Call
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    options: dict[str, dict[str, Option]] = field(default_factory=dict)
    put_back: Callable[[], None] | None = None


class WatchedCalls:
    """Watches calls of libraries, and changes their arguments."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._seen = [_Seen(call) for call in calls]
        self._waiting: list[Callable[[], None]] = []  # each gives up waiting for a module

    def owns(self, name: str) -> bool:
        """Whether the lever of this name is one of these calls."""
        return any(_parts(each.call, name) is not None for each in self._seen)

    def prepare(self, options: Mapping[str, Option]) -> None:
        """Have calls that are made from now on take these options."""
        for each in self._seen:
            for name, option in options.items():
                parts = _parts(each.call, name)
                if parts is not None:
                    each.options.setdefault(parts[0], {})[parts[1]] = option
            watch = functools.partial(_watch, each)
            self._waiting.append(after_import(each.call.module, watch))

    def levers(self, _objects: Sequence[object]) -> Sequence[Lever]:
        """Those of the calls that were made."""
        return [
            lever
            for each in self._seen
            for place, made in each.made.items()
            for lever in each.call.levers(f"{each.call.name} {place}", made)
        ]

    def close(self) -> None:
        """Leave the functions and classes as they were."""
        for give_up in self._waiting:
            give_up()
        self._waiting.clear()
        for each in self._seen:
            if each.put_back is not None:
                each.put_back()
                each.put_back = None


def _parts(call: Call, name: str) -> tuple[str, str] | None:
    """The place and the setting in the name of a lever, if it is one of this call."""
    found = re.fullmatch(rf"{re.escape(call.name)} (.+:\d+) (\w+)", name)
    return None if found is None or found[2] not in call.settings else (found[1], found[2])


def _watch(seen: _Seen, module: ModuleType) -> None:
    """Put a function in the place of the library's that notes its calls and changes them."""
    call, owner = seen.call, module
    *owners, name = call.attribute.split(".")
    for part in owners:
        owner = getattr(owner, part)
    unwatched = getattr(owner, name)
    signature = inspect.signature(unwatched)

    @functools.wraps(unwatched)
    def watched(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        place = _maker(call.library)
        options = seen.options.get(place, {})
        if options:
            bound.arguments.update(call.change(bound.arguments, options))
        found = call.read(bound.arguments)
        seen.made[place] = {each: found[each] for each in (*call.settings, *call.facts)}
        return unwatched(*bound.args, **bound.kwargs)

    setattr(owner, name, watched)
    seen.put_back = functools.partial(setattr, owner, name, unwatched)


def _maker(library: str) -> str:
    """The line that makes a call: the nearest one outside of its library and of this file."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.split(".")[0] != library:
            break
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
