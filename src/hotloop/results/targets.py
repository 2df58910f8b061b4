"""From what the user typed to something that can be run: a loop, a script, or a model.

What a target may name is declared by the module that holds it: a function that returns a
`hotloop.Loop`, a `LoopFamily`, a `hotloop.sim.Model` or a `ModelSpec`. Only the short names of what
comes with hotloop stand in a table, `hotloop.built_in`.
"""

import ast
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hotloop.built_in import BUILT_IN
from hotloop.errors import SettingError, TargetError, did_you_mean, nearest
from hotloop.loop.loop import Loop
from hotloop.loop.scripts.place import ScriptPlace
from hotloop.loop.target import LoopFamily, settings_of

if TYPE_CHECKING:
    from hotloop.sim.spec import ModelSpec


KINDS = (
    "A target is ppo:CartPole-v1, covid:astoria, file.py:function, file.py:MODEL, module:function, "
    "model.yaml, script.py, -m module, or an installed console script"
)
_MODEL_FILES = (".yaml", ".yml")
# How a target that is run by the name of its module is written.
AS_MODULE = "python -m "


@dataclass(frozen=True)
class ModelTarget:
    """A model that a target names, and the population behind the colon, if there is one."""

    spec: "ModelSpec"
    population: str | None

    def population_or(self, option: str | None) -> str | None:
        """The population of the target, or that of the option.

        Raises: SettingError if both name one.
        """
        if self.population is not None and option is not None:
            raise SettingError(
                f"--population: expected without, as the target names {self.population!r}"
            )
        return self.population if option is None else option


def resolve(target: Loop | str, settings: Mapping[str, str] | None = None) -> Loop | ScriptPlace:
    """The loop or script that a target names; a loop is its own, and a model becomes one.

    settings: arguments of the function, or settings of the learner or model, as text.
    Raises: TargetError for what does not exist, cannot be imported, or gives no loop; SettingError
    for a setting that is unknown.
    """
    chosen = {name: value_of(text) for name, text in (settings or {}).items()}
    if isinstance(target, Loop):
        _expect_none(chosen, target.name)
        return target
    if not isinstance(target, str):
        raise TargetError(
            f"expected a hotloop.Loop or a target as text, such as 'file.py:function', got "
            f"{type(target).__qualname__}"
            + ("; call it, and pass on the loop that it returns" if callable(target) else "")
        )
    script = _script(target)
    if script is not None:
        _expect_none(chosen, target)
        return script
    found, argument = _find(target)
    if isinstance(found, LoopFamily):
        if not argument:
            raise TargetError(f"{target!r} is no target: expected a colon and more. {KINDS}")
        return found.make(argument, chosen)
    if callable(found):
        found = _called(found, target, chosen)
        chosen = {}
    if isinstance(found, Loop):
        _expect_none(chosen, target)
        if argument:
            raise TargetError(f"{target}: the function takes nothing; leave {':' + argument!r} out")
        return found
    spec = _spec(found)
    if spec is None:
        raise TargetError(
            f"{target} returned {type(found).__qualname__}; expected a hotloop.Loop, such as "
            "`return hotloop.Loop(body=iterate, unit='env steps', state=[policy, env])`, or a "
            "hotloop.sim.Model"
        )
    return _loop_of(ModelTarget(spec, argument or None), target, chosen)


def resolve_model(target: str) -> ModelTarget:
    """The model that a target names.

    Raises: SettingError for a target that names none; TargetError for what does not exist or
    cannot be imported.
    """
    name = target.partition(":")[0]
    models = [key for key, entry in BUILT_IN.items() if entry.is_model]
    if ":" not in target and name not in BUILT_IN and Path(target).suffix not in _MODEL_FILES:
        raise SettingError(
            f"no model {target!r}{nearest(target, models)} One of your own is file.py:MODEL, "
            "package.module:MODEL or model.yaml"
        )
    found, argument = _find(target)
    if callable(found) and not isinstance(found, LoopFamily):
        found = found()
    spec = _spec(found)
    if spec is None:
        raise SettingError(
            f"{target}: expected a hotloop.sim.Model, a ModelSpec or a function that returns one, "
            f"got {type(found).__qualname__}"
        )
    return ModelTarget(spec, argument or None)


def target_name(target: Loop | str) -> str:
    """How reports and runs call a target."""
    return target.name if isinstance(target, Loop) else str(target)


def search_path() -> list[str]:
    """Where the modules of a script are looked for, after its own folder."""
    return [folder or str(Path.cwd()) for folder in sys.path]


def is_target(word: str) -> bool:
    """Whether a word of a command line is a target rather than a file to be written."""
    place, colon, _ = word.partition(":")
    return place in BUILT_IN or bool(colon) or Path(word).suffix in (".py", *_MODEL_FILES)


def _find(target: str) -> tuple[Any, str]:
    """What a target names, and the text behind it, after a further colon.

    Raises: TargetError.
    """
    name, _, argument = target.partition(":")
    if name in BUILT_IN:
        return _built_in(name), argument
    if Path(target).suffix in _MODEL_FILES:
        from hotloop.sim.config import load_model

        return load_model(target), ""
    # The name of a file may hold colons, as that of a folder does on some systems.
    end = target.find(".py:")
    place, rest = (target[: end + 3], target[end + 4 :]) if end > 0 else (name, argument)
    attribute, _, argument = rest.partition(":")
    if not attribute or not place or (place.startswith(".") and not place.endswith(".py")):
        raise TargetError(f"{target!r} is no target. {KINDS}")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
    if not hasattr(module, attribute) or not _may_run(getattr(module, attribute)):
        usable = [key for key, value in vars(module).items() if _may_run(value)]
        raise TargetError(f"{place} has no function {attribute!r}{did_you_mean(attribute, usable)}")
    return getattr(module, attribute), argument


def _built_in(name: str) -> Any:
    """What a short name stands for. Raises: TargetError without the extra that it needs."""
    place, _, attribute = BUILT_IN[name].declared.partition(":")
    try:
        return getattr(importlib.import_module(place), attribute)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TargetError(f"{name}: needs torch: pip install 'hotloop[torch]'") from None


def _script(target: str) -> ScriptPlace | None:
    """The script that a target names, or None if it names something else. Raises: TargetError."""
    if Path(target).suffix == ".py":
        path = Path(target)
        if not path.is_file():
            raise TargetError(f"{target}: no such script{_near_file(path)}")
        return ScriptPlace(path.resolve())
    if target.startswith(AS_MODULE):
        return _module_script(target.removeprefix(AS_MODULE))
    if ":" in target or target in BUILT_IN or Path(target).suffix in _MODEL_FILES:
        return None
    return _console_script(target)


def _module_script(name: str) -> ScriptPlace:
    """The script that `python -m name` runs. Raises: TargetError."""
    _search_first(Path.cwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise TargetError(
            f"{AS_MODULE}{name}: expected a module that can be run, and there is none of this name"
            f"{did_you_mean(name, _beside(name))}"
        )
    return ScriptPlace(Path(spec.origin).resolve(), name)


def _beside(name: str) -> list[str]:
    """The modules where one of this name was looked for: in its package, or at the top."""
    package, _, _ = name.rpartition(".")
    try:
        found = importlib.util.find_spec(package) if package else None
    except ModuleNotFoundError:
        found = None
    if package and (found is None or found.submodule_search_locations is None):
        return []
    folders = None if found is None else found.submodule_search_locations
    prefix = f"{package}." if package else ""
    return [prefix + each.name for each in pkgutil.iter_modules(folders)]


def _console_script(name: str) -> ScriptPlace:
    """The script that an installed package has put beside this Python. Raises: TargetError."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        known = {entry.name for entry in importlib.metadata.entry_points(group="console_scripts")}
        hint = did_you_mean(name, [*BUILT_IN, *sorted(known)])
        raise TargetError(
            f"{name!r} is no target, and beside {sys.executable} there is no console script of "
            f"this name{hint or '.'} {KINDS}"
        )
    with path.open("rb") as script:
        start = script.read(256)
    if not start.startswith(b"#!") or b"python" not in start:
        raise TargetError(f"{path}: expected a script of Python's; other programs are not measured")
    return ScriptPlace(path.resolve())


def _expect_none(settings: Mapping[str, Any], target: str) -> None:
    if settings:
        raise SettingError(
            f"{target}: expected no settings, got {', '.join(settings)}: what is not a function, a "
            "learner or a model takes none"
        )


def _may_run(value: Any) -> bool:
    return callable(value) or isinstance(value, Loop | LoopFamily) or _spec(value) is not None


def _spec(found: Any) -> "ModelSpec | None":
    """The spec of a model, or None; what is none does not import torch."""
    if "hotloop.sim.model" not in sys.modules:
        return None
    from hotloop.sim.model import Model
    from hotloop.sim.spec import ModelSpec, as_spec

    return as_spec(found) if isinstance(found, Model | ModelSpec) else None


def _called(function: Callable[..., Any], target: str, settings: Mapping[str, Any]) -> Any:
    """What a function returns for these arguments.

    Raises: SettingError for one that it does not have.
    """
    if settings:
        known = inspect.signature(function).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
        for name in settings:
            if name not in known and not takes_any:
                raise SettingError(f"{target} has no argument {name!r}{nearest(name, known)}")
    return function(**settings)


def value_of(text: str) -> Any:
    """The value that a text stands for: a Python literal, true, false or none, else the text."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _loop_of(target: ModelTarget, name: str, settings: Mapping[str, Any]) -> Loop:
    """The loop of a model. settings: of the model, or of its executor.

    Raises: SettingError; TargetError for a population that is missing, or not wanted.
    """
    from hotloop.sim import Executor
    from hotloop.sim.loop import loop
    from hotloop.sim.settings import Settings

    of_executor = [field.name for field in dataclasses.fields(Settings)]
    of_model = [field.name for field in dataclasses.fields(target.spec.settings)]
    for each in settings:
        if each not in (*of_model, *of_executor):
            raise SettingError(
                f"there is no setting {each!r}{nearest(each, [*of_model, *of_executor])}"
            )
    own = {key: value for key, value in settings.items() if key in of_model}
    running = {key: value for key, value in settings.items() if key not in of_model}
    model = target.spec.model(settings_of(target.spec.settings, own) if own else None)
    population = target.population or target.spec.population
    needs_one = model.loaded_population is not None
    if needs_one != (population is not None):
        raise TargetError(
            f"{name}: the model needs a population: put a colon and its name behind it, as in "
            f"{name}:astoria"
            if needs_one
            else f"{name}: the model has agents of its own; leave {':' + str(population)!r} out"
        )
    return loop(Executor(model, population, **running), name=name)


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"{path}: no such file{_near_file(path)}")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As for a script: its neighbours can be imported, and its functions pickled by name.
    _search_first(path.resolve().parent)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    _search_first(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(f"no module {name!r}. {KINDS}") from None


def _search_first(folder: Path) -> None:
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))


def _near_file(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    return did_you_mean(path.name, [str(folder / p.name) for p in folder.glob("*.py")])
