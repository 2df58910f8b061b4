"""The table of detectors: a name, and what makes the detector; a module is loaded when used."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotloop.optimize.watched import Detector


def _load(declared: str) -> "Detector":
    module, _, name = declared.partition(":")
    made: Detector = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return made


DETECTORS: Mapping[str, "Callable[[], Detector]"] = {
    "synchronisation": partial(_load, "devices:Synchronisation"),
    "wrong device": partial(_load, "devices:WrongDevice"),
    "python loop": partial(_load, "python_loop:PythonLoop"),
    "loader": partial(_load, "loader:Loader"),
    "threads": partial(_load, "threads:Threads"),
    "growing container": partial(_load, "growth:Growth"),
    "reference cycles": partial(_load, "cycles:Cycles"),
    "float64": partial(_load, "float64:Float64"),
    "equal inputs": partial(_load, "equal_inputs:EqualInputs"),
    "pickling": partial(_load, "pickling:Pickling"),
    "compilation": partial(_load, "compilation:Compilation"),
}
