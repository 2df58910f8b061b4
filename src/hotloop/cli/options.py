"""Options that need more than a type: settings that a target declares, a plot's place, shares."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tyro

from hotloop.errors import SettingError
from hotloop.results.targets import is_target


def with_settings(options: type[Any], parts: Mapping[str, type[Any]]) -> type[Any]:
    """Extend a verb's options by settings that its target declares.

    parts: dataclasses by the name of the field that will hold one. A setting is an option of its
    own, without a prefix.
    Raises: SettingError for a setting that is called as an option of the verb, or twice.
    """
    taken = {field.name: "an option of the command" for field in dataclasses.fields(options)}
    for part, kind in parts.items():
        for field in dataclasses.fields(kind):
            if field.name in taken:
                raise SettingError(
                    f"{part.replace('_', ' ')}: {field.name!r} of {kind.__qualname__} is also "
                    f"{taken[field.name]}; rename it"
                )
            taken[field.name] = f"one of the {part.replace('_', ' ')}"
    extended = dataclasses.make_dataclass(
        options.__name__,
        [
            (name, tyro.conf.OmitArgPrefixes[kind], dataclasses.field(default_factory=kind))  # type: ignore[misc,valid-type]
            for name, kind in parts.items()
        ],
        bases=(options,),
        frozen=True,
        kw_only=True,
    )
    extended.__doc__ = options.__doc__
    return extended


def target_in(arguments: Sequence[str], options: type[Any], default: str) -> str:
    """Find the target before the options are read, as its settings are among them.

    options: the verb's own; an option that it does not have is taken to have a value.
    """
    flags = {field.name for field in dataclasses.fields(options) if field.type is bool}
    takes_value = False
    for argument in arguments:
        if takes_value:
            takes_value = False
        elif argument.startswith("-") and argument != "-":
            name = argument.lstrip("-").replace("-", "_")
            is_flag = name in flags | {"h", "help"} or name.removeprefix("no_") in flags
            takes_value = "=" not in argument and not is_flag
        else:
            return argument
    return default


def with_plot_value(arguments: Sequence[str]) -> list[str]:
    """The arguments, with an empty value after each `--plot` that stands alone."""
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=False):
        alone = argument == "--plot" and (following.startswith("-") or is_target(following))
        found += ["--plot", ""] if alone else [argument]
    return found
