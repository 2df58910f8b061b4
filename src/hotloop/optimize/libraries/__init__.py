"""Levers of libraries that many loops use: offered where a loop is seen to use them.

A library that the target does not import is not imported.
"""

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from hotloop.errors import SettingError, nearest
from hotloop.loop.lever import Lever, Option, same_option
from hotloop.loop.loop import Loop
from hotloop.loop.state import reachable

SETTING, MADE, LIVE = "setting", "made", "live"
"""Where a lever acts: on what its target is made with, on what a library makes for it, or between
two iterations."""


class Library(Protocol):
    """What is known of one library.

    `owns` says whether a lever is one of its; `prepare` is called before the target is made, with
    the options of its levers; `levers` after its first iteration; `close` at the end.
    """

    def owns(self, name: str) -> bool:
        """Whether the lever of this name is one of its."""
        ...

    def prepare(self, options: Mapping[str, Option]) -> None:
        """Have the options act on what the target makes from now on."""
        ...

    def levers(self, objects: Sequence[object]) -> Sequence[Lever]:
        """The levers on what the target has made; objects: all that may be the target's."""
        ...

    def close(self) -> None:
        """Leave nothing changed in the library."""
        ...


LIBRARIES: Mapping[str, str] = {
    "torch": "hotloop.optimize.libraries.torch_levers:TorchLevers",
    "DataLoader": "hotloop.optimize.libraries.data_loaders:DataLoaders",
    "make_vec": "hotloop.optimize.libraries.vector_envs:VectorEnvs",
}
"""By the name of a library, the module and class that know it."""


class Libraries:
    """All of them, beside one target; a context that ends what they have changed.

    options: of levers, by name; those that no library owns are the loop's. own_process: whether
    this process runs nothing else, so that everything in it is the target's; else what the loop
    declares as its state is.
    """

    def __init__(self, options: Mapping[str, Option], *, own_process: bool = True) -> None:
        self._options = dict(options)
        self._own_process = own_process
        self._known: list[Library] = []
        self._offered: dict[str, Lever] = {}

    def __enter__(self) -> "Libraries":
        for place in LIBRARIES.values():
            module, _, name = place.partition(":")
            make: Callable[[], Library] = getattr(importlib.import_module(module), name)
            self._known.append(make())
            mine = {n: v for n, v in self._options.items() if self._known[-1].owns(n)}
            self._known[-1].prepare(mine)
        return self

    def __exit__(self, *_raised: object) -> None:
        for library in self._known:
            library.close()

    def levers(self, loop: Loop) -> list[Lever]:
        """All levers of a loop that runs: its own, then those of the libraries that it uses.

        Where both have one of the same name, the loop's own is meant.
        """
        own = {lever.name for lever in loop.levers}
        objects = gc.get_objects() if self._own_process else reachable(loop.state)
        for each in self._known:
            for lever in each.levers(objects):
                # What was offered stays as it was, also when it has been set since.
                self._offered.setdefault(lever.name, lever)
        return [*loop.levers, *(each for n, each in self._offered.items() if n not in own)]

    def where(self, lever: Lever) -> str:
        """Where a lever acts."""
        if lever.apply is not None:
            return LIVE
        # By the lever, not by its name: a loop's own may be called as one of a library.
        return MADE if self._offered.get(lever.name) is lever else SETTING

    def now(self, lever: Lever) -> Option:
        """What a lever is set to once the loop runs: a live one perhaps to an option of these."""
        if lever.apply is None:
            return lever.now
        return self._options.get(lever.name, lever.now)

    def set(self, loop: Loop) -> None:
        """Set the levers of a loop that was made to their options.

        Raises: SettingError for a lever or an option that there is not, and for what is a setting.
        """
        levers = self.levers(loop)
        for lever in levers:
            option = self._options.get(lever.name, lever.now)
            if self.where(lever) == SETTING and not same_option(option, lever.now):
                raise SettingError(
                    f"lever {lever.name!r}: the loop is made with it, and has {lever.now!r}: "
                    f"expected it under `settings`, got {option!r} under `levers`"
                )
        set_levers(levers, self._options)


@contextmanager
def levers_for(options: Mapping[str, Option]) -> Iterator[Callable[[Loop], None]]:
    """A function that sets the levers of a loop, which is made within the block.

    options: by the name of a lever; without any, nothing is watched and nothing is set.
    """
    if not options:
        yield lambda _loop: None
        return
    with Libraries(options) as libraries:
        yield libraries.set


def set_levers(levers: Sequence[Lever], options: Mapping[str, Option]) -> None:
    """Set levers of a running loop; what it was made with is left as it is.

    Raises: SettingError for a lever or an option that there is not.
    """
    known = {lever.name: lever for lever in levers}
    for name, option in options.items():
        if name not in known:
            raise SettingError(f"there is no lever {name!r} here{nearest(name, known)}")
        lever = known[name]
        if lever.missing and not same_option(option, lever.now):
            raise SettingError(f"lever {name!r}: {option!r} needs {lever.missing}")
        if not any(same_option(each, option) for each in lever.options):
            raise SettingError(
                f"lever {name!r}: expected one of {list(lever.options)}, got {option!r}"
            )
        if lever.apply is not None:
            lever.apply(option)
