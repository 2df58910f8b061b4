"""Where a script is, and running it with something put around its own functions."""

import ast
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.errors import SettingError, did_you_mean

_DECORATOR = "__hotloop_stage__"


@dataclass(frozen=True)
class ScriptPlace:
    """Where a script is: its file, and the name of its module if it is run by that."""

    path: Path
    module: str | None = None

    @property
    def name(self) -> str:
        """How reports call it."""
        return self.path.name if self.module is None else f"python -m {self.module}"


def run_decorated(script: ScriptPlace, decorators: Mapping[str, Callable[[Any], Any]]) -> None:
    """Run a script as `__main__`, with a decorator around some of its functions.

    decorators: by the name of a function, or of a method as `Class.method`. Nothing of its text
    changes, so that lines in a traceback are its own.
    Raises: SettingError for a name that it does not define; whatever the script raises.
    """
    tree = ast.parse(script.path.read_bytes(), str(script.path))
    functions = dict(_functions_of(tree.body))
    for name in decorators:
        if name not in functions:
            raise SettingError(
                f"--stage __main__:{name}: {script.path.name} defines no function of this name"
                f"{did_you_mean(name, functions)}"
            )
        function = functions[name]
        first = function.decorator_list[0] if function.decorator_list else function
        call = ast.parse(f"{_DECORATOR}[{name!r}]", mode="eval").body
        for node in ast.walk(call):
            ast.copy_location(node, first)
        function.decorator_list.append(call)  # the innermost: around the function itself
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=str(script.path), __builtins__=__builtins__, **{_DECORATOR: decorators}
    )
    if script.module is not None:
        main.__package__ = script.module.rpartition(".")[0]
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(tree, str(script.path), "exec"), main.__dict__)
    finally:
        sys.modules["__main__"] = before


def _functions_of(
    body: list[ast.stmt], prefix: str = ""
) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module, and the methods of its classes, by name."""
    found: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((prefix + node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += _functions_of(node.body, f"{prefix}{node.name}.")
    return found
