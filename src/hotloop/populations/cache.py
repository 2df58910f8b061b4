"""Synthetic populations kept on disk, so that millions of agents are drawn once.

A file is one uncompressed .npz with checksums: a file that is cut short or changed is noticed and
drawn anew. An error of the disk costs time, never a result.
"""

import contextlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.loop.files import atomic_path
from hotloop.populations.data import PopulationData
from hotloop.populations.synthetic import COLUMNS, GENERATOR_VERSION, Settings, generate

ENVIRONMENT = "HOTLOOP_CACHE"
"""Environment variable that moves the cache; empty: no cache."""

# What a damaged file can raise: no zip, a wrong checksum, an array cut short, a member missing.
_DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, PopulationError)


def cached(settings: Settings, name: str) -> PopulationData:
    """Return the population of these settings, from disk where it is there, else drawn.

    The arrays are the caller's own. A cache that cannot be read or written is not used.

    Raises: PopulationError for settings out of range.
    """
    folder = cache_folder()
    if folder is None:
        return _drawn(settings, name)
    path = folder / file_name(settings)
    found = _read(path, settings, name)
    if found is None:
        found = _drawn(settings, name)
        _write(path, settings, found)
    return found


def cache_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """Find where files are kept: $HOTLOOP_CACHE, else the user's cache folder, or nowhere."""
    environment = os.environ if environment is None else environment
    chosen = environment.get(ENVIRONMENT)
    if chosen is not None:
        return Path(chosen) / "populations" if chosen else None
    base = environment.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # no home folder: a bare container
        return None
    return folder / "hotloop" / "populations"


def file_name(settings: Settings) -> str:
    """Name the file of one version of the generator and one set of settings."""
    return f"v{GENERATOR_VERSION}-{settings.num_agents}-{settings.num_edges}-{settings.seed}.npz"


def _drawn(settings: Settings, name: str) -> PopulationData:
    return generate(settings.num_agents, settings.seed, name, num_edges=settings.num_edges)


def _label(settings: Settings) -> str:
    return json.dumps({"version": GENERATOR_VERSION, **asdict(settings)}, sort_keys=True)


def _read(path: Path, settings: Settings, name: str) -> PopulationData | None:
    try:
        # Opened here: numpy leaves a file open that is no archive.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if str(file["label"]) != _label(settings):
                return None
            arrays: dict[str, NDArray[Any]] = {key: file[key] for key in (*COLUMNS, "edges")}
        data = PopulationData(name, {key: arrays[key] for key in COLUMNS}, arrays["edges"])
    except _DAMAGED:
        return None
    return data if data.size == settings.num_agents else None


def _write(path: Path, settings: Settings, data: PopulationData) -> None:
    """Write beside the file, then rename: a reader sees the old file or the whole new one."""
    assert data.edges is not None
    arrays: dict[str, Any] = {
        "label": np.array(_label(settings)),
        "edges": data.edges,
        **data.columns,
    }
    # A disk that is read-only, full, or not ours: the population is in memory all the same.
    with (
        contextlib.suppress(OSError),
        atomic_path(path) as unfinished,
        open(unfinished, "wb") as file,  # np.savez would append a suffix to a name
    ):
        np.savez(file, **arrays)
