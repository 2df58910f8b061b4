"""Where the reference's own population folders are, if this machine has any.

HOTLOOP_REFERENCE_POPULATIONS names folders that hold population folders, at any depth; those of an
installed `agent_torch` are found without it. Tests that need one are skipped where it is missing.
"""

import importlib.util
import os
from pathlib import Path

import pytest

VARIABLE = "HOTLOOP_REFERENCE_POPULATIONS"


def named(name: str) -> list[Path]:
    """The reference's population folders of a name: one in each place that has it."""
    ages = sorted(age for place in _places() for age in place.rglob("age.p*") if age.is_file())
    found = [folder for folder in dict.fromkeys(a.parent for a in ages) if folder.name == name]
    if not found:
        pytest.skip(f"no {name!r} of the reference; {VARIABLE} names the folder that holds it")
    return found


def _places() -> list[Path]:
    places = [Path(place) for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]
    package = importlib.util.find_spec("agent_torch")
    if package is not None and package.submodule_search_locations:
        places += [Path(place, "populations") for place in package.submodule_search_locations]
    return places
