"""A change that may be tried on a loop, and how it is made: declared where the thing lives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.errors import SettingError

Option = bool | int | float | str | None
"""What a lever may be set to."""
Options = Mapping[str, Option]
"""An option of each lever, by its name."""

AREAS = ("compute", "communication", "memory")


def always(_options: Options) -> bool:
    """The condition of a lever that acts whatever the others are set to."""
    return True


@dataclass(frozen=True)
class Lever:
    """A change that may be tried on a loop.

    name: the setting that it changes. options: what may be tried. now: what the loop has; it is an
    option too.
    apply: sets the loop, between two iterations, to an option; it may be called again with another
    one. None where `name` is a setting that the loop is made with: then a loop is made for each
    option.
    applies: whether the lever acts, given the options of all levers; the number of workers does
    not where there are none.
    keeps_result: True where the loop computes the same bits whatever the option, a number where
    they differ by at most this share of an array's size, by rounding; False where it learns
    otherwise. The first two are checked when an option is tried.
    about: what it changes, in a few words. area: "compute", "communication" or "memory". stages:
    whose time it could save; none named: anything. risk: what may go wrong with it. missing: what
    this machine lacks, without which the lever cannot be tried; nothing where it can.

    Raises: SettingError for options that cannot be tried.
    """

    name: str
    options: Sequence[Option]
    now: Option
    apply: Callable[[Any], None] | None = None
    applies: Callable[[Options], bool] = always
    keeps_result: bool | float = True
    about: str = ""
    area: str = "compute"
    stages: Sequence[str] = ()
    risk: str = ""
    missing: str = ""

    def __post_init__(self) -> None:
        options = [*self.options, *(() if _among(self.now, self.options) else (self.now,))]
        object.__setattr__(self, "options", tuple(options))
        wrong = [each for each in options if not isinstance(each, Option)]
        if wrong:
            raise SettingError(
                f"lever {self.name!r}: options: expected numbers, text, true, false or None, got "
                f"{wrong[0]!r}"
            )
        if any(_among(each, options[:k]) for k, each in enumerate(options)):
            raise SettingError(f"lever {self.name!r}: options: one of {options} stands twice")
        if self.area not in AREAS:
            raise SettingError(
                f"lever {self.name!r}: area: expected one of {AREAS}, got {self.area!r}"
            )
        share = self.keeps_result
        if not isinstance(share, bool) and not 0 <= share < 1:
            raise SettingError(
                f"lever {self.name!r}: keeps_result: expected True, False or a share from 0 to 1, "
                f"got {share!r}"
            )


def same_option(first: object, second: object) -> bool:
    """Whether two options are the same; True is not 1 here."""
    return type(first) is type(second) and first == second


def _among(option: Option, options: Sequence[Option]) -> bool:
    return any(same_option(each, option) for each in options)
