"""A family of loops that is named on the command line: a word, a colon, and what it is about."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from hotloop.errors import SettingError, nearest
from hotloop.loop.loop import Loop


@dataclasses.dataclass(frozen=True)
class LoopFamily:
    """Loops of one kind. A module exports one, and the table of targets names the module.

    make: the loop of what follows the colon, such as "CartPole-v1", with settings by name.
    """

    make: Callable[[str, Mapping[str, Any]], Loop]


def settings_of(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Make a settings dataclass from given values.

    Raises: SettingError for an unknown name, with the nearest known one.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in names:
            raise SettingError(f"there is no setting {name!r}{nearest(name, names)}")
    return kind(**given)
