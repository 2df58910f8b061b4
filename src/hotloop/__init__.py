"""hotloop: how fast a training loop is, how fast it could be, and what holds it back."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.loop import Loop, Stage, iterations, stage, state

__all__ = ["Loop", "Stage", "iterations", "stage", "state"]


def __getattr__(name: str) -> Any:
    # Loaded at first use: `hotloop --help` needs none of it.
    if name in __all__:
        return getattr(importlib.import_module("hotloop.loop"), name)
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")
