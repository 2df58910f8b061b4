"""From what the user typed to something that can be run."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from hotloop.errors import TargetError
from hotloop.loop.loop import Loop

ENGINES = ("ppo", "covid")
KINDS = (
    "A target is ppo:CartPole-v1, covid:astoria, file.py:function, module:function, or script.py"
)


@dataclass(frozen=True)
class Script:
    """A script that runs itself."""

    path: Path


def resolve(target: Loop | str) -> Loop | Script:
    """The loop or script that a target names; a loop is its own.

    Raises: TargetError for what does not exist, cannot be imported, or gives no loop.
    """
    if isinstance(target, Loop):
        return target
    if not isinstance(target, str):
        raise TargetError(
            f"expected a hotloop.Loop or a target as text, such as 'file.py:function', got "
            f"{type(target).__qualname__}"
            + ("; call it, and pass on the loop that it returns" if callable(target) else "")
        )
    place, colon, name = target.rpartition(":")
    if colon and (not place or (place.startswith(".") and not place.endswith(".py"))):
        raise TargetError(f"{target!r} is no target. {KINDS}")
    if not colon:
        path = Path(target)
        if path.suffix == ".py":
            if not path.is_file():
                raise TargetError(f"{target}: no such script{_near_file(path)}")
            return Script(path.resolve())
        raise TargetError(f"{target!r} is no target. {KINDS}")
    if place == "covid":
        from hotloop.models import covid
        from hotloop.sim import Executor
        from hotloop.sim.loop import loop as simulation

        return simulation(Executor(covid, name), name=target)
    if place in ENGINES:
        from hotloop.learn.ppo import PPOSettings, loop

        return loop(PPOSettings(env_id=name))
    return _call(_function(place, name), target)


def target_name(target: Loop | str) -> str:
    """How reports and runs call a target."""
    return target.name if isinstance(target, Loop) else str(target)


def search_path() -> list[str]:
    """Where the modules of a script are looked for, after its own folder."""
    return [folder or str(Path.cwd()) for folder in sys.path]


def _function(place: str, name: str) -> Callable[[], object]:
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        near = difflib.get_close_matches(name, functions, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TargetError(f"{place} has no function {name!r}{hint}")
    return found  # type: ignore[no-any-return]


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


def _call(function: Callable[[], object], target: str) -> Loop:
    made = function()
    if not isinstance(made, Loop):
        raise TargetError(
            f"{target} returned {type(made).__qualname__}; expected a hotloop.Loop, such as "
            "`return hotloop.Loop(body=iterate, unit='env steps', state=[policy, env])`"
        )
    return made


def _near_file(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    near = difflib.get_close_matches(path.name, [p.name for p in folder.glob("*.py")], n=1)
    return f"; did you mean {folder / near[0]}?" if near else ""
