"""Signatures of functions whose keywords are the fields of a settings dataclass, for `help()`."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def takes_settings(*kinds: type[Any]) -> Callable[[F], F]:
    """Show the fields of `kinds`, with their defaults, in place of a function's `**settings`."""

    def dressed(function: F) -> F:
        own = inspect.signature(function)
        parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(field),
                annotation=field.type,
            )
            for kind in kinds
            for field in dataclasses.fields(kind)
        ]
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return dressed


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty


def taken_from(settings: dict[str, Any], kind: type[T]) -> T:
    """Take the fields of `kind` out of settings by name, and make one of them."""
    own = {field.name for field in dataclasses.fields(kind)} & settings.keys()  # type: ignore[arg-type]
    return kind(**{name: settings.pop(name) for name in own})
