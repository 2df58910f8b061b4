"""Options that need more than a type: settings that a target declares, a plot's place, shares."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import tyro

from hotloop.errors import SettingError
from hotloop.results.targets import AS_MODULE, is_target

N = TypeVar("N", int, float)


def with_settings(
    options: type[Any], parts: Mapping[str, type[Any]], defaults: Mapping[str, Any] | None = None
) -> type[Any]:
    """Extend a verb's options by settings that its target declares.

    parts: dataclasses by the name of the field that will hold one. A setting is an option of its
    own, without a prefix. defaults: of settings, in place of their own.
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
            (name, tyro.conf.OmitArgPrefixes[kind], _part(kind, defaults or {}))  # type: ignore[misc,valid-type]
            for name, kind in parts.items()
        ],
        bases=(options,),
        frozen=True,
        kw_only=True,
    )
    extended.__doc__ = options.__doc__
    return extended


def _part(kind: type[Any], defaults: Mapping[str, Any]) -> Any:
    """A field that holds a dataclass with these defaults."""
    own = {
        each.name: defaults[each.name] for each in dataclasses.fields(kind) if each.name in defaults
    }
    return dataclasses.field(default_factory=lambda: kind(**own))


def with_defaults(
    kind: type[Any], defaults: Mapping[str, Any], *, hidden: Sequence[str] = ()
) -> type[Any]:
    """A dataclass of options with other defaults.

    hidden: fields that are text, and no option.
    """
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        if field.name in defaults:
            hint = tyro.conf.Suppress[str] if field.name in hidden else field.type
            fields.append((field.name, hint, dataclasses.field(default=defaults[field.name])))
    changed = dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True)
    changed.__doc__ = kind.__doc__
    return changed


def numbers_in(option: str, text: str, kind: type[N]) -> tuple[N, ...]:
    """The numbers of a list with commas, such as 2,8.

    Raises: SettingError, naming the option.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise SettingError(f"{option}: expected {what} with commas, got {text!r}") from None


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


def option_of(argument: str) -> str:
    """The option that an argument names, with dashes and without its value; empty if none."""
    name = argument.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else ""


def option_value(name: str, arguments: Sequence[str]) -> str:
    """The value of an option that must be known before the others are read; empty without.

    name: with underscores.
    """
    option = f"--{name.replace('_', '-')}"
    for word, following in itertools.pairwise([*arguments, ""]):
        if option_of(word) == option:
            _, equals, value = word.partition("=")
            return value if equals else following
    return ""


def with_all_values(arguments: list[str], several: Collection[str]) -> list[str]:
    """Put the values of an option that is given again behind those that it has already.

    several: the options that take several values. Of any other the last value counts.
    """
    groups: list[list[str]] = [[]]
    first: dict[str, list[str]] = {}
    for each in arguments:
        option, (_, equals, value) = option_of(each), each.partition("=")
        if not option:
            groups[-1].append(each)
        elif option not in several:
            groups.append([each])
        elif option in first:
            groups.append(first[option])  # which is written at its first place only
            first[option] += [value] if equals else []
        else:
            first[option] = [option, value] if equals else [option]
            groups.append(first[option])
    written = {id(group): group for group in groups}
    return [word for group in written.values() for word in group]


def takes_several(options: type[Any]) -> set[str]:
    """The options of a dataclass, and of those within it, that take several values."""
    found: set[str] = set()
    for name, hint in get_type_hints(options).items():
        if dataclasses.is_dataclass(hint):
            found |= takes_several(cast("type[Any]", hint))
        elif get_origin(hint) in (tuple, list):
            found.add(f"--{name.replace('_', '-')}")
    return found


def with_plot_value(arguments: Sequence[str]) -> list[str]:
    """The arguments, with an empty value after each `--plot` that stands alone."""
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=False):
        alone = argument == "--plot" and (following.startswith("-") or is_target(following))
        found += ["--plot", ""] if alone else [argument]
    return found


def with_module(arguments: list[str]) -> list[str]:
    """Write `-m package.module` as the target that it is.

    Raises: SettingError if no module follows.
    """
    if "-m" not in arguments:
        return arguments
    at = arguments.index("-m")
    if at + 1 == len(arguments) or arguments[at + 1].startswith("-"):
        raise SettingError("-m: expected the name of a module, as in -m package.module")
    return [*arguments[:at], AS_MODULE + arguments[at + 1], *arguments[at + 2 :]]
