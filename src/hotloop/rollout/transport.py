"""What the scheduler of fragments knows of its workers: events, and how to start, ask and end them.

Here and not with one of them, because processes and Ray actors are told apart by nothing else.
"""

from typing import NamedTuple, Protocol

from hotloop.data.fragment import Fragment
from hotloop.rollout.worker import Failure, Update


class Ready(NamedTuple):
    """A worker has answered one request."""

    worker: int
    result: Fragment | Failure


class Died(NamedTuple):
    """A worker is gone, and with it what it had under way."""

    worker: int
    reason: str


Event = Ready | Died


class Workers(Protocol):
    """Workers by number. Nothing here waits but `wait` and `close`."""

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`, for the `generation`-th time after the first."""
        ...

    def request(self, index: int) -> None:
        """Ask a worker for one more fragment."""
        ...

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Hand an update to these workers, to act by from their next fragment on."""
        ...

    def wait(self, timeout_s: float | None) -> list[Event]:
        """What happened first; empty after the timeout."""
        ...

    def end(self, index: int) -> None:
        """End a worker at once."""
        ...

    def close(self) -> None:
        """End all. Idempotent."""
        ...
