"""One call for every source of a population: a name, a number, a package, a folder, or the thing.

Apart from the readers and the generator so that neither is imported before it is needed.
"""

import os
from pathlib import Path
from types import ModuleType

import numpy as np

from hotloop.errors import PopulationError, nearest
from hotloop.populations.data import PopulationData

Source = PopulationData | str | int | os.PathLike[str] | ModuleType
"""What `load` takes."""

_OWN = "hotloop.populations."


def load(source: Source, *, seed: int = 0) -> PopulationData:
    """The population of a source.

    PopulationData is returned as it is. "astoria" and "brooklyn", an int or a string of digits
    (that many agents, in Astoria's proportions), and the modules `hotloop.populations.astoria`
    and `.brooklyn` are drawn from the seed, or read from the cache. Any other package stands for
    its folder; a folder is read (see `hotloop.populations.readers.read_folder`), and the seed
    does nothing to it.
    Raises: PopulationError: an unknown name, with the nearest one; no such folder; bad content.
    """
    if isinstance(source, PopulationData):
        return source
    if isinstance(source, ModuleType):
        return _module(source, seed)
    if isinstance(source, bool):
        raise _unknown(source)
    if isinstance(source, (int, np.integer)):
        return _synthetic(int(source), None, seed)
    if isinstance(source, str):
        return _text(source, seed)
    if isinstance(source, os.PathLike):
        return _folder(Path(source))
    raise _unknown(source)


def _text(source: str, seed: int) -> PopulationData:
    text = source.strip()
    if text.casefold() in _named():
        return _synthetic(*_named()[text.casefold()], seed, name=text.casefold())
    if text.isascii() and text.replace("_", "").isdigit():
        return _synthetic(int(text), None, seed)
    path = Path(text).expanduser()
    separators = {"/", os.sep} | ({os.altsep} if os.altsep else set())
    looks_like_one = text.startswith((".", "~")) or any(mark in text for mark in separators)
    if looks_like_one or (text and path.exists()):
        return _folder(path)
    raise PopulationError(
        f"population {source!r}: expected a name, a number of agents or a folder, and it is none"
        f"{nearest(text.casefold(), _named())}"
    )


def _module(module: ModuleType, seed: int) -> PopulationData:
    name = module.__name__
    if name.startswith(_OWN) and name.removeprefix(_OWN) in _named():
        return _text(name.removeprefix(_OWN), seed)
    folders = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None)
    if not folders and file:
        folders = [str(Path(file).parent)]
    if not folders or name == _OWN[:-1]:
        raise PopulationError(
            f"population: expected a package whose folder holds a population, got {name!r}; "
            "give the folder itself, or one of " + ", ".join(map(repr, _named()))
        )
    return _folder(Path(folders[0]))


def _folder(path: Path) -> PopulationData:
    from hotloop.populations.readers import read_folder

    return read_folder(path.expanduser())


def _named() -> dict[str, tuple[int, int | None]]:
    """Agents and edges of the populations that have a name."""
    from hotloop.populations import synthetic

    return {
        "astoria": (synthetic.ASTORIA_AGENTS, synthetic.ASTORIA_EDGES),
        "brooklyn": (synthetic.BROOKLYN_AGENTS, synthetic.BROOKLYN_EDGES),
    }


def _synthetic(
    num_agents: int, num_edges: int | None, seed: int, name: str | None = None
) -> PopulationData:
    from hotloop.populations.cache import cached
    from hotloop.populations.synthetic import Settings

    settings = Settings.of_size(num_agents, seed=seed, num_edges=num_edges)
    return cached(settings, name or f"synthetic-{settings.num_agents}")


def _unknown(source: object) -> PopulationError:
    return PopulationError(
        f"population: expected a name, a number of agents, a package, a folder or "
        f"PopulationData, got {source!r} of type {type(source).__name__}"
    )
