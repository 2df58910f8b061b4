"""Synthetic populations kept on disk, so that millions of agents are drawn once.

A file is one uncompressed .npz: its checksums are read back with it, so that a file cut short or
changed is noticed and drawn anew. Anything that the disk refuses costs time, never a result.
"""

import contextlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError
from hotloop.populations.data import PopulationData
from hotloop.populations.synthetic import GENERATOR_VERSION, Settings, generate

ENVIRONMENT = "HOTLOOP_CACHE"
"""Environment variable that moves the cache; empty: no cache."""

# What a damaged file can raise: no zip, a wrong checksum, an array cut short, a member missing.
_DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, PopulationError)


def cached(settings: Settings, name: str) -> PopulationData:
    """The population of these settings: from disk if it is there and whole, else drawn and kept.

    The arrays are the caller's own. A cache that cannot be read or written is done without.
    Raises: PopulationError for settings that no population can have.
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


def cache_folder(
    environment: Mapping[str, str] | None = None, platform: str = sys.platform
) -> Path | None:
    """Where files are kept: $HOTLOOP_CACHE, else the platform's cache folder; None: nowhere."""
    environment = os.environ if environment is None else environment
    chosen = environment.get(ENVIRONMENT)
    if chosen is not None:
        return Path(chosen) / "populations" if chosen else None
    try:
        home = Path.home()
    except RuntimeError:  # no home folder: a bare container
        home = None
    if platform == "win32":
        base = environment.get("LOCALAPPDATA")
    elif platform == "darwin":
        base = str(home / "Library" / "Caches") if home else None
    else:
        base = environment.get("XDG_CACHE_HOME") or (str(home / ".cache") if home else None)
    return Path(base) / "hotloop" / "populations" if base else None


def file_name(settings: Settings) -> str:
    """One name for each version of the generator and each set of settings."""
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
            arrays: dict[str, NDArray[Any]] = {key: file[key] for key in ("age", "edges", "stages")}
        data = PopulationData(name, {"age": arrays["age"]}, arrays["edges"], arrays["stages"])
    except _DAMAGED:
        return None
    return data if data.size == settings.num_agents else None


def _write(path: Path, settings: Settings, data: PopulationData) -> None:
    """Write beside the file, then rename: a reader sees the old file or the whole new one."""
    assert data.edges is not None
    assert data.stages is not None
    unfinished: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            unfinished = Path(file.name)
            np.savez(
                file,
                label=np.array(_label(settings)),
                age=data.columns["age"],
                edges=data.edges,
                stages=data.stages,
            )
        unfinished.replace(path)
        unfinished = None
    except OSError:
        return  # read-only, full, or not ours: the population is in memory all the same
    finally:
        if unfinished is not None:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
