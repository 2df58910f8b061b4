"""Signatures of functions whose keywords are the fields of a settings dataclass, for `help()`."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def takes_settings(kind: type[Any]) -> Callable[[F], F]:
    """Show the fields of `kind`, with their defaults, in place of a function's `**settings`."""

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
