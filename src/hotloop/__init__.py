"""hotloop: how fast a training loop is, how fast it could be, and what holds it back."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.envs import make_vec
    from hotloop.loop import Loop, Stage, iterations, stage, state

__all__ = ["Loop", "Stage", "iterations", "make_vec", "stage", "state"]


def __getattr__(name: str) -> Any:
    # Loaded at first use: `hotloop --help` needs none of it.
    if name in __all__:
        module = "hotloop.envs" if name == "make_vec" else "hotloop.loop"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")
