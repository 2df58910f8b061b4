"""One call for every source of a population: a name, a number, a package, a folder, or the data.

Apart from the readers and the generator so that neither is imported before it is needed.
"""

import logging
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np

from hotloop.errors import PopulationError, nearest
from hotloop.populations.data import PopulationData

Source = PopulationData | str | int | os.PathLike[str] | ModuleType
"""What `load` takes."""


@dataclass(frozen=True)
class FolderFormat:
    """A layout of population folders: functions as "package.module:name", imported when needed."""

    recognises: str | None
    """(folder) -> bool; None takes every folder."""
    reads: str
    """(folder, *, periods) -> PopulationData."""


FOLDER_FORMATS: Mapping[str, FolderFormat] = {
    "AgentTorch": FolderFormat(
        "hotloop.integrations.agenttorch:is_folder", "hotloop.integrations.agenttorch:read_folder"
    ),
    "tables": FolderFormat(None, "hotloop.populations.readers:read_folder"),
}
"""By name; the first that recognises a folder reads it."""

_OWN = "hotloop.populations."
_LOG = logging.getLogger("hotloop")
_Drawn = tuple[int, int | None, str | None]  # agents, edges, name
_FEW_ROWS = 20  # of which nothing can be said
_RECIPROCAL = 0.01  # a share of rows below which contacts look as if each was written once


def load(
    source: Source,
    *,
    seed: int = 0,
    both_ways: bool | None = None,
    periods: bool = False,
    draw_network: bool = False,
) -> PopulationData:
    """Load the population of a source.

    PopulationData is returned as it is. "astoria" and "brooklyn", an int or a string of digits
    (that many agents, in Astoria's proportions), and the modules `hotloop.populations.astoria`
    and `.brooklyn` are drawn from the seed, or read from the cache. Any other package stands for
    its folder; a folder is read by the first of `FOLDER_FORMATS` that recognises it, and the seed
    does not matter to its content.

    Args:
        both_ways: whether each row stands for a contact in both directions, and not as written,
            from src to dst. None reads it as written, with a warning where a folder's network looks
            as if each contact was written once: hardly a row is there both ways.
        periods: whether a folder's networks 0.csv, 1.csv, ... take turns, step by step.
        draw_network: whether a population without a network gets one from the seed, that of a
            drawn population of its size: contacts at random, whatever the columns say.

    Raises: PopulationError: an unknown name, with the nearest one; no such folder; bad content;
    periods of what is no folder; a network drawn for one that has one.
    """
    found = _found(source)
    if isinstance(found, Path):
        data = _read(found.expanduser(), periods)
        if both_ways is None:
            _warn_of_direction(data)
    elif periods:
        raise PopulationError(
            f"population {source!r}: periods: expected a folder with networks that take turns; "
            "give one, or PopulationData with periods of its own"
        )
    else:
        data = found if isinstance(found, PopulationData) else _synthetic(*found, seed)
    if draw_network:
        if data.edges is not None:
            raise PopulationError(
                f"population {data.name!r}: draw_network: it has a network of {data.num_edges} "
                "rows; leave draw_network out"
            )
        data = replace(data, edges=_synthetic(data.size, None, None, seed).edges)
    return data.both_ways() if both_ways else data


def _read(folder: Path, periods: bool) -> PopulationData:
    for known in FOLDER_FORMATS.values():
        if known.recognises is None or pkgutil.resolve_name(known.recognises)(folder):
            data: PopulationData = pkgutil.resolve_name(known.reads)(folder, periods=periods)
            return data
    raise AssertionError("the last of FOLDER_FORMATS takes every folder")


def _warn_of_direction(data: PopulationData) -> None:
    edges = data.edges
    if edges is None or len(edges) < _FEW_ROWS:
        return
    from hotloop.populations.direction import is_acyclic, reciprocity

    share = reciprocity(edges, data.size)
    if share > _RECIPROCAL:
        return
    shape = "has no cycle" if is_acyclic(edges, data.size) else "has cycles"
    _LOG.warning(
        "population %r: %.2g%% of the rows of its network are there in both directions, and it %s: "
        "it may have each contact once. It is read as written, src reaches dst: both_ways=True "
        "reads each row in both directions, both_ways=False says that it is right as it is",
        *(data.name, 100 * share, shape),
    )


def _found(source: Source) -> PopulationData | Path | _Drawn:
    """Find the data, the folder, or what to draw, that a source stands for."""
    if isinstance(source, PopulationData):
        return source
    if isinstance(source, ModuleType):
        return _module(source)
    if isinstance(source, bool):
        raise _unknown(source)
    if isinstance(source, (int, np.integer)):
        return int(source), None, None
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, os.PathLike):
        return Path(source)
    raise _unknown(source)


def _text(source: str) -> Path | _Drawn:
    text = source.strip()
    if text.casefold() in _named():
        return *_named()[text.casefold()], text.casefold()
    if text.isascii() and text.replace("_", "").isdigit():
        return int(text), None, None
    path = Path(text).expanduser()
    separators = {"/", os.sep} | ({os.altsep} if os.altsep else set())
    looks_like_one = text.startswith((".", "~")) or any(mark in text for mark in separators)
    if looks_like_one or (text and path.exists()):
        return path
    raise PopulationError(
        f"population {source!r}: expected a name, a number of agents or a folder, and it is none"
        f"{nearest(text.casefold(), _named())}"
    )


def _module(module: ModuleType) -> Path | _Drawn:
    name = module.__name__
    if name.startswith(_OWN) and name.removeprefix(_OWN) in _named():
        return _text(name.removeprefix(_OWN))
    folders = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None)
    if not folders and file:
        folders = [str(Path(file).parent)]
    if not folders or name == _OWN[:-1]:
        raise PopulationError(
            f"population: expected a package whose folder holds a population, got {name!r}; "
            "give the folder itself, or one of " + ", ".join(map(repr, _named()))
        )
    return Path(folders[0])


def _named() -> dict[str, tuple[int, int | None]]:
    """Return agents and edges of the populations that have a name."""
    from hotloop.populations import synthetic

    return {
        "astoria": (synthetic.ASTORIA_AGENTS, synthetic.ASTORIA_EDGES),
        "brooklyn": (synthetic.BROOKLYN_AGENTS, synthetic.BROOKLYN_EDGES),
    }


def _synthetic(
    num_agents: int, num_edges: int | None, name: str | None, seed: int
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
