"""What the fragment collector needs of its workers: start, ask and end them, and their events.

The interface that worker processes and Ray actors have in common.
"""

import importlib
from types import ModuleType
from typing import NamedTuple, Protocol

from hotloop.data.fragment import Fragment
from hotloop.errors import SettingError
from hotloop.rollout.worker import Failure, Update

MAX_UNREAD = 8  # updates that a worker may have before it; of more, only the newest is kept


PLACEMENTS = ("spread", "pack")


class Resources(NamedTuple):
    """What a Ray actor asks of the scheduler; placement: over many nodes, or on few."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    placement: str = "spread"


class Ready(NamedTuple):
    """A worker has answered one request."""

    worker: int
    result: Fragment | Failure


class Died(NamedTuple):
    """A worker has died; its fragments under way are lost."""

    worker: int
    reason: str


Event = Ready | Died


class WorkerPool(Protocol):
    """Workers by index. Only `wait` and `close` block."""

    works_unwatched: bool
    """Whether what was requested is worked on also while nobody waits for it."""

    may_lack_a_place: bool
    """Whether a worker that was started may have to wait until some machine has room for it."""

    def expect_room(self, workers: int) -> None:
        """Refuse more workers than can ever work at once, with SettingError."""
        ...

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`; `generation` counts its restarts."""
        ...

    def request(self, index: int) -> None:
        """Ask a worker for one more fragment."""
        ...

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Send an update to these workers, which use it from their next fragment on."""
        ...

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the next events; empty after the timeout."""
        ...

    def figures(self) -> dict[str, float]:
        """What an inference server has done since it was asked last; nothing without one."""
        ...

    def end(self, index: int) -> None:
        """End a worker at once."""
        ...

    def close(self) -> None:
        """End all workers. Idempotent."""
        ...


def load_ray_part(module: str) -> ModuleType:
    """Load a module of hotloop that needs Ray. Raises: SettingError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SettingError(
            f"backend='ray': needs a package that is not installed ({error.name}); "
            "pip install 'hotloop[ray]'"
        ) from error
