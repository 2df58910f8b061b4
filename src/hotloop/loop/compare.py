"""Comparing two observations: what differs, with its path.

Both graphs are walked together. So an object that was exchanged for an equal one does not count as
a change, and only what differs is given a path.
"""

import functools
import itertools
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotloop.loop.observe import Observation
from hotloop.loop.reading import PLAIN, Node, Part, items, references

_ABSOLUTE = (
    "argument",
    "partial",
    "default",
    "closure",
    "variable",
    "global",
    "class",
    "generator",
)


class Link(NamedTuple):
    """One reference on the way to an object."""

    above: "Link | None"
    style: str
    key: Any


@dataclass(frozen=True)
class Difference:
    """Where two observations differ.

    path: of what differs; owner: of the object that holds it. kind: the owner's type.
    style: how the path begins, such as "argument", "closure" or "global".
    drawn: whether it is the state of a random generator.
    """

    path: str
    owner: str
    kind: type
    style: str
    drawn: bool


def differences(
    before: Observation, after: Observation, *, may_change: Collection[int] = frozenset()
) -> Iterator[Difference]:
    """Yield what differs, nearest to the roots first, each path once.

    may_change: identities of objects that may hold something else than before; what they held
    and still hold is compared. If any are given, the global random generators are not compared.
    What only one of the two has seen, because a limit ended the other, is left out.
    """
    return _Comparison(before, after, may_change).run()


class _Comparison:
    """Two observations, walked together."""

    def __init__(
        self, before: Observation, after: Observation, may_change: Collection[int]
    ) -> None:
        self._before, self._after, self._may_change = before, after, may_change
        self._todo: deque[tuple[Node, Node, Link | None]] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._told: set[str] = set()

    def run(self) -> Iterator[Difference]:
        self._todo.append((self._before.root, self._after.root, None))
        while self._todo:
            before, after, link = self._todo.popleft()
            for first, second in zip(before.parts, after.parts, strict=False):
                if self._may_change and first.style == "generator":
                    continue
                for found in self._part(first, second, link, before.kind):
                    difference = _difference(found, link, before.kind)
                    if difference.path not in self._told:
                        self._told.add(difference.path)
                        yield difference

    def _part(
        self, first: Part, second: Part, link: Link | None, kind: type
    ) -> Iterator[Link | None]:
        """Compare references that belong together; yield the links to what differs."""
        style = first.style
        if isinstance(first.values, tuple) or isinstance(second.values, tuple):
            assert isinstance(first.values, tuple)
            assert isinstance(second.values, tuple)
            if len(first.values) != len(second.values):
                yield link
                return
            pairs: Any = zip(itertools.count(), first.values, second.values)
        else:
            only = [key for key in first.values if key not in second.values]
            only += [key for key in second.values if key not in first.values]
            for key in only:
                if style == "attribute" and _is_cache(kind, key):
                    continue
                yield Link(link, style, key)
                if style != "attribute":
                    break
            pairs = (
                (key, value, second.values[key])
                for key, value in first.values.items()
                if key in second.values
            )
        for key, value, other in pairs:
            if value is other and type(value) in PLAIN:
                continue
            if not self._equal(value, other, (link, style, key)):
                yield Link(link, style, key)
                if isinstance(first.values, tuple):
                    return  # one of many elements is enough to name

    def _equal(self, value: Any, other: Any, way: tuple[Link | None, str, Any]) -> bool:
        """Whether two objects hold the same themselves; what they refer to comes later."""
        if type(value) in PLAIN or type(other) in PLAIN:
            return type(value) is type(other) and (
                value == other or (value != value and other != other)
            )
        pair = (id(value), id(other))
        if pair in self._seen:
            return True
        self._seen.add(pair)
        if value is other and id(value) in self._may_change:
            self._follow_what_stayed(value, Link(*way))
            return True
        if id(value) not in self._before.nodes or id(other) not in self._after.nodes:
            return True  # a limit ended one of the two before it came here
        node, later = self._before.nodes[id(value)], self._after.nodes[id(other)]
        if node is None or later is None:
            return node is later
        if node.kind is not later.kind or len(node.parts) != len(later.parts):
            return False
        if node.label is not later.label and node.label != later.label:
            return False
        styles = [part.style for part in node.parts]
        if styles != [part.style for part in later.parts]:
            return False
        if node.parts:
            self._todo.append((node, later, Link(*way)))
        return True

    def _follow_what_stayed(self, value: Any, link: Link) -> None:
        """Go on to what an object held before and still holds."""
        node, later = (seen.nodes.get(id(value)) for seen in (self._before, self._after))
        if node is None or later is None:
            return
        still = {id(each) for part in later.parts for each in references(part)}
        parts = tuple(
            Part(part.style, {key: each for key, each in items(part) if id(each) in still})
            for part in node.parts
        )
        self._todo.append((Node(node.kind, None, parts), Node(node.kind, None, parts), link))


def _is_cache(kind: type, name: str) -> bool:
    """Whether an attribute is computed when it is first read, and then kept."""
    return isinstance(getattr(kind, name, None), functools.cached_property)


def _difference(found: Link | None, owner: Link | None, kind: type) -> Difference:
    assert found is not None
    styles = []
    link: Link | None = found
    while link is not None:
        styles.append(link.style)
        link = link.above
    start = next((style for style in styles if style in _ABSOLUTE), styles[-1])
    drawn = "drawn" in styles or "generator" in styles
    return Difference(path_of(found), path_of(owner), kind, start, drawn)


def path_of(link: Link | None) -> str:
    """Return the path to an object as a reader would write it, such as `self.env.steps`."""
    steps: list[Link] = []
    while link is not None:
        if link.style in ("saved", "drawn", "generator"):
            steps.clear()  # the object whose state it is says enough
        if link.style not in ("saved", "drawn"):
            steps.append(link)
            if link.style in _ABSOLUTE:
                break
        link = link.above
    path = ""
    for style, key in ((step.style, step.key) for step in reversed(steps)):
        if style == "attribute":
            path = f"{path}.{key}"
        elif style == "item":
            path = f"{path}[{key!r}]" if type(key) in PLAIN else f"{path}[…]"
        elif style == "self":
            path = f"{path}.__self__" if path and steps[-1].style != "function" else "self"
        elif style in _ABSOLUTE:
            path = str(key) if style == "generator" else f"{style} {key}"
        elif style in ("function", "output"):
            path = str(key) or style
        elif style in ("key", "element", "local"):
            path = f"{path} {style}" if style != "local" else f"{path} local {key}"
    return path
