"""What holds the objects that are not freed: containers that are longer at the end."""

import gc
import types
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from hotloop.loop.code import module_of

MOST = 8
# Rooms whose objects note what they measure and show, so that their lists grow with it.
_MEASURING = tuple(
    f"hotloop.{room}." for room in ("benchmark", "loop", "profile", "report", "results")
)


@dataclass(frozen=True)
class Holder:
    """A container that has grown. name: where it is found; kind: its type."""

    name: str
    kind: str
    items: int
    items_per_iteration: float


class Holders:
    """Compares the lengths of all containers before and after; a context for the time between.

    A container that is freed may leave its address to a longer one, which would look like growth:
    `look` in the middle, and only what has grown before and after it counts.
    """

    def __init__(self) -> None:
        self._looks: list[dict[int, int]] = []
        self._grown: list[tuple[Any, int]] = []

    def __enter__(self) -> Self:
        self.look()
        return self

    def look(self) -> None:
        """Note how long each container is now, by its address."""
        self._looks.append({id(each): len(each) for each in _containers()})

    def __exit__(self, *_raised: object) -> None:
        looks, self._looks = self._looks, []
        for each in _containers():
            lengths = [look.get(id(each), len(each)) for look in looks] + [len(each)]
            if all(earlier < later for earlier, later in pairwise(lengths)):
                self._grown.append((each, lengths[-1] - lengths[0]))

    def growing(self, iterations: int) -> list[Holder]:
        """The containers that have at least one item more for every second iteration."""
        found = [(each, more) for each, more in self._grown if more >= max(iterations / 2, 2)]
        self._grown = []
        found.sort(key=lambda pair: -pair[1])
        return [
            Holder(_name_of(each), type(each).__name__, len(each), more / iterations)
            for each, more in found[:MOST]
            if not _is_ours(each)
        ]


def _containers() -> list[Any]:
    kinds = (list, dict, set, deque)
    followed = gc.get_objects()
    found = [each for each in followed if type(each) in kinds]
    # A dict of nothing that could be in a circle is not followed by the collector itself.
    others = (each for each in gc.get_referents(*followed) if type(each) is dict)
    return [*found, *{id(each): each for each in others if not gc.is_tracked(each)}.values()]


def _is_ours(container: Any) -> bool:
    """Whether only hotloop's own objects hold it: what a measurement notes grows with it."""
    owners = [each for each in gc.get_referrers(container) if not isinstance(each, types.FrameType)]
    return any(module_of(type(each)).startswith(_MEASURING) for each in owners)


def _name_of(container: Any) -> str:
    """Where a container is found: a variable of a module, an attribute, a local variable."""
    names: list[str] = []
    later: list[str | None] = []  # less telling
    for referrer in gc.get_referrers(container):
        if isinstance(referrer, dict):
            key = next((k for k, v in referrer.items() if v is container), None)
            module = referrer.get("__name__")
            if isinstance(key, str) and (owner := _class_of(referrer)) is not None:
                names.append(f"{owner.__module__}.{owner.__qualname__}.{key}")
            elif isinstance(key, str) and isinstance(module, str):
                names.append(f"{module}.{key}")
            elif key is not None:
                names.append(f"{_owner_of(referrer)}[{key!r}]")
        elif isinstance(referrer, types.CellType):
            later.append(_closure_name(referrer))
        elif not isinstance(referrer, types.FrameType | list | tuple):
            held = getattr(referrer, "__dict__", {})
            key = next((k for k, v in held.items() if v is container), None)
            if key is not None:
                held_by = _variable_of(referrer) or type(referrer).__qualname__
                names.append(f"{held_by}.{key}")
    return next(iter([*names, *filter(None, later)]), "a local variable")


def _variable_of(owner: Any) -> str | None:
    """The variable of a module that an object is, as `module.name`."""
    for referrer in gc.get_referrers(owner):
        module = referrer.get("__name__") if isinstance(referrer, dict) else None
        if isinstance(module, str):
            key = next((k for k, v in referrer.items() if v is owner), None)
            if isinstance(key, str):
                return f"{module}.{key}"
    return None


def _class_of(held: dict[Any, Any]) -> type | None:
    """The class whose attributes a mapping holds."""
    for referrer in gc.get_referrers(held):
        if isinstance(referrer, type) and held.get("__module__") == referrer.__module__:
            return referrer
    return None


def _owner_of(held: dict[Any, Any]) -> str:
    """The object whose attributes a mapping holds, else what kind of mapping it is."""
    for referrer in gc.get_referrers(held):
        if getattr(referrer, "__dict__", None) is held:
            return type(referrer).__qualname__
    return "a dict"


def _closure_name(cell: types.CellType) -> str | None:
    for referrer in gc.get_referrers(cell):
        for function in gc.get_referrers(referrer) if isinstance(referrer, tuple) else ():
            if isinstance(function, types.FunctionType) and function.__module__ != __name__:
                names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
                name = next((name for name, each in names if each is cell), None)
                if name is not None:
                    return f"{name} in {function.__qualname__}"
    return None
