"""Settings of a target, as commands take them: a file that `hotloop optimize` has written."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotloop.cli.options import option_of, option_value
from hotloop.errors import SettingError, nearest
from hotloop.loop.chosen import Chosen, read_chosen
from hotloop.repeat.sides import SETTINGS_FROM
from hotloop.results.targets import value_of

_BEHIND_A_TARGET = (
    "each side has settings of its own: expected the option within a side, directly behind its "
    f'target, as in "ppo:CartPole-v1 {SETTINGS_FROM} FILE"'
)
# Verbs that take no such file, and why.
TAKE_NONE: Mapping[str, str] = {
    "compare": _BEHIND_A_TARGET,
    "gate": _BEHIND_A_TARGET,
    "repeat try": _BEHIND_A_TARGET,
    "repeat": f"it shows what is noted and runs no target; leave {SETTINGS_FROM} out",
    "evaluate": f"a checkpoint has the settings of its training; leave {SETTINGS_FROM} out",
    "plan": f"it forecasts from measured points and runs no target; leave {SETTINGS_FROM} out",
    "report": f"a saved run has the settings that it was made with; leave {SETTINGS_FROM} out",
    "doctor": f"it looks at the machine and runs no target; leave {SETTINGS_FROM} out",
}


def chosen_for(target: str, path: Path | None) -> Chosen:
    """The settings in a file; those of the target alone where there is none.

    Raises: SettingError for a file that cannot be read, or that is of another target.
    """
    return Chosen(target) if path is None else read_chosen(path).for_target(target)


def chosen_in(arguments: Sequence[str], target: str) -> Chosen:
    """The settings in the file that is named among arguments which are not read yet.

    Raises: as `chosen_for`.
    """
    path = option_value("settings_from", arguments)
    return chosen_for(target, Path(path) if path else None)


def made_with(chosen: Chosen, kinds: Sequence[type[Any]]) -> dict[str, Any]:
    """The values of what a file sets, as fields of these dataclasses.

    Raises: SettingError for a name that none of them has, with the nearest one; what making them
    raises.
    """
    known = {field.name: kind for kind in kinds for field in dataclasses.fields(kind)}
    for name in chosen.settings:
        if name not in known:
            raise SettingError(f"there is no setting {name!r} here{nearest(name, known)}")
    found: dict[str, Any] = {}
    for kind in kinds:
        own = {n: value_of(t) for n, t in chosen.settings.items() if known[n] is kind}
        made = kind(**own)
        found |= {name: getattr(made, name) for name in own}
    return found


def refuse_where_none(verb: str, arguments: Sequence[str]) -> None:
    """Refuse the option for a verb that takes no such file. Raises: SettingError."""
    if verb in TAKE_NONE and SETTINGS_FROM in map(option_of, arguments):
        raise SettingError(f"{SETTINGS_FROM}: {TAKE_NONE[verb]}")
