"""Find the function or class that a model file names as "module:Name"."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.errors import nearest
from hotloop.sim.config_file import Section


def find_generator(spec: Section) -> Callable[..., Any]:
    """Find what the field `generator` of a section names.

    Raises: ConfigError for a module or a name that does not exist.
    """
    named = str(spec.get("generator"))
    place, colon, name = named.rpartition(":")
    if not colon or not place or not name:
        raise spec.error("generator", f"expected 'module:Name', got {named!r}")
    module = _module(spec, place)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise spec.error("generator", f"{place} has no function {name!r}{nearest(name, functions)}")
    return found  # type: ignore[no-any-return]


def _module(spec: Section, name: str) -> ModuleType:
    """Import a module beside the model file, else one from Python's path."""
    beside = spec.file.path.parent / f"{name.replace('.', '/')}.py"
    if beside.is_file():
        # Under a name of its own, so that two models may each have a `substeps.py`.
        unique = f"hotloop_model_{abs(hash(str(beside.resolve())))}_{beside.stem}"
        if unique in sys.modules:
            return sys.modules[unique]
        found = importlib.util.spec_from_file_location(unique, beside)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[unique] = module
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
        return module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        modules = [path.stem for path in spec.file.path.parent.glob("*.py")]
        raise spec.error(
            "generator",
            f"no module {name!r}, neither beside the file nor to be imported"
            f"{nearest(name, modules)}",
        ) from None
