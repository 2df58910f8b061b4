"""How the state of objects is saved whose content Python does not see, by their classes."""

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

Restore = Callable[[], None]


def _mujoco_data(data: Any) -> Restore:
    """The simulated state of MuJoCo; its model does not change while it is stepped."""
    mujoco = sys.modules["mujoco"]
    saved = copy.copy(data)
    return lambda: mujoco.mj_copyData(data, data.model, saved)


def _unchanged(_constant: Any) -> Restore:
    return lambda: None


SAVERS: Mapping[str, Callable[[Any], Restore]] = {
    "mujoco._structs.MjData": _mujoco_data,
    "mujoco._structs.MjModel": _unchanged,
    "_csv.writer": _unchanged,  # it only holds a file, and how to write
    # An env draws its picture anew each time.
    "pygame.surface.Surface": _unchanged,
    "pygame.time.Clock": _unchanged,
    "pygame.font.Font": _unchanged,
}
"""By module and name of a class: what saves an object and returns how to put it back."""

_OF_PROCESSES: Mapping[str, str] = {
    "multiprocessing.process": "BaseProcess",
    "multiprocessing.connection": "_ConnectionBase",
    "_multiprocessing": "SemLock",
}


def is_of_processes(value: object) -> bool:
    """Whether an object is another process, or what is shared with one: its state is there."""
    found = ((sys.modules.get(module), name) for module, name in _OF_PROCESSES.items())
    return any(
        library is not None and isinstance(value, getattr(library, name)) for library, name in found
    )
