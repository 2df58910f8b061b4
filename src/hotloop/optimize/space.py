"""What may be tried: every way to set the levers of a loop, each counted once."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from hotloop.loop.lever import Lever, Option, Options, same_option

Choice = tuple[tuple[str, Option], ...]
"""The levers that act, each with its option, in the order in which they were declared."""


class Space:
    """The choices of some levers. start: the one that the loop has."""

    def __init__(self, levers: Sequence[Lever]) -> None:
        self.levers = {lever.name: lever for lever in levers}
        self.start = self.choice({lever.name: lever.now for lever in levers})

    def choice(self, options: Options) -> Choice:
        """The choice that these options mean: without the levers that do not act then."""
        whole = {name: options.get(name, lever.now) for name, lever in self.levers.items()}
        return tuple(
            (name, option) for name, option in whole.items() if self.levers[name].applies(whole)
        )

    def options(self, choice: Choice) -> dict[str, Option]:
        """The options of all levers; those that do not act have what the loop has."""
        return {name: lever.now for name, lever in self.levers.items()} | dict(choice)

    def changes(self, choice: Choice) -> dict[str, Option]:
        """What differs from the start; also what acts only now."""
        before = dict(self.start)
        missing = object()
        return {
            name: option
            for name, option in choice
            if not same_option(before.get(name, missing), option)
        }

    def keeps_result(self, choice: Choice) -> bool | float:
        """Whether the loop still computes the same: the least strict of all that is changed."""
        kept: list[bool | float] = []
        before, after = self.options(self.start), self.options(choice)
        for name, lever in self.levers.items():
            if not same_option(before[name], after[name]):
                kept.append(lever.keeps_result)
        if any(each is False for each in kept):
            return False
        shares = [each for each in kept if each is not True]
        return max(shares, default=True)

    @property
    def most(self) -> int:
        """How many ways there are to set the levers, each combination counted."""
        return math.prod(len(lever.options) for lever in self.levers.values())

    def all(self) -> Iterator[Choice]:
        """Every choice once, the start among them."""
        seen = set[Choice]()
        names = list(self.levers)
        for options in itertools.product(*(self.levers[name].options for name in names)):
            found = self.choice(dict(zip(names, options, strict=True)))
            if keyed(found) not in seen:
                seen.add(keyed(found))
                yield found

    def neighbours(
        self, choice: Choice, order: Sequence[str] = (), whole: Collection[str] = ()
    ) -> Iterator[Choice]:
        """The choices that differ in one lever; others that act only then are as the loop has them.

        One option of each lever comes first, then the second ones, and so on. order: names of the
        levers to begin with. whole: those of which all options come before any of the others.
        """
        seen, options = {keyed(choice)}, self.options(choice)
        names = [*order, *(name for name in self.levers if name not in order)]
        others = {
            name: [
                (name, o) for o in self.levers[name].options if not same_option(o, options[name])
            ]
            for name in names
        }
        first = [others[name] for name in names if name in whole]
        rows = itertools.zip_longest(*(others[name] for name in names if name not in whole))
        for name, option in filter(None, itertools.chain(*first, *rows)):
            found = self.choice(options | {name: option})
            if keyed(found) not in seen:
                seen.add(keyed(found))
                yield found


def keyed(choice: Choice) -> Choice:
    """A choice as a key: True is not 1, as it is for Python."""
    return tuple((name, f"{type(option).__name__} {option!r}") for name, option in choice)


def written(options: Options | Choice, between: str = " ") -> str:
    """Options as a reader sees them: `num_workers=2 backend=process`."""
    pairs = options.items() if isinstance(options, Mapping) else options
    return between.join(f"{name}={option}" for name, option in pairs) or "as it is"
